"""Window stores that keep several values of one key at one time, as joins of streams need them.

Every value has a stored key of its own, so whole batches are written without looking at what is
there. What has come of a batch can be found before it is written, as if it had been.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, compress, repeat
from operator import add, ge, itemgetter
from typing import Final, Protocol

from millstream.record import UNKNOWN
from millstream.state.storage.bytes_store import ChangelogOffset
from millstream.state.storage.overlay import OverlayStore
from millstream.state.storage.timed_store import CommittableTimedStore
from millstream.state.windows.duplicate_table import DuplicateTable, Entry, within
from millstream.state.windows.memory_windows import Expired, MemoryWindows, memory_bucket_ms
from millstream.state.windows.segmented_windows import SegmentedWindows
from millstream.state.windows.segments import bucket_length_ms, segment_prefix
from millstream.state.windows.window_keys import LAST_NUMBER, WINDOWS, number_of
from millstream.windowed import MAX_TIME_MS

#: What a key has that has nothing: it is older than everything.
_NEVER: Final[list[Entry]] = [(UNKNOWN, b"", b"")]
_LAST: Final = itemgetter(-1)
_TIME: Final = itemgetter(0)


class DuplicateStore(CommittableTimedStore, Protocol):
    """The lowest layer of a window store with duplicates."""

    @property
    def table(self) -> DuplicateTable:
        """What is in memory."""
        ...

    @property
    def reach_ms(self) -> int:
        """How far behind the latest time something can be read."""
        ...

    def has_in_memory(self, first: int) -> bool:
        """Whether all that can be read from a time on is in memory, now and later on."""
        ...

    def keep(self, arrivals: Arrivals) -> None:
        """Write what has come."""
        ...


class Arrivals:
    """Records on their way into a store with duplicates, in the order in which they come.

    All can be found once they are there, but who looks says how many of them have come already
    (`find_many`): to look at what is found, which is little, is cheaper than to take turns.

    Args:
        store: where they go.
        keys: their serialized keys.
        times: their times.
        stored: their stored keys.
        entries: what is to be written of each; None of one without a value.
    """

    __slots__ = (
        "_first_number",
        "_latest",
        "_put",
        "_reach_ms",
        "_table",
        "entries",
        "keys",
        "stored",
        "times",
    )

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
            # Follows Kafka Streams: in memory, nulls are put, too, and move the time on.
            columns = zip(times, entries, strict=True)
            self._put = [UNKNOWN if entry is None else time for time, entry in columns]
        # The latest time there is when so many have come.
        self._latest = list(accumulate(self._put, max, initial=store.observed_time))
        self._reach_ms = store.reach_ms
        self._first_number = number_of(stored[0]) if stored else 0
        self._table = store.table
        if all(entries):
            self._table.note_many(keys, filter(None, entries))
        else:
            there = compress(keys, entries)
            self._table.note_many(there, filter(None, entries))

    @property
    def latest(self) -> int:
        """The latest time when all have come."""
        return self._latest[-1]

    def find_many(
        self,
        keys: Sequence[bytes],
        times: Sequence[int],
        before_ms: int,
        after_ms: int,
        come: Sequence[int],
    ) -> dict[int, list[Entry]]:
        """By their positions those that find something, and what they find: 1 us each.

        Args:
            keys: the serialized keys to look for.
            times: when.
            before_ms: how much earlier.
            after_ms: how much later.
            come: how many of these records have come by then.
        """
        # Columns, as what is waited for is memory: more of it at a time so.
        lists = list(map(self._table.by_key.get, keys, repeat(_NEVER)))
        newest = list(map(_TIME, list(map(_LAST, lists))))
        firsts = [time - before_ms for time in times]
        # Mostly all that there is is too old: it is kept for records that come late.
        candidates = compress(range(len(lists)), map(ge, newest, firsts))
        # What has expired or comes later is sorted out below.
        earliest = max(0, self._latest[0] - self._reach_ms)
        certain = min(self.times, default=MAX_TIME_MS)
        doubtful = self._latest[-1] - self._reach_ms
        found: dict[int, list[Entry]] = {}
        for position in candidates:
            # Follows Kafka Streams: what ends before the epoch ends there.
            last = max(0, times[position] + after_ms)
            entries = within(lists[position], max(firsts[position], earliest), last)
            if entries and (entries[-1][0] >= certain or entries[0][0] < doubtful):
                entries = self._come(entries, come[position])
            if entries:
                found[position] = entries
        return found

    def _come(self, entries: list[Entry], count: int) -> list[Entry]:
        """What of some entries is there, and has not expired, when so many have come."""
        size, first, earliest = len(self.keys), self._first_number, self._latest[count]
        earliest -= self._reach_ms
        return [
            entry
            for entry in entries
            if entry[0] >= earliest
            and not count <= (number_of(entry[1]) - first & LAST_NUMBER) < size
        ]

    def put_times(self) -> list[tuple[int, int]]:
        """The time of each that is put, and the latest one then."""
        times = zip(self._put, self._latest[1:], strict=True)
        return [(time, latest) for time, latest in times if time != UNKNOWN]

    def take_back(self, first_live: int) -> list[Entry]:
        """What is to be written: the rest, of before a time, is not to be found any more."""
        entries = [entry for entry in self.entries if entry is not None]
        if min(self.times) >= first_live:
            return entries
        for key, entry in zip(self.keys, self.entries, strict=True):
            if entry is not None and entry[0] < first_live:
                self._table.unnote(key, entry)
        return [entry for entry in entries if entry[0] >= first_live]


class MemoryDuplicates(MemoryWindows):
    """A window store with duplicates in memory.

    Args:
        retention_ms: how far times may lie behind the latest one.
        expired: called for each put that comes too late.
    """

    def __init__(self, retention_ms: int, expired: Expired) -> None:
        self.table = DuplicateTable(memory_bucket_ms(retention_ms))
        super().__init__(WINDOWS, retention_ms, expired, self.table)
        self.reach_ms = retention_ms - 1

    def has_in_memory(self, first: int) -> bool:
        """Everything is."""
        return True

    def keep(self, arrivals: Arrivals) -> None:
        """Write what has come."""
        self.observed_time = arrivals.latest
        first_live = self.readable_from
        if min(arrivals.times) < first_live:
            for time, latest in arrivals.put_times():
                if time < latest - self.reach_ms:
                    self._expired()
        entries = arrivals.take_back(first_live)
        if entries:
            _, stored, values = zip(*entries, strict=True)
            self.table.weigh(_total(stored, values), len(entries))
        self.table.forget_before(first_live)

    def restore(self, items: Mapping[bytes, bytes | None], offset: ChangelogOffset) -> None:
        """Apply changelog records. What comes too late is left out, and not counted."""
        self.last_number = _highest_number(items, self.last_number)
        super().restore(items, offset)


class SegmentedDuplicates(SegmentedWindows):
    """A window store with duplicates above RocksDB.

    Args:
        base: where everything is.
        retention_ms: how far times may lie behind the latest one.
        recent_bytes: what recent entries may take in memory.
        keeps_edge: whether a record that is exactly `retention_ms` old is found.
        expired: called for each put that comes too late.
    """

    def __init__(
        self,
        base: OverlayStore,
        *,
        retention_ms: int,
        recent_bytes: int,
        keeps_edge: bool = False,
        expired: Expired,
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
        if keeps_edge:
            self._reach_ms = retention_ms

    @property
    def reach_ms(self) -> int:
        """How far behind the latest time something can be read."""
        return self._reach_ms

    def has_in_memory(self, first: int) -> bool:
        """Whether all that can be read from a time on is in memory, now and later on."""
        return max(first, self.observed_time - self._reach_ms, 0) >= self.complete_from

    def keep(self, arrivals: Arrivals) -> None:
        """Write what has come: 0.7 us each."""
        segment_ms = self._segment_ms
        if arrivals.latest > self.observed_time:
            # First of all, as a commit of what is written must know of it.
            self._advance(arrivals.latest)
        first_live = self._first_segment * segment_ms
        if min(arrivals.times) < first_live:
            for time, latest in arrivals.put_times():
                if time // segment_ms < self._segment_of(latest - self._retention_ms):
                    self._expired()
        entries = arrivals.take_back(first_live)
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
        self.table.weigh(_total(stored, values), len(entries))
        while self.table.size_bytes > self._recent_bytes:
            self.complete_from = max(self.complete_from, self.table.forget_oldest())

    def restore(self, items: Mapping[bytes, bytes | None], offset: ChangelogOffset) -> None:
        """Apply changelog records. What comes too late is left out, and not counted."""
        self.last_number = _highest_number(items, self.last_number)
        # A null was logged, but not put: it did not move the time on, and deletes nothing.
        super().restore({key: value for key, value in items.items() if value is not None}, offset)


def _total(stored: Iterable[bytes], values: Iterable[bytes]) -> int:
    return sum(map(len, stored)) + sum(map(len, values))


def _highest_number(stored_keys: Mapping[bytes, object], so_far: int) -> int:
    """The highest number that tells duplicates apart among the stored keys of windows."""
    return max(so_far, *map(number_of, stored_keys), 0)
