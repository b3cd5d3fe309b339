"""An in-memory table of window entries with duplicates.

Duplicates are several values with the same key and time.

Optimized for the reads of stream joins, which are almost always by key and time.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from millstream.record import UNKNOWN
from millstream.state.windows.time_table import ENTRY_OVERHEAD_BYTES, TimeTable
from millstream.state.windows.window_keys import WINDOWS

#: Start, stored key and value. The entries of a key sort by time, then by the sequence number in
#: the stored key.
Entry = tuple[int, bytes, bytes]

_EMPTY: Final[Sequence[Entry]] = ()


#: The list length from which a bisection and one deletion are faster than deleting entries one by
#: one.
_BISECT_MIN_ENTRIES: Final = 64


class _Bucket:
    """The entries in a time bucket."""

    __slots__ = ("lists", "size_bytes", "sized_count")

    def __init__(self) -> None:
        #: The lists of `by_key` with entries in this bucket; a list occurs once per entry.
        self.lists: list[list[Entry]] = []
        #: The total size of the counted entries, and their number.
        self.size_bytes = self.sized_count = 0


class DuplicateTable:
    """A dict with the entries of each key, ascending: a `TimeTable` for duplicates.

    There is no additional dict by stored key, since entries are never overwritten. Reads of the
    entries of a key in a time range do not create or compare bytes.

    Attributes:
        by_key: the entries of each key that has any. Read-only.
    """

    def __init__(self, bucket_ms: int) -> None:
        self.by_key: dict[bytes, list[Entry]] = defaultdict(list)
        self.size_bytes = 0
        self._bucket_ms = max(1, bucket_ms)
        self._buckets: dict[int, _Bucket] = {}
        # The numbers of the buckets, ascending.
        self._numbers: list[int] = []
        # The numbers of the buckets with entries that are not counted yet.
        self._unsized: set[int] = set()
        # Entries from this time on sort after all existing ones.
        self._append_from = UNKNOWN

    def __len__(self) -> int:
        return sum(map(len, self.by_key.values()))

    # --- reading ---------------------------------------------------------------------------------

    def get(self, stored: bytes) -> bytes | None:
        time = WINDOWS.time_of(stored)
        for _, other, value in self._of_key(WINDOWS.key_of(stored), time, time):
            if other == stored:
                return value
        return None

    def of_key(self, key: bytes, first: int, last: int) -> list[tuple[bytes, bytes]]:
        return [(stored, value) for _, stored, value in self._of_key(key, first, last)]

    def between(self, first: int, last: int) -> list[tuple[bytes, bytes]]:
        low = bisect_left(self._numbers, first // self._bucket_ms)
        high = bisect_left(self._numbers, last // self._bucket_ms + 1)
        lists = {
            id(known): known
            for number in self._numbers[low:high]
            for known in self._buckets[number].lists
            if known
        }
        return [
            (stored, value)
            for known in lists.values()
            for _, stored, value in entries_between(known, first, last)
        ]

    def _of_key(self, key: bytes, first: int, last: int) -> Sequence[Entry]:
        known = self.by_key.get(key)
        return _EMPTY if known is None else entries_between(known, first, last)

    # --- writing ---------------------------------------------------------------------------------

    def put(self, stored: bytes, value: bytes, time: int) -> None:
        """Write one value; `time` is the time in the stored key."""
        key = WINDOWS.key_of(stored)
        if time < self._append_from:
            self.discard(stored, time)
        else:
            # Other entries at this time may have higher sequence numbers.
            self._append_from = time + 1
        known = self.by_key[key]
        insort(known, (time, stored, value))
        bucket = self._bucket(time // self._bucket_ms)
        bucket.lists.append(known)
        bucket.sized_count += 1
        size = len(stored) + len(value) + ENTRY_OVERHEAD_BYTES
        bucket.size_bytes += size
        self.size_bytes += size

    def put_many(self, pairs: Mapping[bytes, bytes], number: int) -> None:
        for stored, value in pairs.items():
            self.put(stored, value, WINDOWS.time_of(stored))

    def add_many(self, keys: Iterable[bytes], entries: Iterable[Entry]) -> None:
        """Add entries and make them visible to reads; count them later with `add_sizes`.

        Entries with the same time must be in the order of their sequence numbers.
        """
        bucket_ms, latest, start, end = self._bucket_ms, self._append_from, 0, 0
        # Look up all lists first, so that the memory latency of the lookups overlaps.
        lists = list(map(self.by_key.__getitem__, keys))
        for known, entry in zip(lists, entries, strict=True):
            time = entry[0]
            if time >= latest:
                # The entry sorts last: no comparison is needed.
                latest = time
                known.append(entry)
            else:
                insort(known, entry)
            if not start <= time < end:
                # Most records are in the same bucket as the previous one.
                number = time // bucket_ms
                start, end = number * bucket_ms, (number + 1) * bucket_ms
                fill = self._bucket(number).lists.append
                self._unsized.add(number)
            fill(known)
        self._append_from = latest

    def add_sizes(self, size_bytes: int, count: int) -> None:
        """Update the size of the table for the entries added since the last call.

        `size_bytes` is the total size of their keys and values, and `count` is their number.
        """
        # An average is sufficient, as dropped entries are subtracted with their counted size.
        each = size_bytes // count + ENTRY_OVERHEAD_BYTES
        for number in self._unsized:
            bucket = self._buckets[number]
            grown = each * (len(bucket.lists) - bucket.sized_count)
            bucket.sized_count = len(bucket.lists)
            bucket.size_bytes += grown
            self.size_bytes += grown
        self._unsized.clear()

    def remove_entry(self, key: bytes, entry: Entry) -> None:
        """Remove an entry unless it was already dropped."""
        known = self.by_key.get(key, [])
        position = bisect_left(known, entry)
        if position < len(known) and known[position] is entry:
            del known[position]
            if not known:
                del self.by_key[key]

    def discard(self, stored: bytes, time: int) -> None:
        key = WINDOWS.key_of(stored)
        for entry in self._of_key(key, time, time):
            if entry[1] == stored:
                # The size of the entry counts until the bucket is dropped, as deletions are rare.
                self.remove_entry(key, entry)
                return

    def bucket_of(self, time: int) -> int:
        return time // self._bucket_ms

    def drop_before(self, time: int) -> None:
        numbers, number = self._numbers, time // self._bucket_ms
        while numbers and numbers[0] < number:
            self.drop_oldest()

    def drop_oldest(self) -> int:
        number = self._numbers.pop(0)
        bucket = self._buckets.pop(number)
        self._unsized.discard(number)
        self.size_bytes -= bucket.size_bytes
        after = (number + 1) * self._bucket_ms
        end = (after,)
        for known in bucket.lists:
            # The bucket contains the oldest entries of a list, and the list once per entry.
            if not known or known[0] >= end:
                continue
            stored = known[0][1]
            if len(known) < _BISECT_MIN_ENTRIES:
                # This only accesses the entry, which must be freed anyway.
                del known[0]
            else:
                del known[: bisect_left(known, end)]
            if not known:
                del self.by_key[WINDOWS.key_of(stored)]
        return after

    def clear(self) -> None:
        self.by_key.clear()
        self._buckets.clear()
        self._numbers.clear()
        self._unsized.clear()
        self._append_from = UNKNOWN
        self.size_bytes = 0

    def _bucket(self, number: int) -> _Bucket:
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = _Bucket()
            insort(self._numbers, number)
        return bucket


def entries_between(entries: list[Entry], first: int, last: int) -> list[Entry]:
    """Return the entries from time `first` to `last` as a new list.

    `entries` must be in ascending order.
    """
    low = 0 if first <= entries[0][0] else bisect_left(entries, (first,))
    if last >= entries[-1][0]:
        # Usually there are no later entries.
        return entries[low:]
    return entries[low : bisect_left(entries, (last + 1,), low)]


#: The entries of a window store in memory, with lookups by stored key, by key and by time.
RecentTable = TimeTable | DuplicateTable
