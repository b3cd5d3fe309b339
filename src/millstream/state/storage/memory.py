"""An in-memory bytes store (Kafka Streams' `InMemoryKeyValueStore`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.record import TopicPartition
from millstream.state.storage.bytes_store import ByteItems, ChangelogOffset
from millstream.state.storage.sorted_keys import SortedKeys


class MemoryStore:
    """A dict, with its keys in order when somebody scans.

    Nothing survives the process, so a new one is restored from the beginning of its changelog. The
    offset reached is kept all the same: a standby whose task becomes active goes on from there.

    Scans follow Kafka Streams: over the keys of the moment of the call, with the values of the
    moment each is reached, keys deleted meanwhile being left out.
    """

    persistent = False
    #: There is nothing to commit: writes are as durable as they will ever be.
    uncommitted_bytes = 0

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._order = SortedKeys(self._values)
        self._offsets: dict[TopicPartition, int] = {}
        # Hot: a dict's own method is the whole of a read.
        self.get = self._values.get

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The value of each key, in their order."""
        return list(map(self._values.get, keys))

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Write one key; None deletes."""
        if value is not None:
            self._values[key] = value
        elif self._values.pop(key, None) is not None:
            self._order.discard(key)

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        """Write many keys, in order."""
        self._apply(dict(zip(keys, values, strict=True)))

    def scan(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> ByteItems:
        """The pairs whose key is in `[start, end)`."""
        keys = self._order.between(start, end)
        if reverse:
            keys.reverse()
        return self._present(keys)

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
        self._apply(items)
        self.commit(offset)

    def commit_restored(self, offset: ChangelogOffset) -> None:
        """Keep the offset of the last changelog record that was applied."""
        self.commit(offset)

    def expect_many(self, expected: bool) -> None:
        """Nothing to prepare."""

    def committed_offset(self, partition: TopicPartition) -> int | None:
        """The offset of the last changelog record reflected; None in a new store."""
        return self._offsets.get(partition)

    def close(self) -> None:
        """Let go of everything."""
        self._values.clear()
        self._order.clear()
        self._offsets.clear()

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
