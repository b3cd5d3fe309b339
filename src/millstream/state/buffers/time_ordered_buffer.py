"""The buffer of `suppress`: the latest change of each key, in the order of time.

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

#: The time of the first change in an empty buffer.
NEVER: Final = (1 << 63) - 1

_TIME: Final = struct.Struct(">q")
#: The version of the format, in the header `v` of each changelog record.
_VERSION_HEADERS: Final[Headers] = (("v", b"\x03"),)


class BufferedChange(NamedTuple):
    """A change of a table that leaves the buffer, with the record that brought it.

    Args:
        key: the key.
        new_value: the new value; None is a deletion.
        old_value: what was downstream when the key was buffered first, which the change replaces.
        context: timestamp, offset, place and headers of the record of the latest change.
    """

    key: Any
    new_value: Any
    old_value: Any
    context: BufferedContext


class _Entry:
    """A key in the buffer."""

    __slots__ = ("gone", "key", "size", "time", "value")

    def __init__(self, time: int, key: bytes, value: BufferValue) -> None:
        self.time = time
        self.key = key
        self.value = value
        self.size = 0
        self.gone = False

    def __lt__(self, other: _Entry) -> bool:
        # Asked only where a key was taken out and came back at the same time.
        return self.gone


class TimeOrderedBuffer:
    """Holds changes back until they are evicted, oldest first.

    A key keeps the time of its first change since it was buffered; later changes replace the value
    and the record it came with. Everything is in memory, and comes back from the changelog, to
    which the changed keys are logged when a commit begins (`log_changes`).

    Args:
        name: the store's name.
        topic: handed to serdes, the changelog's name.
        key_serde: for keys.
        value_serde: for values.
        changelog: where changes are logged.
    """

    #: Nothing of it is on disk.
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
        #: The bytes that the buffered records count, as Kafka Streams counts them.
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
        """How many keys are buffered."""
        return len(self._entries)

    @property
    def min_timestamp(self) -> int:
        """The time of the oldest change; `NEVER` in an empty buffer."""
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
            time: where to put it in the order, if its key is not buffered yet.
            key: its key.
            new_value: the new value; None is a deletion.
            old_value: what it replaces; None if there is none or it is not known.
            timestamp: of the record that brings it.
            place: where that record was read; None in a punctuator.
            offset: its offset.
            headers: its headers.

        Raises:
            SerializationError: key or value do not fit their serdes; nothing was buffered.
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
        """Take changes out, oldest first (by time, then by serialized key).

        A change is still in the buffer while the caller works on it, and leaves when the next one
        is asked for: if the caller raises, it stays.

        Args:
            predicate: asked before each change whether to go on.

        Raises:
            SerializationError: what was buffered does not fit the serdes.
        """
        while (entry := self._first()) is not None and predicate():
            key = self._key_serde.deserialize(self._topic, entry.key)
            value = entry.value
            old = self._decode(self.replaced(value))
            yield BufferedChange(key, self._decode(value.new), old, value.context)
            if not entry.gone:
                self._remove(entry)
                if self._changelog.enabled:
                    self._dirty.add(entry.key)

    @staticmethod
    def replaced(value: BufferValue) -> bytes | None:
        """What a change replaces downstream.

        Unlike Kafka Streams, which takes what the latest change replaced in the table: a value that
        was held back and replaced was never downstream, and a grouped table would subtract it.
        """
        return value.prior

    def prior_value(self, key: Any) -> tuple[bool, Any]:
        """What is downstream of a buffered key.

        Args:
            key: the key.

        Returns:
            Whether the key is buffered, and if so, the value that was known downstream when it was
            buffered first.
        """
        entry = self._entries.get(self.encode_key(key))
        return (False, None) if entry is None else (True, self._decode(entry.value.prior))

    def encode_key(self, key: Any) -> bytes:
        """The serialized key.

        Raises:
            StreamsError: there is none.
        """
        key_bytes = self._key_serde.serialize(self._topic, key)
        if key_bytes is None:
            raise StreamsError(
                f"Store {self.name} needs a key, but got None. Leave out records without key."
            )
        return key_bytes

    def log_changes(self) -> None:
        """Log each key that changed since the last call, as it is now. Called as a commit begins.

        Follows Kafka Streams: the records have no timestamp of their own.
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
            StreamsError: the record has another format.
        """
        # A key may have left and come back between two commits, at another time.
        entry = self._entries.get(key)
        if entry is not None:
            self._remove(entry)
        if value is not None:
            buffered, rest = BufferValue.decode(value)
            self._put(_TIME.unpack(rest)[0], key, buffered)

    def close(self) -> None:
        """Let go of everything."""
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
