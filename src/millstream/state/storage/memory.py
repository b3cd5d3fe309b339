"""An in-memory bytes store (Kafka Streams' `InMemoryKeyValueStore`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.record import TopicPartition
from millstream.state.storage.bytes_store import ByteItems, ChangelogOffset
from millstream.state.storage.sorted_keys import SortedKeys


class MemoryCommits:
    """Implements `Committable` for in-memory stores, which have no pending writes.

    The data does not survive the process: a new store is restored from the beginning of its
    changelog. The changelog offset is tracked nevertheless, so that a standby task that becomes
    active continues from that offset.
    """

    persistent = False
    uncommitted_bytes = 0

    def __init__(self) -> None:
        self._offsets: dict[TopicPartition, int] = {}

    def count_uncommitted(self) -> int:
        return 0

    def on_commit_started(self) -> None:
        """Do nothing."""

    def commit(self, offset: ChangelogOffset | None) -> None:
        if offset is not None:
            self._offsets[offset[0]] = offset[1]

    def set_bulk_loading(self, enabled: bool) -> None:
        """Do nothing."""

    def committed_offset(self, partition: TopicPartition) -> int | None:
        return self._offsets.get(partition)

    def close(self) -> None:
        self._offsets.clear()


class MemoryStore(MemoryCommits):
    """A store in a dict, whose keys are sorted on demand.

    Scans follow Kafka Streams: they iterate over the keys at the time of the call, and read each
    value when its key is reached. Keys deleted in the meantime are left out.
    """

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[bytes, bytes] = {}
        self._order = SortedKeys(self._values)
        # Hot path: the dict's own method.
        self.get = self._values.get

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self._values.get, keys))

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        if value is not None:
            self._values[key] = value
        elif self._values.pop(key, None) is not None:
            self._order.discard(key)

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        self._apply(dict(zip(keys, values, strict=True)))

    def scan(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> ByteItems:
        keys = self._order.between(start, end)
        if reverse:
            keys.reverse()
        return self._present(keys)

    def approximate_num_entries(self) -> int:
        """Return the exact number of keys."""
        return len(self._values)

    def restore(self, items: Mapping[bytes, bytes | None], offset: ChangelogOffset) -> None:
        self._apply(items)
        self.commit(offset)

    def commit_restored(self, offset: ChangelogOffset) -> None:
        self.commit(offset)

    def close(self) -> None:
        super().close()
        self._values.clear()
        self._order.clear()

    def _apply(self, items: Mapping[bytes, bytes | None]) -> None:
        for key, value in items.items():
            if value is not None:
                self._values[key] = value
            elif self._values.pop(key, None) is not None:
                self._order.discard(key)

    def _present(self, keys: list[bytes]) -> ByteItems:
        get = self._values.get
        for key in keys:
            value = get(key)
            if value is not None:
                yield key, value
