"""The loops of all aggregations by key or by window: values folded into stored aggregates.

Each record of a batch comes with the *stored key* of its aggregate: its serialized key, with a
window behind it where there are windows. With a record cache, aggregates change in the cache, and
go downstream when that is flushed; without one, each change is written and logged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from millstream.operators.batch import Batch
from millstream.record import Headers
from millstream.state.caches.record_cache import RecordCache
from millstream.state.keyvalue.table import TimestampedTable
from millstream.state.windows.window_table import WindowTable

#: () → what an aggregate starts from.
Initializer = Callable[[], Any]

#: (key, value, aggregate) → the next aggregate; None deletes it.
Aggregator = Callable[[Any, Any, Any], Any]

#: Told the batch, the index of the record that user code failed on, and the error.
Failed = Callable[[Batch, int, Exception], None]

_NO_HEADERS: Headers = ()


class FailedRecords:
    """A record that fails in one of its windows is left out of the later ones, too.

    Args:
        failed: lets a record be left out, or raises.
        batch: the records, repeated for each of their windows.
        indices: which record each of them is; None where each comes once.
    """

    __slots__ = ("_batch", "_failed", "_indices", "_last")

    def __init__(self, failed: Failed, batch: Batch, indices: Sequence[int] | None = None) -> None:
        self._failed = failed
        self._batch = batch
        self._indices = indices
        self._last = -1

    @property
    def may_repeat(self) -> bool:
        """Whether a record may come several times."""
        return self._indices is not None

    def skips(self, position: int) -> bool:
        """Whether the record at a position of the batch has failed in an earlier window."""
        indices = self._indices
        return indices is not None and indices[position] == self._last

    def add(self, position: int, error: Exception) -> None:
        """The record at a position has failed: leave it out, or raise."""
        if self._indices is not None:
            self._last = self._indices[position]
        self._failed(self._batch, position, error)


class Folded(NamedTuple):
    """The changes of a batch without a record cache: parallel lists.

    Args:
        positions: of the records that made them.
        values: the new aggregates.
        timestamps: of the new aggregates.
        old_values: what they replace; None if nobody wants to know.
    """

    positions: list[int]
    values: list[Any]
    timestamps: list[int]
    old_values: list[Any] | None


class Fold:
    """How the values under one stored key become one.

    An aggregate's time is the highest of its records.

    Args:
        table: holds the aggregates.
        initializer: gives what an aggregate starts from.
        aggregator: gives the next aggregate.
        guarded: whether a record that fails may be left out. It must leave no traces then: neither
            what the aggregator changed before it failed, nor a value that no flush can serialize.
        send_old_values: whether somebody downstream must know what a change replaces.
    """

    def __init__(
        self,
        table: TimestampedTable | WindowTable,
        initializer: Initializer,
        aggregator: Aggregator,
        *,
        guarded: bool,
        send_old_values: bool,
    ) -> None:
        self._table = table
        self._initializer = initializer
        self._aggregator = aggregator
        self._guarded = guarded
        self._send_old_values = send_old_values

    def into_cache(
        self,
        cache: RecordCache,
        batch: Batch,
        stored_keys: Sequence[bytes],
        failed: FailedRecords,
    ) -> None:
        """Change the aggregates of a batch in the cache, by the rules of `RecordCache`."""
        # Hot, 0.5 us a record: the loop itself changes the cached entries.
        entries, load, dirty, seq = cache.entries, cache.load, cache.dirty, cache.seq
        get = entries.get
        initial, step, table, guarded = (
            self._initializer,
            self._aggregator,
            self._table,
            self._guarded,
        )
        own, mutable = table.own, not table.immutable
        # Nothing is skipped before something has failed.
        skips: Callable[[int], bool] | None = None
        places, offsets = batch.read_at()
        headers = batch.all_headers() or repeat(_NO_HEADERS)
        columns = (
            stored_keys,
            batch.keys,
            batch.values,
            batch.timestamps,
            places,
            offsets,
            headers,
        )
        for index, (stored_key, key, record, timestamp, place, offset, its_headers) in enumerate(
            zip(*columns, strict=False)  # places and headers may be endless
        ):
            if skips is not None and skips(index):
                continue
            entry = get(stored_key)
            if entry is None:
                cache.seq = seq
                entry = load(stored_key)
                seq = cache.seq
            try:
                before = entry.value
                if before is None:
                    before = initial()
                elif guarded:
                    before = own(before)
                value = step(key, record, before)
                if mutable and value is record:
                    # The record's own value may be on its way elsewhere: keep another object.
                    value = own(value)
                elif guarded:
                    table.encode(value)
            except Exception as error:
                cache.seq = seq
                failed.add(index, error)
                skips = failed.skips if failed.may_repeat else None
                continue
            # A deleted aggregate starts over: its time does not count any more.
            if entry.value is None or timestamp > entry.timestamp or value is None:
                entry.timestamp = timestamp
            entry.value = value
            if not entry.dirty_seq:
                dirty.append(entry)
            seq += 1
            entry.dirty_seq = seq
            entry.place = place
            entry.offset = offset
            entry.headers = its_headers
        cache.seq = seq

    def into_table(
        self, batch: Batch, stored_keys: Sequence[bytes], failed: FailedRecords
    ) -> Folded:
        """Write and log every change of a batch; reads and writes go in one call each."""
        table, initial, step = self._table, self._initializer, self._aggregator
        distinct = list(dict.fromkeys(stored_keys))
        current = dict(zip(distinct, table.read_encoded_many(distinct), strict=True))
        folded = Folded([], [], [], [] if self._send_old_values else None)
        positions, values, timestamps, old_values = folded
        written: list[bytes] = []
        encoded: list[bytes | None] = []
        logged: list[int] = []
        skips = failed.skips if failed.may_repeat else None
        columns = (stored_keys, batch.keys, batch.values, batch.timestamps)
        for index, (stored_key, key, record, caused) in enumerate(zip(*columns, strict=True)):
            if skips is not None and skips(index):
                continue
            found = current[stored_key]
            try:
                # Decoded anew for each update: what an aggregator changes in place must not be
                # what was handed on before.
                before = initial() if found is None else table.decode(found[0])
                # Follows Kafka Streams: a first aggregate replaces what it starts from.
                old = None if old_values is None else table.own(before)
                value = step(key, record, before)
                data = table.encode(value)
            except Exception as error:
                failed.add(index, error)
                continue
            time = caused if found is None or caused > found[1] else found[1]
            current[stored_key] = None if data is None else (data, time)
            written.append(stored_key)
            encoded.append(data)
            # Follows Kafka Streams: a deletion is forwarded with the time of the aggregate, but
            # logged with that of the record which caused it.
            logged.append(caused if data is None else time)
            positions.append(index)
            values.append(value)
            timestamps.append(time)
            if old_values is not None:
                old_values.append(old)
        table.write_encoded_many(written, encoded, logged)
        return folded


class CachedCounts:
    """Counts the records of each stored key in a record cache.

    No user code can fail in here and counts cannot be changed in place, so the loop is the bare
    minimum: half of what the general one takes.
    """

    def __init__(self) -> None:
        self._headers_cached = False

    def add(self, cache: RecordCache, batch: Batch, stored_keys: Sequence[bytes]) -> None:
        """Count the records of a batch, by the rules of `RecordCache`."""
        # Hot: 0.25 us a record.
        entries, load, dirty, seq = cache.entries, cache.load, cache.dirty, cache.seq
        get = entries.get
        places, offsets = batch.read_at()
        for stored_key, timestamp, place, offset in zip(  # places may be endless
            stored_keys, batch.timestamps, places, offsets, strict=False
        ):
            entry = get(stored_key)
            if entry is None:
                cache.seq = seq
                entry = load(stored_key)
                seq = cache.seq
            count = entry.value
            if count is None:
                entry.value = 1
                entry.timestamp = timestamp
            else:
                entry.value = count + 1
                if timestamp > entry.timestamp:
                    entry.timestamp = timestamp
            if not entry.dirty_seq:
                dirty.append(entry)
            seq += 1
            entry.dirty_seq = seq
            entry.place = place
            entry.offset = offset
        cache.seq = seq
        self._keep_headers(cache, batch, stored_keys)

    def flushed(self) -> None:
        """The cache has given up all changes, with their headers."""
        self._headers_cached = False

    def _keep_headers(self, cache: RecordCache, batch: Batch, stored_keys: Sequence[bytes]) -> None:
        """Note the headers of the last record of each key. Usually there are none anywhere."""
        headers = batch.all_headers()
        if headers is None and not self._headers_cached:
            return
        self._headers_cached = True
        entries = cache.entries
        for index, stored_key in enumerate(stored_keys):
            entries[stored_key].headers = () if headers is None else headers[index]


class Reduced:
    """A reducer as an aggregator: the first value is taken as it is.

    Args:
        reducer: (result so far, value) → the next result.
    """

    def __init__(self, reducer: Callable[[Any, Any], Any]) -> None:
        self._reducer = reducer

    def __call__(self, key: Any, value: Any, aggregate: Any) -> Any:
        return value if aggregate is None else self._reducer(aggregate, value)

    def merge(self, key: Any, one: Any, other: Any) -> Any:
        """The result of two sessions that become one."""
        return other if one is None else self._reducer(one, other)


def count_one(key: Any, value: Any, aggregate: int) -> int:
    """Counts a record."""
    return aggregate + 1


def nothing() -> None:
    """The aggregate that a reduction starts from."""
    return
