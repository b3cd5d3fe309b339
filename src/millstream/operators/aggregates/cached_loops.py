"""The inner loops of aggregations with a record cache.

They modify cache entries directly, following the rules of `RecordCache`. The C extension
implements them too, for caches that it also implements. Both versions fetch the entries of a block
of changes before making the changes, so they load the same entries in the same order, and a cache
evicts the same entries with either version.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import count, repeat
from typing import Any, Final, NamedTuple

from millstream.native import compiled
from millstream.record import Headers, TopicPartition
from millstream.state.caches.cache_entries import CachedEntry
from millstream.state.caches.record_cache import RecordCache

#: () → the initial aggregate.
Initializer = Callable[[], Any]

#: (key, value, aggregate) → the next aggregate; None deletes it.
Aggregator = Callable[[Any, Any, Any], Any]

#: Called with the index of a record for which user code failed, and the error. Returns if the
#: record is to be dropped; otherwise raises an error.
FailureCallback = Callable[[int, Exception], None]

_NO_HEADERS: Headers = ()

#: The number of entries that are fetched at a time, as in C.
_BLOCK_SIZE: Final = 256


class AggregateUpdates(NamedTuple):
    """The aggregates to change, and the records that change them.

    The fields from `keys` to `headers` are columns of the records.

    Args:
        stored_keys: the key of the aggregate of each change.
        indices: the record index of each change, ascending; None if each record makes one change.
        timestamps: the timestamps of the records, in milliseconds.
        places: the topic partitions of the records; an infinite iterator if all are equal.
        headers: the headers of the records; None if no record has headers.
        at: an array with one number, the index of the record for which user code is being called.
            Stack inspection reads it.
    """

    stored_keys: list[bytes]
    indices: list[int] | None
    keys: list[Any]
    values: list[Any]
    timestamps: list[int]
    places: Iterable[TopicPartition | None]
    offsets: Iterable[int]
    headers: list[Headers] | None
    at: array[int]


def pure_fold_entries(
    cache: RecordCache,
    updates: AggregateUpdates,
    initializer: Initializer,
    aggregator: Aggregator,
    own: Callable[[Any], Any] | None,
    failed: FailureCallback,
) -> None:
    """Fold the values of records into cached aggregates.

    The timestamp of an aggregate is the highest timestamp of its records. A record that fails in
    one of its windows is dropped from the later ones, too. `own` copies a value; it is None if
    values are immutable. Takes 0.5 us per change, 0.2 us in C.
    """
    dirty, seq = cache.dirty, cache.seq
    left_out, at = -1, updates.at
    columns = iter(_change_columns(updates, updates.keys, updates.values))
    try:
        for block in _blocks(updates.stored_keys):
            cache.seq = seq
            try:
                entries = _loaded_entries(cache, block)
            finally:
                seq = cache.seq
            # `columns` comes last, so that zip does not consume a record of the next block.
            for entry, columns_of_record in zip(entries, columns, strict=False):
                index, key, record, timestamp, place, offset, headers = columns_of_record
                if index == left_out:
                    continue
                at[0] = index
                try:
                    before = entry.value
                    value = aggregator(key, record, initializer() if before is None else before)
                    if value is record and own is not None:
                        # The value of the record may also be used elsewhere: store a copy.
                        value = own(value)
                except Exception as error:
                    cache.seq = seq
                    failed(index, error)
                    left_out = index
                    continue
                # A deleted aggregate starts over: its timestamp is ignored.
                if before is None or timestamp > entry.timestamp or value is None:
                    entry.timestamp = timestamp
                entry.value = value
                if not entry.dirty_seq:
                    dirty.append(entry)
                seq += 1
                entry.dirty_seq = seq
                entry.place = place
                entry.offset = offset
                entry.headers = headers
    finally:
        # Also after an error, because the changes so far have been made.
        cache.seq = seq


def pure_count_entries(cache: RecordCache, updates: AggregateUpdates) -> None:
    """Count records in cached aggregates.

    Takes 0.25 us per change, half the time of the general loop: no user code can fail here and
    counts are immutable, so failures are not handled and values are not copied.
    """
    dirty, seq = cache.dirty, cache.seq
    columns = iter(_change_columns(updates))
    try:
        for block in _blocks(updates.stored_keys):
            cache.seq = seq
            try:
                entries = _loaded_entries(cache, block)
            finally:
                seq = cache.seq
            for entry, (_, timestamp, place, offset, headers) in zip(
                entries, columns, strict=False
            ):
                before = entry.value
                if before is None:
                    entry.value = 1
                    entry.timestamp = timestamp
                else:
                    entry.value = before + 1
                    if timestamp > entry.timestamp:
                        entry.timestamp = timestamp
                if not entry.dirty_seq:
                    dirty.append(entry)
                seq += 1
                entry.dirty_seq = seq
                entry.place = place
                entry.offset = offset
                entry.headers = headers
    finally:
        cache.seq = seq


def _blocks(stored_keys: list[bytes]) -> Iterable[list[bytes]]:
    return (
        stored_keys[first : first + _BLOCK_SIZE]
        for first in range(0, len(stored_keys), _BLOCK_SIZE)
    )


def _loaded_entries(cache: RecordCache, block: list[bytes]) -> list[CachedEntry]:
    """Return the entries of a block of changes. The cache loads missing entries."""
    entries = cache.entries
    found = list(map(entries.get, block))
    if None in found:
        pairs = list(zip(block, found, strict=True))
        cache.load_many(list(dict.fromkeys(key for key, entry in pairs if entry is None)))
        return [entries[key] if entry is None else entry for key, entry in pairs]
    return found  # type: ignore[return-value]


def _change_columns(updates: AggregateUpdates, *more: list[Any]) -> Iterable[tuple[Any, ...]]:
    """Return the record index and the column values of each change.

    The columns in `more` precede the columns that all loops need.
    """
    indices = updates.indices
    headers = repeat(_NO_HEADERS) if updates.headers is None else updates.headers
    columns = (*more, updates.timestamps, updates.places, updates.offsets, headers)
    if indices is None:
        return zip(count(), *columns, strict=False)
    spread = (
        [column[index] for index in indices] if isinstance(column, Sequence) else column
        for column in columns
    )
    return zip(indices, *spread, strict=False)


#: For caches that are implemented in C.
compiled_fold_entries = compiled(pure_fold_entries, "fold_entries")
_compiled_count_entries = compiled(pure_count_entries, "count_entries")


def count_entries(cache: RecordCache, updates: AggregateUpdates) -> None:
    """Call `pure_count_entries`, or its C version if the cache is implemented in C."""
    loop = _compiled_count_entries if cache.implementation.is_compiled else pure_count_entries
    loop(cache, updates)
