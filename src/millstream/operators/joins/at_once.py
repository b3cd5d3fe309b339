"""Joining whole batches of streams: looking for partners first, keeping all records after that.

What the user's functions give changes nothing in the stores of the two sides, and nobody else looks
at these in between. So it is enough that each record finds those that came before it: the stores
are written once a batch, and what was found is deserialized as a list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, repeat
from operator import ge, itemgetter
from typing import Any, Final

from millstream.errors import BatchSerializationError
from millstream.operators.batch import Batch, Order, has_none
from millstream.operators.joins.stream_join import Found, StreamStreamJoinOperator
from millstream.operators.joins.stream_self_join import StreamSelfJoinOperator
from millstream.operators.results import Results
from millstream.state.windows.duplicate_table import Entry
from millstream.state.windows.duplicate_windows import Arrivals
from millstream.state.windows.window_table import WindowTable, WindowValue

#: Fewer records are done sooner one by one: 24 us each of 8 against 36 us, about 14 us either way
#: of 32.
FEWEST = 32
_NOTHING: Final[list[Entry]] = []
_SERIALIZED: Final[set[type]] = {bytes, type(None)}


class KeptRecords:
    """The records of a batch on their way into a window store.

    Args:
        batch: the records.
        keys: what `encoded_keys` gives.
        values: what `encoded_values` gives.

    Attributes:
        done: the indices of the records that are kept.
        stored: the keys under which these are stored.
    """

    __slots__ = ("batch", "done", "keys", "stored", "values")

    def __init__(self, batch: Batch, keys: Sequence[Any], values: Sequence[Any]) -> None:
        self.batch = batch
        self.keys = keys
        self.values = values
        self.done: list[int] = []
        self.stored: list[bytes] = []


class Passing:
    """The records of one side, as they look for partners and come into their own store.

    Args:
        joiner: joins them.
        table: their own store.
        results: of their batch.
        kept: the same records.
    """

    def __init__(
        self,
        joiner: StreamStreamJoinOperator | StreamSelfJoinOperator,
        table: WindowTable,
        results: Results,
        kept: KeptRecords,
    ) -> None:
        self.joiner = joiner
        self.table = table
        self.results = results
        self.kept = kept
        self._batch = kept.batch
        self._arrivals: Arrivals
        #: What records have found, by their position among those that are kept.
        self._found: list[dict[int, list[Entry]]] = []

    def fits(self) -> bool:
        """Whether all records can be serialized, and all partners are in memory."""
        kept, batch = self.kept, self._batch
        if not _SERIALIZED.issuperset({*map(type, kept.keys), *map(type, kept.values)}):
            return False
        nulls = zip(batch.values, kept.values, strict=True)
        if (has_none(batch.values) or has_none(kept.values)) and any(
            (value is None) is not (data is None) for value, data in nulls
        ):
            # A serializer took a value for a null.
            return False
        if not self.table.can_number(len(batch)):
            return False
        first = min(batch.timestamps) - max(before for before, _ in self.joiner.reaches)
        return self.joiner.other_table.has_in_memory(first)

    def arrive(self) -> Arrivals:
        """Let the records come into the store."""
        kept, batch = self.kept, self._batch
        if has_none(kept.keys):
            kept.done = [index for index, key in enumerate(kept.keys) if key is not None]
            self._arrivals = self.table.arrivals(
                [kept.keys[index] for index in kept.done],
                [batch.timestamps[index] for index in kept.done],
                [kept.values[index] for index in kept.done],
            )
        else:
            kept.done = list(range(len(batch)))
            self._arrivals = self.table.arrivals(kept.keys, batch.timestamps, kept.values)
        kept.stored = list(self._arrivals.stored)
        return self._arrivals

    def look_among(self, others: Arrivals, other: Passing | None) -> None:
        """Find the partners of all records.

        Args:
            others: what comes into the store where they are.
            other: whose records these are; None if there are none.
        """
        come = self._come_before(other)
        keys, times = self._arrivals.keys, self._arrivals.times
        self._found = [
            others.find_many(keys, times, before, after, come)
            for before, after in self.joiner.reaches
        ]

    def _come_before(self, other: Passing | None) -> Sequence[int]:
        """How many of the other side have come when it is the turn of each record."""
        size = len(self.kept.done)
        if other is None:
            return [0] * size
        if other is self:
            return range(size)
        # Sorted together: 0.3 us each.
        orders = [*self.orders(), *other.orders()]
        places = sorted(range(len(orders)), key=orders.__getitem__)
        come = accumulate(map(ge, places, repeat(size)))
        return [count for place, count in zip(places, come, strict=True) if place < size]

    def orders(self) -> list[Order]:
        """The turns of the records that are kept."""
        order = self._batch.order
        assert order is not None, "records of two sides need their order"
        done = self.kept.done
        return order if len(done) == len(order) else [order[index] for index in done]

    def order_of(self, index: int) -> Order:
        """The turn of a record."""
        order = self._batch.order
        assert order is not None, "records of two sides need their order"
        return order[index]

    def keep(self) -> None:
        """Store all records."""
        self.table.keep(self._arrivals)

    def to_join(self) -> list[tuple[int, Found]]:
        """Which records something comes of, and what they have found."""
        done, entries, found = self.kept.done, self._arrivals.entries, self._found
        positions: Iterable[int] = range(len(done))
        if self.joiner.needs_partners:
            positions = found[0]
            if not all(entries):
                # What has no value is to be told.
                nulls = [position for position in range(len(done)) if entries[position] is None]
                positions = sorted({*positions, *nulls})
        finds = [
            (done[position], [each.get(position, _NOTHING) for each in found])
            for position in positions
        ]
        joined = list(_decoded(self.joiner.other_table, finds))
        if len(done) < len(self._batch):
            # So is what has no key.
            joined += [(index, ()) for index in {*range(len(self._batch))} - {*done}]
            joined.sort(key=itemgetter(0))
        return joined


def _decoded(
    table: WindowTable, finds: Sequence[tuple[int, list[list[Entry]]]]
) -> Iterator[tuple[int, Found]]:
    """The same with deserialized values."""
    raws = [entry[2] for _, found in finds for each in found for entry in each]
    try:
        decoded = iter(table.decode_stored(raws))
    except BatchSerializationError:
        for index, found in finds:
            yield index, [_decoded_alone(table, each) for each in found]
        return
    for index, found in finds:
        yield index, [[(entry[0], *next(decoded)) for entry in each] for each in found]


def _decoded_alone(table: WindowTable, found: list[Entry]) -> list[WindowValue] | Exception:
    try:
        return [(start, *table.split(raw)) for start, _, raw in found]
    except Exception as error:
        return error


def join_at_once(sides: Sequence[Passing]) -> bool:
    """Join and keep records of both sides, each with those that come before it.

    Returns:
        Whether that was done: if not, it must be done one by one.
    """
    if sum(len(side.kept.batch) for side in sides) < FEWEST:
        return False
    if not all(side.fits() for side in sides):
        return False
    arrivals = [(side, side.arrive()) for side in sides]
    for side in sides:
        others = side.joiner.other_table
        for other, there in arrivals:
            if other.table is others:
                side.look_among(there, other)
                break
        else:
            side.look_among(others.arrivals((), (), ()), None)
    for side in sides:
        side.keep()
    joined = [(side, index, found) for side in sides for index, found in side.to_join()]
    if len(sides) > 1:
        joined.sort(key=lambda each: each[0].order_of(each[1]))
    for side, index, found in joined:
        side.joiner.join(side.results, index, side.kept.keys[index], found)
    return True


def turns(batches: Sequence[Batch]) -> Sequence[int]:
    """The order in which the records of batches come, by their place in all batches: 0.08 us each.

    Args:
        batches: the batches, of which several have their order.
    """
    if len(batches) == 1:
        return range(len(batches[0]))
    orders: list[Order] = []
    for batch in batches:
        assert batch.order is not None, "records of two sides need their order"
        orders += batch.order
    return sorted(range(len(orders)), key=orders.__getitem__)
