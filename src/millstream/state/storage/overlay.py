"""Writes that are not committed yet, above the committed data of a storage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from millstream.errors import IllegalStateError
from millstream.record import TopicPartition
from millstream.state.storage.bytes_store import ByteItems, ChangelogOffset, Storage
from millstream.state.storage.iterators import merged
from millstream.state.storage.sorted_keys import SortedKeys

#: Stands for a key without a waiting write; compared by identity, and made at run time for that.
_UNWRITTEN: Final = bytes(bytearray(b"unwritten"))


class OverlayStore:
    """A storage whose writes wait in memory until they are committed with their changelog offset.

    Reads and scans see the waiting writes. So what is on disk always is the state at some commit,
    and after a crash only the tail of the changelog has to be read, under exactly-once as well
    (what KIP-892 proposes for Kafka Streams).

    Bounded: with more than `limit_bytes` waiting, either the writes move to the storage ahead of
    the commit (`spill_when_full`, enough for at-least-once, where state may be ahead of the
    committed offsets), or `is_full` asks the task to commit; it is looked at after each batch, so
    the bound is exceeded by at most one batch.

    Args:
        storage: where committed data is.
        limit_bytes: bytes of keys and values that may wait.
        spill_when_full: write ahead instead of asking for a commit.
    """

    persistent = True

    def __init__(self, storage: Storage, *, limit_bytes: int, spill_when_full: bool) -> None:
        #: Called before writes move to the storage ahead of a commit, and may add some.
        self.before_spill: Callable[[], None] | None = None
        self._storage = storage
        self._read = storage.get
        self._limit_bytes = limit_bytes
        self._spill_when_full = spill_when_full
        self._writes: dict[bytes, bytes | None] = {}
        self._order = SortedKeys(self._writes)
        # Ranges of committed keys that the next batch deletes.
        self._dropped: list[tuple[bytes, bytes]] = []
        # An overestimate: a key that is written again is counted again. See _is_over_limit.
        self._bytes = 0

    @property
    def uncommitted_bytes(self) -> int:
        """About how many bytes of keys and values wait for a commit."""
        return self._bytes

    @property
    def is_full(self) -> bool:
        """Whether a commit should come before the next batch."""
        return self._is_over_limit()

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, waiting or committed."""
        value = self._writes.get(key, _UNWRITTEN)
        return self._read(key) if value is _UNWRITTEN else value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The value of each key, in their order."""
        writes = self._writes
        if not writes:
            return self._storage.get_many(keys)
        below = [key for key in keys if key not in writes]
        if not below:
            return [writes[key] for key in keys]
        found = iter(self._storage.get_many(below))
        return [writes[key] if key in writes else next(found) for key in keys]

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Write one key; None deletes."""
        self._writes[key] = value
        self._bytes += len(key) + (0 if value is None else len(value))
        if self._bytes > self._limit_bytes and self._spill_when_full and self._is_over_limit():
            self.spill()

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        """Write many keys, in order."""
        self._writes.update(zip(keys, values, strict=True))
        self._bytes += sum(map(len, keys)) + sum(map(len, filter(None, values)))
        if self._bytes > self._limit_bytes and self._spill_when_full and self._is_over_limit():
            self.spill()

    def scan(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> ByteItems:
        """The pairs whose key is in `[start, end)`, as they are now: later writes are not seen."""
        below = self._storage.scan(start, end, reverse=reverse)
        if not self._writes:
            return below
        keys = self._order.between(start, end)
        if reverse:
            keys.reverse()
        writes = self._writes
        return merged([(key, writes[key]) for key in keys], below, reverse=reverse)

    def approximate_num_entries(self) -> int:
        """About how many keys there are: updates which wait count as new keys."""
        deleted = sum(value is None for value in self._writes.values())
        waiting = len(self._writes) - 2 * deleted
        return max(0, self._storage.approximate_num_entries() + waiting)

    def drop(self, start: bytes, end: bytes) -> None:
        """Delete the keys in `[start, end)`, with the next commit or spill.

        Until then, what is committed of them can still be read.
        """
        # 0.03 us a waiting write, 0.09 us one that goes; sorting them first took 0.2 us and 0.8 us.
        # Whoever scans next sorts what is left.
        writes = self._writes
        for key in [key for key in writes if start <= key < end]:
            del writes[key]
        self._order.clear()
        self._dropped.append((start, end))

    def commit(self, offset: ChangelogOffset | None, *, ahead: bool = False) -> None:
        """Write what waits, and the offset, at once."""
        self._storage.write_batch(self._writes, offset, dropped=self._dropped, spilled=ahead)
        self._forget()

    def spill(self) -> None:
        """Write what waits without moving the offset: a crash replays the changelog from there."""
        if self.before_spill is not None:
            self.before_spill()
        self._storage.write_batch(self._writes, None, dropped=self._dropped, spilled=True)
        self._forget()

    def restore(self, items: Mapping[bytes, bytes | None], offset: ChangelogOffset) -> None:
        """Apply changelog records.

        Raises:
            IllegalStateError: writes wait for a commit: the store is in use, not being restored.
        """
        if self._writes:
            raise IllegalStateError(
                f"A store with {len(self._writes)} uncommitted writes cannot be restored from "
                f"{offset[0]}. Restoring ends before processing starts; commit or reopen first."
            )
        self._storage.write_batch(items, offset, dropped=self._dropped)
        self._forget()

    def expect_many(self, expected: bool) -> None:
        """Prepare for many changelog records, or for their end."""
        self._storage.expect_many(expected)

    def committed_offset(self, partition: TopicPartition) -> int | None:
        """The offset of the last changelog record that is reflected in what is committed."""
        return self._storage.committed_offset(partition)

    def close(self) -> None:
        """Close the storage; what waits is dropped and comes back from the changelog."""
        self._forget()
        self._storage.close()

    def _forget(self) -> None:
        self._writes.clear()
        self._order.clear()
        self._dropped.clear()
        self._bytes = 0

    def _is_over_limit(self) -> bool:
        if self._bytes <= self._limit_bytes:
            return False
        # Counting exactly only here keeps a look-up of the replaced value out of each put. Three
        # quarters count as full, or an overlay just below the limit would be counted all the time.
        writes = self._writes
        self._bytes = sum(map(len, writes)) + sum(map(len, filter(None, writes.values())))
        if self._bytes * 4 <= self._limit_bytes * 3:
            return False
        self._bytes = max(self._bytes, self._limit_bytes + 1)
        return True
