"""Windows and sessions that are kept in memory (`InMemoryWindowStore`, `InMemorySessionStore`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from millstream.record import UNKNOWN, TopicPartition
from millstream.state.storage.bytes_store import ByteItems, ChangelogOffset
from millstream.state.storage.timed_store import StoredPairs, from_place
from millstream.state.windows.recent_table import RecentTable
from millstream.state.windows.time_table import TimeTable
from millstream.state.windows.window_keys import SESSIONS, WINDOWS, KeyLayout, session_of
from millstream.windowed import MAX_TIME_MS

#: Stretches of time within the retention.
_BUCKETS: Final = 64


def memory_bucket_ms(retention_ms: int) -> int:
    """How long the stretches of time are in which what is old is forgotten."""
    return retention_ms // _BUCKETS


#: Told when something comes too late to be kept.
Expired = Callable[[], None]


class MemoryWindows:
    """A window or session store in memory. What is older than the retention is gone at once.

    Nothing survives the process, so a new one is restored from the beginning of its changelog. The
    offset reached is kept all the same: a standby whose task becomes active goes on from there.

    Args:
        layout: `WINDOWS` or `SESSIONS`.
        retention_ms: how far times may lie behind the latest one.
        expired: called for each put that comes too late.
        table: keeps everything; None for a `TimeTable`.
    """

    persistent = False
    #: There is nothing to commit: writes are as durable as they will ever be.
    uncommitted_bytes = 0

    def __init__(
        self,
        layout: KeyLayout,
        retention_ms: int,
        expired: Expired,
        table: RecentTable | None = None,
    ) -> None:
        self.observed_time = UNKNOWN
        #: The number given to the last duplicate.
        self.last_number = 0
        self._layout = layout
        self._retention_ms = retention_ms
        self._expired = expired
        bucket_ms = memory_bucket_ms(retention_ms)
        self._table = TimeTable(layout, bucket_ms) if table is None else table
        self._offsets: dict[TopicPartition, int] = {}

    @property
    def readable_from(self) -> int:
        """The earliest time that has not expired."""
        return self.observed_time - self._retention_ms + 1

    def get(self, key: bytes) -> bytes | None:
        """The value of a stored key, None if there is none."""
        value = self._table.get(key)
        if value is None or self._layout.time_of(key) < self.readable_from:
            return None
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The value of each stored key, in their order."""
        return list(map(self.get, keys))

    def read_key(self, key: bytes, first: int, last: int) -> StoredPairs:
        """What a key has within some time, in the store's order."""
        pairs = self._table.of_key(key, max(first, self.readable_from), last)
        if self._layout is SESSIONS and len(pairs) > 1:
            place_of = self.place_of
            pairs.sort(key=lambda pair: place_of(pair[0]))
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
        """What all keys between two have within some time, by time and key, as it is now."""
        key_of = self._layout.key_of
        first = max(first, self.readable_from)
        if begin is not None:
            time = self._layout.time_of(begin)
            first, last = (first, min(last, time)) if reverse else (max(first, time), last)
        pairs = self._table.between(first, last)
        if lowest is not None:
            pairs = [pair for pair in pairs if key_of(pair[0]) >= lowest]
        if highest is not None:
            pairs = [pair for pair in pairs if key_of(pair[0]) <= highest]
        if begin is not None:
            pairs = from_place(pairs, begin, self.place_of, reverse)
        place_of = self.place_of
        pairs.sort(key=lambda pair: place_of(pair[0]), reverse=reverse)
        return (pair for pair in pairs)

    def read_expired_too(self, first: int, last: int) -> ByteItems:
        """What all keys have within some time: nothing has expired that is still here."""
        return self.read_keys(None, None, first, last)

    def place_of(self, stored: bytes, every_key: bool = False) -> tuple[int, bytes, bytes]:
        """The sort key of a stored key: the same for some keys and for every key."""
        size, time = self._layout.suffix_bytes, self._layout.time_of(stored)
        if self._layout is WINDOWS:
            return time, stored[:-size], stored[8 - size :]
        # Follows Kafka Streams: of the sessions of a key that end together, the last to start
        # comes first.
        start, _ = session_of(stored)
        return time, stored[:-size], (MAX_TIME_MS - start).to_bytes(8, "big")

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Write one stored key, unless it is too old; None deletes."""
        time = self._observe(key)
        if time < self.readable_from:
            self._expired()
        elif value is None:
            self._table.discard(key, time)
        else:
            self._table.put(key, value, time)

    def put_at(self, key: bytes, value: bytes | None, time: int) -> None:
        """The same for a stored key whose time is known."""
        self.put(key, value, UNKNOWN)

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        """Write many stored keys, in order."""
        for key, value in zip(keys, values, strict=True):
            self.put(key, value, UNKNOWN)

    def remove(self, key: bytes, timestamp: int) -> None:
        """Delete one stored key: nothing else happens, however old it is."""
        self._table.discard(key, self._layout.time_of(key))

    def approximate_num_entries(self) -> int:
        """How many stored keys there are, some of which may have expired."""
        return len(self._table)

    def commit_begun(self) -> None:
        """Nothing waits."""

    def commit(self, offset: ChangelogOffset | None) -> None:
        """Remember the offset reached."""
        if offset is not None:
            self._offsets[offset[0]] = offset[1]

    def count_uncommitted(self) -> int:
        """Nothing waits."""
        return 0

    def restore(self, items: Mapping[bytes, bytes | None], offset: ChangelogOffset) -> None:
        """Apply changelog records. What comes too late is left out, and not counted."""
        table = self._table
        for key, value in items.items():
            time = self._observe(key)
            if value is None:
                table.discard(key, time)
            elif time >= self.readable_from:
                table.put(key, value, time)
        self.commit(offset)

    def expect_many(self, expected: bool) -> None:
        """Nothing to prepare."""

    def committed_offset(self, partition: TopicPartition) -> int | None:
        """The offset of the last changelog record reflected; None in a new store."""
        return self._offsets.get(partition)

    def close(self) -> None:
        """Let go of everything."""
        self._table.clear()
        self._offsets.clear()

    def _observe(self, stored: bytes) -> int:
        time = self._layout.time_of(stored)
        if time > self.observed_time:
            self.observed_time = time
            self._table.forget_before(self.readable_from)
        return time
