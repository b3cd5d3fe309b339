"""Joins of two streams, or of a stream with itself.

Corresponds to Kafka Streams' `KStreamKStreamJoin`.

For each record, the window store of the other stream is searched for partners. Then the record is
added to the window store of its own stream. In left and outer joins, a record without partners is
kept in a store that both sides share, until a partner arrives or can no longer arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

from millstream.errors import BatchSerializationError
from millstream.operators.operator import Operator, OperatorContext, Output
from millstream.operators.record_batch import Batch, has_none
from millstream.operators.record_filters import INCOMPLETE
from millstream.operators.result_records import OUTER_JOIN_INTERVAL, ResultRecords, emit_interval_ms
from millstream.record import UNKNOWN
from millstream.state.buffers.join_stores import OuterJoinStore
from millstream.state.windows.window_table import WindowTable, WindowValue
from millstream.windowed import MAX_TIME_MS

#: (key, value of this side, value of the other side) → result.
_Join = Callable[[Any, Any, Any], Any]


#: The partners of a record in each time range of a join, or the error that reading them raised.
FoundPartners = Sequence[list[WindowValue] | Exception]


@dataclass(frozen=True)
class StreamJoiner:
    """The user's function: (left value, right value) → value.

    If `with_key`, the key is the first argument.
    """

    function: Callable[..., Any]
    with_key: bool

    def oriented(self, *, left: bool) -> _Join:
        """Return the function for one side: (key, own value, other value) → result."""
        join = self.function
        if left:
            return join if self.with_key else lambda key, this, other: join(this, other)
        if self.with_key:
            return lambda key, this, other: join(key, other, this)
        return lambda key, this, other: join(other, this)


@dataclass(frozen=True)
class JoinSide:
    """The parameters of one side of a join."""

    left: bool
    own_store: str
    other_store: str
    #: The store of records without a partner; None in an inner join.
    unmatched_store: str | None
    #: Whether records of this side have a result even without a partner.
    keeps_unmatched: bool
    #: How much earlier and later than a left record its partner may be.
    before_ms: int
    after_ms: int
    #: How long after the end of its window a record may find a partner.
    grace_ms: int


class JoinTimeTracker:
    """The time that both sides of a left or outer join share.

    Corresponds to Kafka Streams' `TimeTracker`.
    """

    __slots__ = ("__weakref__", "earliest", "next_search_ms", "stream")

    def __init__(self) -> None:
        #: The highest timestamp of a record on either side.
        self.stream = UNKNOWN
        #: A lower bound of the timestamps of stored records without a partner.
        self.earliest = MAX_TIME_MS
        #: The wall-clock time of the next search for closed windows.
        self.next_search_ms = 0


#: The trackers of all joins, keyed by the shared store, so that both operators of a task get the
#: same tracker.
_TIME_TRACKERS: Final[WeakKeyDictionary[OuterJoinStore, JoinTimeTracker]] = WeakKeyDictionary()


class _RecordJoinOperator(Operator):
    """Joins each record of a batch with stored records."""

    #: The store that contains the partners.
    other_table: WindowTable

    def process(self, batch: Batch, output: Output) -> None:
        results = ResultRecords(batch)
        for index, key_bytes in enumerate(encoded_keys(self.other_table, batch)):
            self.join(results, index, key_bytes)
        results.emit(output)

    def join(
        self, results: ResultRecords, index: int, key_bytes: Any, found: FoundPartners | None = None
    ) -> None:
        """Add the results of a record and of unmatched records whose windows it closes.

        `key_bytes` is an element of the result of `encoded_keys`. If `found` is None, the partners
        are looked up.
        """
        raise NotImplementedError


class StreamStreamJoinOperator(_RecordJoinOperator):
    """Joins the records of one side with the stored records of the other side."""

    def __init__(self, side: JoinSide, joiner: StreamJoiner) -> None:
        self.side = side
        self.own_store = side.own_store
        self.other_store = side.other_store
        #: Whether a record without partners has no effect.
        self.needs_partners = side.unmatched_store is None
        self._join = joiner.oriented(left=side.left)
        before, after = side.before_ms, side.after_ms
        self._before, self._after = (before, after) if side.left else (after, before)
        #: How much earlier and later than a record its partners may be, in milliseconds.
        self.time_ranges = ((self._before, self._after),)
        self._unmatched: OuterJoinStore | None = None
        self._time: JoinTimeTracker
        self._interval_ms = 0

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self.other_table = context.store(self.side.other_store)
        if self.side.unmatched_store is None:
            self._time = JoinTimeTracker()
            return
        self._unmatched = unmatched = context.store(self.side.unmatched_store)
        self._time = _TIME_TRACKERS.setdefault(unmatched, JoinTimeTracker())
        self._interval_ms = emit_interval_ms(context.config, OUTER_JOIN_INTERVAL)

    def close(self) -> None:
        if self._unmatched is not None:
            _TIME_TRACKERS.pop(self._unmatched, None)

    def join(
        self, results: ResultRecords, index: int, key_bytes: Any, found: FoundPartners | None = None
    ) -> None:
        batch = results.batch
        value, timestamp = batch.values[index], batch.timestamps[index]
        time = self._time
        if timestamp > time.stream:
            time.stream = timestamp
        try:
            if key_bytes is None or value is None:
                if value is None or not self.side.keeps_unmatched:
                    self.context.dropped(1, INCOMPLETE)
                else:
                    results.add(index, None, self._join(None, value, None), timestamp)
                return
            if self._unmatched is not None and timestamp == time.stream:
                self._emit_unmatched(results, index, self._unmatched)
            if key_bytes.__class__ is not bytes:
                raise key_bytes
            # Follows Kafka Streams: ranges do not end before the epoch.
            last = max(0, timestamp + self._after)
            if found is None:
                first = timestamp - self._before
                partners = self.other_table.fetch_between(key_bytes, first, last)
            else:
                partners = partners_or_raise(found[0])
            self._join_all(results, index, value, timestamp, partners, last)
        except Exception as error:
            self.context.failed(batch, index, error)

    def _join_all(
        self,
        results: ResultRecords,
        index: int,
        value: Any,
        timestamp: int,
        partners: list[WindowValue],
        last: int,
    ) -> None:
        key, join, unmatched = results.batch.keys[index], self._join, self._unmatched
        for start, other, _ in partners:
            if unmatched is not None:
                unmatched.remove_joined(start, not self.side.left, key, record_time=timestamp)
            joined = join(key, value, other)
            results.add(index, key, joined, timestamp if timestamp > start else start)
        if partners or unmatched is None or not self.side.keeps_unmatched:
            return
        time = self._time
        if last < time.stream:
            # A partner that has not arrived yet would be too late.
            results.add(index, key, join(key, value, None), timestamp)
            return
        if timestamp < time.earliest:
            time.earliest = timestamp
        unmatched.put(timestamp, self.side.left, key, value, record_time=timestamp)

    def _emit_unmatched(
        self, results: ResultRecords, index: int, unmatched: OuterJoinStore
    ) -> None:
        """Emit the unmatched records of closed windows, joined with None."""
        side, time = self.side, self._time
        wait_ms = self._after + side.grace_ms
        if time.earliest == MAX_TIME_MS:
            # Follows Kafka Streams, where the sum below overflows if `wait_ms` is positive. An
            # empty store is then searched, too, which restarts the interval between searches.
            if wait_ms <= 0:
                return
        elif time.earliest + wait_ms >= time.stream:
            return
        now_ms = self.context.clock.now_ms()
        if now_ms < time.next_search_ms:
            return
        time.next_search_ms = now_ms + self._interval_ms
        time.earliest = MAX_TIME_MS
        record_time = results.batch.timestamps[index]
        open_sides: set[bool] = set()
        done: bytes | None = None
        for entry in unmatched.all():
            # Follows Kafka Streams: this time determines when the next search is due, even if open
            # entries of the other side were skipped.
            time.earliest = entry.timestamp
            if len(open_sides) == 2:
                break
            lookback = side.after_ms if entry.left else side.before_ms
            if entry.timestamp + lookback + side.grace_ms >= time.stream:
                open_sides.add(entry.left)
                if len(open_sides) == 2 and len(unmatched.values(entry)) > 1:
                    # The search ends at the next value, which has the same timestamp.
                    break
                continue
            key = unmatched.key(entry)
            for value in unmatched.values(entry):
                this, other = (value, None) if entry.left is side.left else (None, value)
                results.add(index, key, self._join(key, this, other), entry.timestamp)
                # Follows Kafka Streams: an entry is removed only after the next entry was joined
                # and emitted, which may fail.
                if done is not None and done is not entry.stored_key:
                    unmatched.remove(done, record_time=record_time)
                done = entry.stored_key
        if done is not None:
            unmatched.remove(done, record_time=record_time)


def partners_or_raise(partners: list[WindowValue] | Exception) -> list[WindowValue]:
    if isinstance(partners, Exception):
        raise partners
    return partners


def encoded_keys(table: WindowTable, batch: Batch) -> Sequence[Any]:
    """Return the serialized key of each record, None without a key, or the error."""
    keys = batch.keys
    try:
        if not has_none(keys):
            return table.encode_keys(keys)
    except BatchSerializationError:
        pass  # One of the keys failed; each is serialized individually below.
    return [None if key is None else _encoded(table.encode_keys, key) for key in keys]


def encoded_values(table: WindowTable, batch: Batch) -> Sequence[Any]:
    """Return the serialized value of each record, which may be None, or the error."""
    try:
        return table.encode_many(batch.values)
    except BatchSerializationError:
        return [_encoded(table.encode_many, value) for value in batch.values]


def _encoded(encode_many: Callable[[Sequence[Any]], Sequence[Any]], value: Any) -> Any:
    try:
        return encode_many((value,))[0]
    except BatchSerializationError as error:
        return error


class StreamSelfJoinOperator(_RecordJoinOperator):
    """Joins the records of a stream with each other, using a single store.

    The results and their order are the same as in a join of two equal streams. Follows Kafka
    Streams' `KStreamKStreamSelfJoin`.
    """

    needs_partners = False

    def __init__(
        self, store: str, before_ms: int, after_ms: int, retention_ms: int, joiner: StreamJoiner
    ) -> None:
        self.own_store = self.other_store = store
        self._before = before_ms
        self._after = after_ms
        self.time_ranges = ((before_ms, after_ms), (after_ms, before_ms))
        self._retention_ms = retention_ms
        self._join = joiner.oriented(left=True)
        self._stream_time = UNKNOWN

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self.other_table = context.store(self.own_store)

    def join(
        self, results: ResultRecords, index: int, key_bytes: Any, found: FoundPartners | None = None
    ) -> None:
        batch = results.batch
        value = batch.values[index]
        if key_bytes is None or value is None:
            self.context.dropped(1, INCOMPLETE)
            return
        try:
            self._join_all(results, index, key_bytes, value, found)
        except Exception as error:
            self.context.failed(batch, index, error)

    def _join_all(
        self,
        results: ResultRecords,
        index: int,
        key_bytes: Any,
        value: Any,
        found: FoundPartners | None,
    ) -> None:
        key, join = results.batch.keys[index], self._join
        timestamp = results.batch.timestamps[index]
        with_itself = join(key, value, value)
        self._stream_time = max(self._stream_time, timestamp)
        # A record that is too old for the store is not joined with itself either.
        waits = timestamp >= self._stream_time - self._retention_ms
        if key_bytes.__class__ is not bytes:
            raise key_bytes
        for start, other, _ in self._partners(0, key_bytes, timestamp, found):
            results.add(index, key, join(key, value, other), max(timestamp, start))
        for start, other, _ in self._partners(1, key_bytes, timestamp, found):
            if waits and start > timestamp:
                results.add(index, key, with_itself, timestamp)
                waits = False
            results.add(index, key, join(key, other, value), max(timestamp, start))
        if waits:
            results.add(index, key, with_itself, timestamp)

    def _partners(
        self, range_index: int, key_bytes: bytes, timestamp: int, found: FoundPartners | None
    ) -> list[WindowValue]:
        if found is not None:
            return partners_or_raise(found[range_index])
        before, after = self.time_ranges[range_index]
        # Follows Kafka Streams: ranges do not end before the epoch.
        last = max(0, timestamp + after)
        return self.other_table.fetch_between(key_bytes, timestamp - before, last)
