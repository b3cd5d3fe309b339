"""Keeping the records of streams that are joined (Kafka Streams' KStreamJoinWindow).

The nodes of a join share stores, so one record must be done before the next one comes. They work
together as a team, whole batches of both sides at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from millstream.operators.batch import Batch, Order
from millstream.operators.joins.stream_join import (
    StreamStreamJoinOperator,
    encoded_keys,
    encoded_values,
)
from millstream.operators.joins.stream_self_join import StreamSelfJoinOperator
from millstream.operators.operator import Operator, OperatorContext, Output, Team
from millstream.operators.results import Results
from millstream.state.windows.window_table import WindowTable


class StreamJoinWindowOperator(Operator):
    """Hands each record to the join, and then keeps it for the records of the other side.

    Args:
        store: the window store of its side.
    """

    def __init__(self, store: str) -> None:
        self.store = store
        self._table: WindowTable

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self._table = context.store(self.store)

    def team(self, members: Mapping[str, Operator]) -> Team | None:
        return _join_team(members)

    def process(self, batch: Batch, output: Output) -> None:
        for index in range(len(batch)):
            one = batch if len(batch) == 1 else batch.take([index])
            output.emit(one)
            kept = self.prepare(one)
            self.keep(kept, 0)
            self.log(kept)

    def prepare(self, batch: Batch) -> KeptRecords:
        """Serialize the keys and values of a batch, to keep its records one by one."""
        return KeptRecords(
            batch, encoded_keys(self._table, batch), encoded_values(self._table, batch)
        )

    def keep(self, kept: KeptRecords, index: int) -> None:
        """Keep a record, unless it has no key."""
        key, data = kept.keys[index], kept.values[index]
        if key is None:
            return
        timestamp = kept.batch.timestamps[index]
        try:
            if key.__class__ is not bytes:
                raise key
            if data.__class__ is not bytes and data is not None:
                raise data
            kept.stored.append(self._table.put_duplicate(key, timestamp, data, timestamp))
            kept.done.append(index)
        except Exception as error:
            self.context.failed(kept.batch, index, error)

    def log(self, kept: KeptRecords) -> None:
        """Log all that was kept."""
        done, batch = kept.done, kept.batch
        if not done:
            return
        headers = batch.all_headers()
        self._table.log_duplicates(
            kept.stored,
            [kept.values[index] for index in done],
            [batch.timestamps[index] for index in done],
            None if headers is None else [headers[index] for index in done],
        )


class KeptRecords:
    """The records of a batch on their way into a window store.

    Args:
        batch: the records.
        keys: what `encoded_keys` gives.
        values: what `encoded_values` gives.
    """

    __slots__ = ("batch", "done", "keys", "stored", "values")

    def __init__(self, batch: Batch, keys: Sequence[Any], values: Sequence[Any]) -> None:
        self.batch = batch
        self.keys = keys
        self.values = values
        #: The indices of the records that are kept, and the keys under which they are stored.
        self.done: list[int] = []
        self.stored: list[bytes] = []


class _Side(NamedTuple):
    """The two nodes that a record of one side passes: the one that keeps it comes first."""

    window: str
    keeper: StreamJoinWindowOperator
    join: str
    joiner: StreamStreamJoinOperator | StreamSelfJoinOperator


class _Work(NamedTuple):
    """What waits on one side."""

    side: _Side
    results: Results
    kept: KeptRecords


class StreamJoinTeam:
    """Takes the records of both sides in their order; each is done before the next one comes.

    Args:
        sides: the two sides, or the only one of a join of a stream with itself.
    """

    def __init__(self, sides: Sequence[_Side]) -> None:
        self._sides = sides

    def run(self, waiting: Mapping[str, Batch], outputs: Mapping[str, Output]) -> None:
        """Join what waits for the nodes that keep records, and keep it."""
        work = [
            _Work(side, Results(waiting[side.window]), side.keeper.prepare(batch))
            for side in self._sides
            if (batch := waiting.get(side.window)) is not None
        ]
        for position, index in _turns(work):
            side, results, kept = work[position]
            side.joiner.join(results, index, kept.keys[index])
            side.keeper.keep(kept, index)
        for side, results, kept in work:
            side.keeper.log(kept)
            results.emit(outputs[side.join])


def _turns(work: Sequence[_Work]) -> Iterable[tuple[int, int]]:
    """Whose record comes next, and which one it is."""
    if len(work) == 1:
        return zip(repeat(0), range(len(work[0].results.batch)), strict=False)
    turns: list[tuple[Order, int, int]] = []
    for position, (_, results, _) in enumerate(work):
        order = results.batch.order
        assert order is not None, "records of two sides need their order"
        turns += zip(order, repeat(position), range(len(order)), strict=False)
    turns.sort()
    return [(position, index) for _, position, index in turns]


def _join_team(members: Mapping[str, Operator]) -> StreamJoinTeam | None:
    """The team of a join; None if others share its stores, too.

    Args:
        members: the operators that share stores, by their nodes.
    """
    keepers = {
        operator.store: (name, operator)
        for name, operator in members.items()
        if isinstance(operator, StreamJoinWindowOperator)
    }
    sides: list[_Side] = []
    for name, operator in members.items():
        if isinstance(operator, StreamStreamJoinOperator | StreamSelfJoinOperator):
            keeper = keepers.pop(operator.own_store, None)
            if keeper is not None:
                sides.append(_Side(*keeper, name, operator))
    complete = not keepers and 2 * len(sides) == len(members)
    return StreamJoinTeam(sides) if complete and sides else None
