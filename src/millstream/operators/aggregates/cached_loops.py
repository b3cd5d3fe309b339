"""The hot loops of aggregations with a record cache: they change its entries themselves.

By the rules of `RecordCache`. `millstream-speedups` has them in C, where that is installed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import count, repeat
from typing import Any, NamedTuple

from millstream.compiled import compiled
from millstream.record import Headers, TopicPartition
from millstream.state.caches.record_cache import RecordCache

#: () → what an aggregate starts from.
Initializer = Callable[[], Any]

#: (key, value, aggregate) → the next aggregate; None deletes it.
Aggregator = Callable[[Any, Any, Any], Any]

#: Told the index of the record that user code failed on, and the error: it may raise, or return if
#: the record is left out.
Failed = Callable[[int, Exception], None]

_NO_HEADERS: Headers = ()


class Updates(NamedTuple):
    """Which aggregates to change, by which records: all but the first two are columns of records.

    Args:
        stored_keys: of the aggregates, one for each change.
        indices: of each change the index of its record, ascending; None where each record makes
            one.
        keys: of the records.
        values: of the records.
        timestamps: of the records, in milliseconds.
        places: where the records were read; an iterator gives the same for all, forever.
        offsets: their offsets there.
        headers: of the records; None where there are none at all.
        at: one number, the index of the record that user code is called for, to be seen by others.
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
    updates: Updates,
    initializer: Initializer,
    aggregator: Aggregator,
    own: Callable[[Any], Any] | None,
    failed: Failed,
) -> None:
    """Fold the values of records into cached aggregates: 0.5 us a change, in C 0.2 us.

    An aggregate's time is the highest of its records. A record that fails in one of its windows is
    left out of the later ones, too.

    Args:
        cache: has the aggregates.
        updates: what to change.
        initializer: gives what an aggregate starts from.
        aggregator: gives the next aggregate.
        own: gives another object of the same value; None where values cannot be changed in place.
        failed: told the record that an aggregator or an initializer fails on.
    """
    entries, load, dirty, seq = cache.entries, cache.load, cache.dirty, cache.seq
    get = entries.get
    left_out, at = -1, updates.at
    columns = _of_changes(updates, updates.keys, updates.values)
    for stored_key, index, key, record, timestamp, place, offset, headers in columns:
        if index == left_out:
            continue
        entry = get(stored_key)
        if entry is None:
            cache.seq = seq
            entry = load(stored_key)
            seq = cache.seq
        at[0] = index
        try:
            before = entry.value
            value = aggregator(key, record, initializer() if before is None else before)
            if value is record and own is not None:
                # The record's own value may be on its way elsewhere: keep another object.
                value = own(value)
        except Exception as error:
            cache.seq = seq
            failed(index, error)
            left_out = index
            continue
        # A deleted aggregate starts over: its time does not count any more.
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
    cache.seq = seq


def pure_count_entries(cache: RecordCache, updates: Updates) -> None:
    """Count records in cached aggregates: 0.25 us a change.

    No user code can fail in here and counts cannot be changed in place, so this does without what
    the general loop needs for that: it takes half of the time.

    Args:
        cache: has the counts.
        updates: what to count.
    """
    entries, load, dirty, seq = cache.entries, cache.load, cache.dirty, cache.seq
    get = entries.get
    for stored_key, _, timestamp, place, offset, headers in _of_changes(updates):
        entry = get(stored_key)
        if entry is None:
            cache.seq = seq
            entry = load(stored_key)
            seq = cache.seq
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
    cache.seq = seq


def _of_changes(updates: Updates, *more: list[Any]) -> Iterable[tuple[Any, ...]]:
    """For each change its stored key, the index of its record, and what columns have of that.

    Args:
        updates: the changes.
        more: columns that come before those that each loop needs.
    """
    stored_keys, indices = updates.stored_keys, updates.indices
    headers = repeat(_NO_HEADERS) if updates.headers is None else updates.headers
    columns = (*more, updates.timestamps, updates.places, updates.offsets, headers)
    if indices is None:
        return zip(stored_keys, count(), *columns, strict=False)
    spread = (
        [column[index] for index in indices] if isinstance(column, Sequence) else column
        for column in columns
    )
    return zip(stored_keys, indices, *spread, strict=False)


fold_entries = compiled(pure_fold_entries, "fold_entries")
count_entries = compiled(pure_count_entries, "count_entries")
