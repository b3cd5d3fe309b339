"""Keeping the records of streams that are joined (Kafka Streams' KStreamJoinWindow).

The nodes of a join share stores, so one record must be done before the next one comes. They work
together as a team, whole batches of both sides at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from millstream.operators.batch import Batch
from millstream.operators.joins.at_once import KeptRecords, Passing, join_at_once, turns
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
        self.table: WindowTable

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self.table = context.store(self.store)

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
            batch, encoded_keys(self.table, batch), encoded_values(self.table, batch)
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
            kept.stored.append(self.table.put_duplicate(key, timestamp, data, timestamp))
            kept.done.append(index)
        except Exception as error:
            self.context.failed(kept.batch, index, error)

    def log(self, kept: KeptRecords) -> None:
        """Log all that was kept."""
        done, batch = kept.done, kept.batch
        if not done:
            return
        headers = batch.all_headers()
        self.table.log_duplicates(
            kept.stored,
            [kept.values[index] for index in done],
            [batch.timestamps[index] for index in done],
            None if headers is None else [headers[index] for index in done],
        )


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
        passing = [
            Passing(side.joiner, side.keeper.table, results, kept) for side, results, kept in work
        ]
        if not join_at_once(passing):
            _join_one_by_one(work)
        for side, results, kept in work:
            side.keeper.log(kept)
            results.emit(outputs[side.join])


def _join_one_by_one(work: Sequence[_Work]) -> None:
    batches = [each.results.batch for each in work]
    waiting = [(each, index) for each in work for index in range(len(each.results.batch))]
    for place in turns(batches):
        (side, results, kept), index = waiting[place]
        side.joiner.join(results, index, kept.keys[index])
        side.keeper.keep(kept, index)


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
