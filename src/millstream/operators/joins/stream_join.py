"""Joins of two streams (Kafka Streams' KStreamKStreamJoin).

Each record first looks for partners in the window store of the other stream, and then goes into
that of its own. In a left or outer join a record that finds none is remembered in a store that
both sides share, until a partner comes or none can come any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

from millstream.errors import BatchSerializationError
from millstream.operators.batch import Batch, has_none
from millstream.operators.emit_interval import OUTER_JOIN_INTERVAL, emit_interval_ms
from millstream.operators.operator import Operator, OperatorContext, Output
from millstream.operators.results import Results
from millstream.operators.usable import INCOMPLETE
from millstream.record import UNKNOWN
from millstream.state.buffers.outer_join_store import OuterJoinStore
from millstream.state.windows.window_table import WindowTable, WindowValue
from millstream.windowed import MAX_TIME_MS

#: (key, value of this side, value of the other side) → result
_Join = Callable[[Any, Any, Any], Any]


#: For each reach of a join what a record has found there, or why it could not be read.
Found = Sequence[list[WindowValue] | Exception]


@dataclass(frozen=True)
class StreamJoiner:
    """What the user joins two values with.

    Args:
        function: (left value, right value) → value, or (key, left value, right value) → value.
        with_key: which of the two.
    """

    function: Callable[..., Any]
    with_key: bool

    def seen_from(self, *, left: bool) -> _Join:
        """The function with the arguments in the order in which one side has them."""
        join = self.function
        if left:
            return join if self.with_key else lambda key, this, other: join(this, other)
        if self.with_key:
            return lambda key, this, other: join(key, other, this)
        return lambda key, this, other: join(other, this)


@dataclass(frozen=True)
class JoinSide:
    """What one side of a join must know.

    Args:
        left: whether it is the left one.
        own_store: the window store of this side, which another node fills.
        other_store: the window store of the other side.
        unjoined_store: what remembers records without a partner; None in an inner join.
        keeps_unjoined: whether records of this side without a partner have a result.
        before_ms: how much earlier than a left record its partner may be.
        after_ms: how much later.
        grace_ms: how long after the end of its window a record may find a partner.
    """

    left: bool
    own_store: str
    other_store: str
    unjoined_store: str | None
    keeps_unjoined: bool
    before_ms: int
    after_ms: int
    grace_ms: int


class JoinTime:
    """The time that both sides of a left or outer join share.

    Attributes:
        stream: the highest time of a record on either side.
        earliest: no record without a partner is remembered of an earlier time; `MAX_TIME_MS` if
            none is remembered.
        next_search_ms: the wall-clock time from which on closed windows are looked for.
    """

    __slots__ = ("__weakref__", "earliest", "next_search_ms", "stream")

    def __init__(self) -> None:
        self.stream = UNKNOWN
        self.earliest = MAX_TIME_MS
        self.next_search_ms = 0


#: By the store that the two sides share, so that operators of one task find each other's.
_TIMES: Final[WeakKeyDictionary[OuterJoinStore, JoinTime]] = WeakKeyDictionary()


class StreamStreamJoinOperator(Operator):
    """Joins the records of one side with what is kept of the other side.

    Args:
        side: which side, and its windows and stores.
        joiner: the user's.

    Attributes:
        other_table: where partners are looked for.
        reaches: how much earlier and later than a record, in milliseconds.
        needs_partners: whether nothing comes of a record that finds none.
    """

    def __init__(self, side: JoinSide, joiner: StreamJoiner) -> None:
        self.side = side
        self.own_store = side.own_store
        self.other_store = side.other_store
        self.needs_partners = side.unjoined_store is None
        self._join = joiner.seen_from(left=side.left)
        before, after = side.before_ms, side.after_ms
        self._before, self._after = (before, after) if side.left else (after, before)
        self.reaches = ((self._before, self._after),)
        self.other_table: WindowTable
        self._unjoined: OuterJoinStore | None = None
        self._time: JoinTime
        self._interval_ms = 0

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self.other_table = context.store(self.side.other_store)
        if self.side.unjoined_store is None:
            self._time = JoinTime()
            return
        self._unjoined = unjoined = context.store(self.side.unjoined_store)
        self._time = _TIMES.setdefault(unjoined, JoinTime())
        self._interval_ms = emit_interval_ms(context.config, OUTER_JOIN_INTERVAL)

    def process(self, batch: Batch, output: Output) -> None:
        results = Results(batch)
        for index, key_bytes in enumerate(encoded_keys(self.other_table, batch)):
            self.join(results, index, key_bytes)
        results.emit(output)

    def close(self) -> None:
        if self._unjoined is not None:
            _TIMES.pop(self._unjoined, None)

    def join(
        self, results: Results, index: int, key_bytes: Any, found: Found | None = None
    ) -> None:
        """Add what a record is joined to, and what its time gives free.

        Args:
            results: of the batch where the record is.
            index: which one it is.
            key_bytes: its entry in `encoded_keys`.
            found: its partners; None to look for them.
        """
        batch = results.batch
        value, timestamp = batch.values[index], batch.timestamps[index]
        time = self._time
        if timestamp > time.stream:
            time.stream = timestamp
        try:
            if key_bytes is None or value is None:
                if value is None or not self.side.keeps_unjoined:
                    self.context.dropped(1, INCOMPLETE)
                else:
                    results.add(index, None, self._join(None, value, None), timestamp)
                return
            if self._unjoined is not None and timestamp == time.stream:
                self._give_up(results, index, self._unjoined)
            if key_bytes.__class__ is not bytes:
                raise key_bytes
            # Follows Kafka Streams: what ends before the epoch ends there.
            last = max(0, timestamp + self._after)
            if found is None:
                first = timestamp - self._before
                partners = self.other_table.fetch_between(key_bytes, first, last)
            else:
                partners = readable(found[0])
            self._join_all(results, index, value, timestamp, partners, last)
        except Exception as error:
            self.context.failed(batch, index, error)

    def _join_all(
        self,
        results: Results,
        index: int,
        value: Any,
        timestamp: int,
        partners: list[WindowValue],
        last: int,
    ) -> None:
        key, join, unjoined = results.batch.keys[index], self._join, self._unjoined
        for start, other, _ in partners:
            if unjoined is not None:
                unjoined.remove_joined(start, not self.side.left, key, record_time=timestamp)
            joined = join(key, value, other)
            results.add(index, key, joined, timestamp if timestamp > start else start)
        if partners or unjoined is None or not self.side.keeps_unjoined:
            return
        time = self._time
        if last < time.stream:
            # Too late for a partner that is not there yet.
            results.add(index, key, join(key, value, None), timestamp)
            return
        if timestamp < time.earliest:
            time.earliest = timestamp
        unjoined.put(timestamp, self.side.left, key, value, record_time=timestamp)

    def _give_up(self, results: Results, index: int, unjoined: OuterJoinStore) -> None:
        """Join the records with None whose windows have closed before this one's time."""
        side, time = self.side, self._time
        reach = self._after + side.grace_ms
        if time.earliest == MAX_TIME_MS:
            # Follows Kafka Streams, where that sum overflows: an empty store is searched, too,
            # which counts as a search for the interval.
            if reach <= 0:
                return
        elif time.earliest + reach >= time.stream:
            return
        now_ms = self.context.clock.now_ms()
        if now_ms < time.next_search_ms:
            return
        time.next_search_ms = now_ms + self._interval_ms
        time.earliest = MAX_TIME_MS
        record_time = results.batch.timestamps[index]
        open_sides: set[bool] = set()
        done: bytes | None = None
        for entry in unjoined.all():
            # Follows Kafka Streams: this is the time at which the next search begins to make
            # sense, even if entries of the other side that are still open were passed by.
            time.earliest = entry.timestamp
            if len(open_sides) == 2:
                break
            lookback = side.after_ms if entry.left else side.before_ms
            if entry.timestamp + lookback + side.grace_ms >= time.stream:
                open_sides.add(entry.left)
                if len(open_sides) == 2 and len(unjoined.values(entry)) > 1:
                    # The search ends with the next value, which is one of the same time.
                    break
                continue
            key = unjoined.key(entry)
            for value in unjoined.values(entry):
                this, other = (value, None) if entry.left is side.left else (None, value)
                results.add(index, key, self._join(key, this, other), entry.timestamp)
                # Forgotten only when the next one is out: follows Kafka Streams, whose join may
                # fail in between.
                if done is not None and done is not entry.stored_key:
                    unjoined.remove(done, record_time=record_time)
                done = entry.stored_key
        if done is not None:
            unjoined.remove(done, record_time=record_time)


def readable(partners: list[WindowValue] | Exception) -> list[WindowValue]:
    """The partners; raises why they could not be read."""
    if isinstance(partners, Exception):
        raise partners
    return partners


def encoded_keys(table: WindowTable, batch: Batch) -> Sequence[Any]:
    """For each record its serialized key; None without a key; the error if it has no bytes."""
    keys = batch.keys
    try:
        if not has_none(keys):
            return table.encode_keys(keys)
    except BatchSerializationError:
        pass
    return [None if key is None else _encoded(table.encode_keys, key) for key in keys]


def encoded_values(table: WindowTable, batch: Batch) -> Sequence[Any]:
    """For each record its serialized value, which may be None; the error if it has no bytes."""
    try:
        return table.encode_many(batch.values)
    except BatchSerializationError:
        return [_encoded(table.encode_many, value) for value in batch.values]


def _encoded(encode_many: Callable[[Sequence[Any]], Sequence[Any]], value: Any) -> Any:
    try:
        return encode_many((value,))[0]
    except BatchSerializationError as error:
        return error
