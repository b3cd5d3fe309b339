"""The buffer of `suppress`: the latest change of each key, ordered by time.

Kafka Streams' `InMemoryTimeOrderedKeyValueChangeBuffer`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

from millstream.errors import StreamsError
from millstream.record import Headers, TopicPartition
from millstream.serdes import Serde
from millstream.state.buffers.buffer_value import BufferedContext, BufferValue
from millstream.state.changelogs.store_changelog import StoreChangelog
from millstream.state.storage.java_hash_order import JavaHashSet

#: The `min_timestamp` of an empty buffer.
NEVER: Final = (1 << 63) - 1

_TIME: Final = struct.Struct(">q")
#: The format version in the header `v` of each changelog record.
_VERSION_HEADERS: Final[Headers] = (("v", b"\x03"),)


class BufferedChange(NamedTuple):
    """A table change removed from the buffer.

    Args:
        new_value: the new value; None for a deletion.
        old_value: the value downstream when the key was first buffered, which the change replaces.
    """

    key: Any
    new_value: Any
    old_value: Any
    context: BufferedContext


class _Entry:
    """The buffered change of one key."""

    __slots__ = ("gone", "key", "size", "time", "value")

    def __init__(self, time: int, key: bytes, value: BufferValue) -> None:
        self.time = time
        self.key = key
        self.value = value
        self.size = 0
        self.gone = False

    def __lt__(self, other: _Entry) -> bool:
        # Called only if a key was removed and added again with the same time.
        return self.gone


class TimeOrderedBuffer:
    """Buffers table changes until they are evicted, oldest first.

    A key keeps the time of its first buffered change; later changes replace the value and its
    context. The buffer is in memory, and is restored from the changelog. The changed keys are
    logged when a commit begins (`log_changes`).
    """

    persistent = False

    def __init__(
        self,
        name: str,
        *,
        topic: str,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        changelog: StoreChangelog,
    ) -> None:
        self.name = name
        #: The size of the buffered records, as Kafka Streams counts it.
        self.size_bytes = 0
        self._topic = topic
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._changelog = changelog
        self._entries: dict[bytes, _Entry] = {}
        self._heap: list[tuple[int, bytes, _Entry]] = []
        self._dirty = JavaHashSet()

    @property
    def num_records(self) -> int:
        return len(self._entries)

    @property
    def min_timestamp(self) -> int:
        """The time of the oldest change; `NEVER` if the buffer is empty."""
        first = self._first()
        return NEVER if first is None else first.time

    def put(
        self,
        time: int,
        key: Any,
        new_value: Any,
        old_value: Any,
        *,
        timestamp: int,
        place: TopicPartition | None,
        offset: int,
        headers: Headers = (),
    ) -> None:
        """Buffer a change.

        Args:
            time: determines the order, unless the key is already in the buffer.
            old_value: the replaced value; None if there is none or it is unknown.
            place: the input partition; None in a punctuator.

        Raises:
            SerializationError: a serde rejected the key or a value. Nothing was buffered.
        """
        key_bytes = self.encode_key(key)
        encode, topic = self._value_serde.serialize, self._topic
        old = encode(topic, old_value)
        new = encode(topic, new_value)
        buffered = self._entries.get(key_bytes)
        prior = old if buffered is None else buffered.value.prior
        context = BufferedContext(timestamp, offset, place, headers)
        self._put(time, key_bytes, BufferValue(prior, old, new, context))
        if self._changelog.enabled:
            self._dirty.add(key_bytes)

    def evict_while(self, predicate: Callable[[], bool]) -> Generator[BufferedChange, None, None]:
        """Remove and yield changes, oldest first (by time, then by serialized key).

        A change is removed when the next one is requested, so it is still in the buffer when the
        caller handles it, and stays there if the caller raises.

        Args:
            predicate: called before each change; False stops the iteration.

        Raises:
            SerializationError: a serde rejected buffered bytes.
        """
        while (entry := self._first()) is not None and predicate():
            key = self._key_serde.deserialize(self._topic, entry.key)
            value = entry.value
            old = self._decode(self.old_value_of(value))
            yield BufferedChange(key, self._decode(value.new), old, value.context)
            if not entry.gone:
                self._remove(entry)
                if self._changelog.enabled:
                    self._dirty.add(entry.key)

    @staticmethod
    def old_value_of(value: BufferValue) -> bytes | None:
        """Return the value that a change replaces downstream.

        Kafka Streams uses the value that the latest change replaced in the table. This class does
        not, because a value that was replaced in the buffer was never sent downstream, but a
        grouped table would subtract it.
        """
        return value.prior

    def prior_value(self, key: Any) -> tuple[bool, Any]:
        """Return whether a key is buffered, and its prior value (see `BufferValue`)."""
        entry = self._entries.get(self.encode_key(key))
        return (False, None) if entry is None else (True, self._decode(entry.value.prior))

    def encode_key(self, key: Any) -> bytes:
        """Serialize a key.

        Raises:
            StreamsError: the key is None.
        """
        key_bytes = self._key_serde.serialize(self._topic, key)
        if key_bytes is None:
            raise StreamsError(
                f"Store {self.name} needs a key, but got None. Filter out records without a key."
            )
        return key_bytes

    def log_changes(self) -> None:
        """Log the current state of each key that changed since the last call.

        Call this when a commit begins. As in Kafka Streams, the records have no explicit timestamp.
        """
        if not self._dirty:
            return
        keys = self._dirty.in_order()
        values: list[bytes | None] = []
        headers: list[Headers] = []
        for key in keys:
            entry = self._entries.get(key)
            values.append(None if entry is None else entry.value.encode() + _TIME.pack(entry.time))
            headers.append(() if entry is None else _VERSION_HEADERS)
        self._changelog.log_many(keys, values, None, headers)
        self._dirty.clear()

    def restore(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Apply a changelog record.

        Raises:
            StreamsError: the record has an unknown format.
        """
        # A key may have been removed and added again with another time between two commits.
        entry = self._entries.get(key)
        if entry is not None:
            self._remove(entry)
        if value is not None:
            buffered, rest = BufferValue.decode(value)
            self._put(_TIME.unpack(rest)[0], key, buffered)

    def close(self) -> None:
        """Drop all changes."""
        self._entries.clear()
        self._heap.clear()
        self._dirty.clear()
        self.size_bytes = 0

    def _put(self, time: int, key: bytes, value: BufferValue) -> None:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(time, key, value)
            heappush(self._heap, (time, key, entry))
        else:
            entry.value = value
        size = 8 + len(key) + value.size_bytes()
        self.size_bytes += size - entry.size
        entry.size = size

    def _first(self) -> _Entry | None:
        heap = self._heap
        while heap and heap[0][2].gone:
            heappop(heap)
        return heap[0][2] if heap else None

    def _remove(self, entry: _Entry) -> None:
        del self._entries[entry.key]
        entry.gone = True
        self.size_bytes -= entry.size

    def _decode(self, data: bytes | None) -> Any:
        return None if data is None else self._value_serde.deserialize(self._topic, data)
