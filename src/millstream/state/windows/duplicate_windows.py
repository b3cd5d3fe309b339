"""Window stores with duplicates, as joins require.

Duplicates are several values with the same key and time. Each value has its own stored key, so
whole batches are written without reading existing entries. The entries of a batch can be found
before they are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, compress, repeat
from operator import add, ge, itemgetter
from typing import Final, TypeAlias

from millstream.record import UNKNOWN
from millstream.state.storage.bytes_store import ChangelogOffset
from millstream.state.storage.overlay import OverlayStore
from millstream.state.windows.duplicate_table import DuplicateTable, Entry, entries_between
from millstream.state.windows.memory_windows import ExpiredCallback, MemoryWindows, memory_bucket_ms
from millstream.state.windows.segmented_windows import (
    SegmentedWindows,
    bucket_length_ms,
    segment_prefix,
)
from millstream.state.windows.window_keys import MAX_SEQNUM, WINDOWS, seqnum_of
from millstream.windowed import MAX_TIME_MS

#: A placeholder for the entries of a key that has none; older than all real entries.
_NO_ENTRIES: Final[list[Entry]] = [(UNKNOWN, b"", b"")]
_LAST: Final = itemgetter(-1)
_TIME: Final = itemgetter(0)


class DuplicateBatch:
    """Records that are about to be stored as duplicates, in order.

    All entries are added to the table immediately. `find_visible` gets the number of records stored
    so far and filters out later ones, as checking the few entries found is cheaper than alternating
    between adding and searching.

    Args:
        entries: the entries to write; None for a record without a value.
    """

    def __init__(
        self,
        store: DuplicateStore,
        keys: Sequence[bytes],
        times: Sequence[int],
        stored: Sequence[bytes],
        entries: Sequence[Entry | None],
    ) -> None:
        self.keys = keys
        self.times = times
        self.stored = stored
        self.entries = entries
        self._put: Sequence[int] = times
        if store.persistent and not all(entries):
            # Follows Kafka Streams: in memory, None values are put as well and advance the time.
            columns = zip(times, entries, strict=True)
            self._put = [UNKNOWN if entry is None else time for time, entry in columns]
        # Element `n` is the latest time after `n` records were stored.
        self._latest = list(accumulate(self._put, max, initial=store.observed_time))
        self._readable_ms = store.readable_ms
        self._first_seqnum = seqnum_of(stored[0]) if stored else 0
        self._table = store.table
        if all(entries):
            self._table.add_many(keys, filter(None, entries))
        else:
            keys_to_add = compress(keys, entries)
            self._table.add_many(keys_to_add, filter(None, entries))

    @property
    def latest(self) -> int:
        """The latest time after all records are stored."""
        return self._latest[-1]

    def find_visible(
        self,
        keys: Sequence[bytes],
        times: Sequence[int],
        before_ms: int,
        after_ms: int,
        stored_counts: Sequence[int],
    ) -> dict[int, list[Entry]]:
        """Return the entries that were found, by position in `keys`. Takes 1 us each.

        Each search includes only as many records of this batch as its element of `stored_counts`.
        """
        # Search by column, so that the memory latency of the lookups overlaps.
        lists = list(map(self._table.by_key.get, keys, repeat(_NO_ENTRIES)))
        newest = list(map(_TIME, list(map(_LAST, lists))))
        firsts = [time - before_ms for time in times]
        # Usually all entries are too old, as they are kept for late records.
        candidates = compress(range(len(lists)), map(ge, newest, firsts))
        # Expired entries and later records are filtered out below.
        earliest = max(0, self._latest[0] - self._readable_ms)
        certain = min(self.times, default=MAX_TIME_MS)
        doubtful = self._latest[-1] - self._readable_ms
        found: dict[int, list[Entry]] = {}
        for position in candidates:
            # Follows Kafka Streams: a range that ends before the epoch ends at the epoch.
            last = max(0, times[position] + after_ms)
            entries = entries_between(lists[position], max(firsts[position], earliest), last)
            if entries and (entries[-1][0] >= certain or entries[0][0] < doubtful):
                entries = self._visible(entries, stored_counts[position])
            if entries:
                found[position] = entries
        return found

    def _visible(self, entries: list[Entry], count: int) -> list[Entry]:
        """Return the entries that are visible and unexpired after `count` stored records."""
        size, first, earliest = len(self.keys), self._first_seqnum, self._latest[count]
        earliest -= self._readable_ms
        return [
            entry
            for entry in entries
            if entry[0] >= earliest
            and not count <= (seqnum_of(entry[1]) - first & MAX_SEQNUM) < size
        ]

    def put_times(self) -> list[tuple[int, int]]:
        """Return the time of each put record, and the latest time after it was put."""
        times = zip(self._put, self._latest[1:], strict=True)
        return [(time, latest) for time, latest in times if time != UNKNOWN]

    def drop_expired(self, first_live: int) -> list[Entry]:
        """Remove expired entries from the table; return the entries to write."""
        entries = [entry for entry in self.entries if entry is not None]
        if min(self.times) >= first_live:
            return entries
        for key, entry in zip(self.keys, self.entries, strict=True):
            if entry is not None and entry[0] < first_live:
                self._table.remove_entry(key, entry)
        return [entry for entry in entries if entry[0] >= first_live]


class MemoryDuplicates(MemoryWindows):
    """A window store with duplicates in memory."""

    def __init__(self, retention_ms: int, expired: ExpiredCallback) -> None:
        self.table = DuplicateTable(memory_bucket_ms(retention_ms))
        super().__init__(WINDOWS, retention_ms, expired, self.table)
        self.readable_ms = retention_ms - 1

    def has_in_memory(self, first: int) -> bool:
        """Return True: all entries are in memory."""
        return True

    def write_batch(self, batch: DuplicateBatch) -> None:
        self.observed_time = batch.latest
        first_live = self.readable_from
        if min(batch.times) < first_live:
            for time, latest in batch.put_times():
                if time < latest - self.readable_ms:
                    self._expired()
        entries = batch.drop_expired(first_live)
        if entries:
            _, stored, values = zip(*entries, strict=True)
            self.table.add_sizes(_total_bytes(stored, values), len(entries))
        self.table.drop_before(first_live)

    def restore(self, items: Mapping[bytes, bytes | None], offset: ChangelogOffset) -> None:
        self.last_seqnum = _highest_seqnum(items, self.last_seqnum)
        super().restore(items, offset)


class SegmentedDuplicates(SegmentedWindows):
    """A window store with duplicates above RocksDB.

    Args:
        retention_inclusive: whether a record that is exactly `retention_ms` old is found.
    """

    def __init__(
        self,
        base: OverlayStore,
        *,
        retention_ms: int,
        recent_bytes: int,
        retention_inclusive: bool = False,
        expired: ExpiredCallback,
    ) -> None:
        self.table = DuplicateTable(bucket_length_ms(retention_ms))
        super().__init__(
            WINDOWS,
            base,
            retention_ms=retention_ms,
            recent_bytes=recent_bytes,
            time_ordered=False,
            recent=self.table,
            expired=expired,
        )
        if retention_inclusive:
            self.readable_ms = retention_ms

    def has_in_memory(self, first: int) -> bool:
        """Return whether all data that is readable from a time on is in memory."""
        return max(first, self.observed_time - self.readable_ms, 0) >= self.complete_from

    def write_batch(self, batch: DuplicateBatch) -> None:
        """Write a batch. Takes 0.7 us per record."""
        segment_ms = self._segment_ms
        if batch.latest > self.observed_time:
            # Advance the time first, as a commit of these writes must include the new time.
            self._advance(batch.latest)
        first_live = self._first_segment * segment_ms
        if min(batch.times) < first_live:
            for time, latest in batch.put_times():
                if time // segment_ms < self._segment_of(latest - self._retention_ms):
                    self._expired()
        entries = batch.drop_expired(first_live)
        if not entries:
            return
        times, stored, values = zip(*entries, strict=True)
        segment = self._segment_of(min(times))
        if segment == self._segment_of(max(times)):
            prefix = segment_prefix(segment)
            places = [prefix + key for key in stored]
        else:
            segments = [time // segment_ms for time in times]
            places = list(map(add, map(segment_prefix, segments), stored))
        self._base.put_many(places, values, ())
        self.table.add_sizes(_total_bytes(stored, values), len(entries))
        while self.table.size_bytes > self._recent_bytes:
            self.complete_from = max(self.complete_from, self.table.drop_oldest())

    def restore(self, items: Mapping[bytes, bytes | None], offset: ChangelogOffset) -> None:
        self.last_seqnum = _highest_seqnum(items, self.last_seqnum)
        # None values were logged but not put: they do not advance the time and delete nothing.
        super().restore({key: value for key, value in items.items() if value is not None}, offset)


#: The lowest layer of a window store with duplicates.
DuplicateStore: TypeAlias = MemoryDuplicates | SegmentedDuplicates


def _total_bytes(stored: Iterable[bytes], values: Iterable[bytes]) -> int:
    return sum(map(len, stored)) + sum(map(len, values))


def _highest_seqnum(stored_keys: Mapping[bytes, object], so_far: int) -> int:
    """Return the highest sequence number among the stored keys of windows."""
    return max(so_far, *map(seqnum_of, stored_keys), 0)
