"""A bounded in-memory bytes store that forgets what was not used for longest.

Kafka Streams' `MemoryNavigableLRUCache`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from millstream.record import TopicPartition
from millstream.state.storage.bytes_store import ByteItems, ChangelogOffset


class LRUStore:
    """Holds at most `max_entries` keys. Reading or writing a key is a use of it; scanning is not.

    Args:
        max_entries: how many keys it holds.
    """

    persistent = False
    #: There is nothing to commit: writes are as durable as they will ever be.
    uncommitted_bytes = 0

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._values: OrderedDict[bytes, bytes] = OrderedDict()
        self._offsets: dict[TopicPartition, int] = {}

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, which is a use of it."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The value of each key, in their order."""
        return list(map(self.get, keys))

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Write one key; None deletes."""
        self.put_evicting(key, value)

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        """Write many keys, in order."""
        for key, value in zip(keys, values, strict=True):
            self.put_evicting(key, value)

    def put_evicting(self, key: bytes, value: bytes | None) -> bytes | None:
        """Write one key; the key that had to go for it, if one had to."""
        values = self._values
        if value is None:
            values.pop(key, None)
            return None
        values[key] = value
        values.move_to_end(key)
        if len(values) <= self._max_entries:
            return None
        return values.popitem(last=False)[0]

    def scan(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> ByteItems:
        """The pairs whose key is in `[start, end)`, as they are now."""
        items = [
            item
            for item in self._values.items()
            if (start is None or item[0] >= start) and (end is None or item[0] < end)
        ]
        items.sort(reverse=reverse)
        return _items(items)

    def approximate_num_entries(self) -> int:
        """How many keys there are, exactly."""
        return len(self._values)

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
        """Apply changelog records."""
        for key, value in items.items():
            self.put_evicting(key, value)
        self.commit(offset)

    def expect_many(self, expected: bool) -> None:
        """Nothing to prepare."""

    def committed_offset(self, partition: TopicPartition) -> int | None:
        """The offset of the last changelog record reflected; None in a new store."""
        return self._offsets.get(partition)

    def close(self) -> None:
        """Let go of everything."""
        self._values.clear()
        self._offsets.clear()


def _items(items: list[tuple[bytes, bytes]]) -> ByteItems:
    yield from items
