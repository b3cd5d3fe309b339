"""Windows and sessions in memory (`InMemoryWindowStore`, `InMemorySessionStore`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from millstream.record import UNKNOWN
from millstream.state.storage.bytes_store import ByteItems, ChangelogOffset
from millstream.state.storage.memory import MemoryCommits
from millstream.state.storage.timed_store import StoredPairs, from_stored_key
from millstream.state.windows.duplicate_table import RecentTable
from millstream.state.windows.time_table import TimeTable
from millstream.state.windows.window_keys import (
    SESSIONS,
    WINDOWS,
    KeyLayout,
    session_of,
    with_keys_between,
)
from millstream.windowed import MAX_TIME_MS

#: The number of time buckets within the retention.
_BUCKETS: Final = 64


def memory_bucket_ms(retention_ms: int) -> int:
    """Return the length of the buckets in which old entries are dropped."""
    return retention_ms // _BUCKETS


#: Called when a put is too late.
ExpiredCallback = Callable[[], None]


class MemoryWindows(MemoryCommits):
    """A window or session store in memory.

    Entries expire as soon as the retention has passed.
    """

    def __init__(
        self,
        layout: KeyLayout,
        retention_ms: int,
        expired: ExpiredCallback,
        table: RecentTable | None = None,
    ) -> None:
        super().__init__()
        self.observed_time = UNKNOWN
        #: The last sequence number of a duplicate.
        self.last_seqnum = 0
        self._layout = layout
        self._retention_ms = retention_ms
        self._expired = expired
        bucket_ms = memory_bucket_ms(retention_ms)
        self._table = TimeTable(layout, bucket_ms) if table is None else table

    @property
    def readable_from(self) -> int:
        """The earliest time that has not expired."""
        return self.observed_time - self._retention_ms + 1

    def get(self, key: bytes) -> bytes | None:
        value = self._table.get(key)
        if value is None or self._layout.time_of(key) < self.readable_from:
            return None
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self.get, keys))

    def read_key(self, key: bytes, first: int, last: int) -> StoredPairs:
        pairs = self._table.of_key(key, max(first, self.readable_from), last)
        if self._layout is SESSIONS and len(pairs) > 1:
            sort_key_of = self.sort_key_of
            pairs.sort(key=lambda pair: sort_key_of(pair[0]))
        return pairs

    def read_keys(
        self,
        lowest: bytes | None,
        highest: bytes | None,
        first: int,
        last: int,
        *,
        reverse: bool = False,
        begin: bytes | None = None,
    ) -> ByteItems:
        """Iterate over a snapshot of a key range in a time range, by time and key."""
        first = max(first, self.readable_from)
        if begin is not None:
            time = self._layout.time_of(begin)
            first, last = (first, min(last, time)) if reverse else (max(first, time), last)
        pairs = with_keys_between(self._table.between(first, last), lowest, highest, self._layout)
        if begin is not None:
            pairs = from_stored_key(pairs, begin, self.sort_key_of, reverse)
        sort_key_of = self.sort_key_of
        pairs.sort(key=lambda pair: sort_key_of(pair[0]), reverse=reverse)
        return (pair for pair in pairs)

    def read_including_expired(self, first: int, last: int) -> ByteItems:
        """Iterate over the entries of all keys in a time range.

        Expired entries no longer exist.
        """
        return self.read_keys(None, None, first, last)

    def sort_key_of(self, stored: bytes, every_key: bool = False) -> tuple[int, bytes, bytes]:
        size, time = self._layout.suffix_bytes, self._layout.time_of(stored)
        if self._layout is WINDOWS:
            return time, stored[:-size], stored[8 - size :]
        # Follows Kafka Streams: of a key's sessions with the same end, the one with the latest
        # start comes first.
        start, _ = session_of(stored)
        return time, stored[:-size], (MAX_TIME_MS - start).to_bytes(8, "big")

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        time = self._observe(key)
        if time < self.readable_from:
            self._expired()
        elif value is None:
            self._table.discard(key, time)
        else:
            self._table.put(key, value, time)

    def put_at(self, key: bytes, value: bytes | None, time: int) -> None:
        self.put(key, value, UNKNOWN)

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        for key, value in zip(keys, values, strict=True):
            self.put(key, value, UNKNOWN)

    def remove(self, key: bytes, timestamp: int) -> None:
        """Delete one stored key without side effects, even if it has expired."""
        self._table.discard(key, self._layout.time_of(key))

    def approximate_num_entries(self) -> int:
        """Return the number of stored keys, some of which may have expired."""
        return len(self._table)

    def restore(self, items: Mapping[bytes, bytes | None], offset: ChangelogOffset) -> None:
        """Apply changelog records. Expired records are skipped and not counted."""
        table = self._table
        for key, value in items.items():
            time = self._observe(key)
            if value is None:
                table.discard(key, time)
            elif time >= self.readable_from:
                table.put(key, value, time)
        self.commit(offset)

    def close(self) -> None:
        super().close()
        self._table.clear()

    def _observe(self, stored: bytes) -> int:
        time = self._layout.time_of(stored)
        if time > self.observed_time:
            self.observed_time = time
            self._table.drop_before(self.readable_from)
        return time
