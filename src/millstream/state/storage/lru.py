"""A bounded in-memory bytes store that evicts the least recently used key.

Kafka Streams' `MemoryNavigableLRUCache`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from millstream.state.storage.bytes_store import ByteItems, ChangelogOffset, iterate
from millstream.state.storage.memory import MemoryCommits


class LRUStore(MemoryCommits):
    """A store of at most `max_entries` keys.

    Reads and writes count as use; scans do not.
    """

    def __init__(self, max_entries: int) -> None:
        super().__init__()
        self._max_entries = max_entries
        self._values: OrderedDict[bytes, bytes] = OrderedDict()

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, and mark it as used."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self.get, keys))

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        self.put_evicting(key, value)

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        for key, value in zip(keys, values, strict=True):
            self.put_evicting(key, value)

    def put_evicting(self, key: bytes, value: bytes | None) -> bytes | None:
        """Write one key; return the key that was evicted, if any."""
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
        items = [
            item
            for item in self._values.items()
            if (start is None or item[0] >= start) and (end is None or item[0] < end)
        ]
        items.sort(reverse=reverse)
        return iterate(items)

    def approximate_num_entries(self) -> int:
        """Return the exact number of keys."""
        return len(self._values)

    def restore(self, items: Mapping[bytes, bytes | None], offset: ChangelogOffset) -> None:
        for key, value in items.items():
            self.put_evicting(key, value)
        self.commit(offset)

    def close(self) -> None:
        super().close()
        self._values.clear()
