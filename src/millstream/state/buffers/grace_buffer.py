"""The buffer of a stream-table join with a grace period.

It holds stream records that wait for the table. Kafka Streams' `RocksDBTimeOrderedKeyValueBuffer`.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Any, Final, NamedTuple

from millstream.record import UNKNOWN, Headers, TopicPartition
from millstream.serdes import Serde
from millstream.state.buffers.buffer_value import BufferedContext, BufferValue
from millstream.state.changelogs.store_changelog import StoreChangelog
from millstream.state.storage.bytes_store import ByteItems, CommittableStore

_TIME: Final = struct.Struct(">q")
_SEQUENCE: Final = struct.Struct(">i")
_LAST_SEQUENCE: Final = 0x7FFFFFFF
#: The prefix of each key, as in Kafka Streams' time-first stores.
_TIME_FIRST: Final = b"\x00"
_KEY_START: Final = len(_TIME_FIRST) + _TIME.size
#: The buffer time at the end of each changelog record, which this buffer does not use.
_NO_TIME: Final = bytes(_TIME.size)


class BufferedRecord(NamedTuple):
    """A record removed from the buffer."""

    key: Any
    value: Any
    context: BufferedContext


class GraceBuffer:
    """Buffers records until stream time exceeds their timestamp by the grace period.

    Stream time is the highest buffered timestamp. All records are kept, including several with the
    same key and time. They are evicted in the order of timestamp, serialized key and arrival.
    """

    def __init__(
        self,
        name: str,
        base: CommittableStore,
        *,
        topic: str,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        grace_ms: int,
        changelog: StoreChangelog,
    ) -> None:
        self.name = name
        #: Whether the data survives the process.
        self.persistent = base.persistent
        self._base = base
        self._topic = topic
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._grace_ms = grace_ms
        self._changelog = changelog
        self._sequence = 0
        self._stream_time = UNKNOWN
        # A lower bound of the time of the oldest record; None if the buffer is empty.
        self._oldest: int | None = None
        self._is_loaded = False

    def put(
        self,
        key: Any,
        value: Any,
        *,
        timestamp: int,
        place: TopicPartition | None,
        offset: int,
        headers: Headers = (),
    ) -> bool:
        """Buffer a record.

        Args:
            place: the input partition; None in a punctuator.

        Returns:
            False if the record is older than the grace period, in which case it is not buffered.

        Raises:
            SerializationError: a serde rejected the key or value.
        """
        self._ensure_loaded()
        if self._stream_time - self._grace_ms > timestamp:
            return False
        key_bytes: Any = self._key_serde.serialize(self._topic, key)
        value_bytes = self._value_serde.serialize(self._topic, value)
        self._sequence = self._sequence + 1 & _LAST_SEQUENCE
        stored_key = b"".join(
            (_TIME_FIRST, _TIME.pack(timestamp), key_bytes, _SEQUENCE.pack(self._sequence))
        )
        context = BufferedContext(timestamp, offset, place, headers)
        stored = BufferValue(None, None, value_bytes, context).encode()
        self._base.put(stored_key, stored, timestamp)
        self._changelog.log(stored_key, stored + _NO_TIME, None)
        self._stream_time = max(self._stream_time, timestamp)
        self._oldest = timestamp if self._oldest is None else min(self._oldest, timestamp)
        return True

    def evict(self) -> Generator[BufferedRecord, None, None]:
        """Remove and yield the records whose grace period has passed, oldest first.

        A record is removed when the next one is requested, so it stays in the buffer if the
        caller raises.

        Raises:
            SerializationError: a serde rejected buffered bytes.
        """
        self._ensure_loaded()
        until = self._stream_time - self._grace_ms + 1
        if self._oldest is None or self._oldest >= until or until <= 0:
            return
        start = _TIME_FIRST + _TIME.pack(max(0, self._oldest))
        expired = self._base.scan(start, _TIME_FIRST + _TIME.pack(until))
        try:
            for stored_key, stored in expired:
                yield self._decoded(stored_key, stored)
                self._base.put(stored_key, None, UNKNOWN)
                self._changelog.log(stored_key, None, None)
        finally:
            expired.close()
        self._oldest = until
        self._clear_oldest_if_empty()

    def close(self) -> None:
        """Do nothing: the task closes the layer below."""

    def reset_derived_state(self) -> None:
        """Reload the derived state before the next use: restoration changes the data."""
        self._is_loaded = False

    def _ensure_loaded(self) -> None:
        """Load the oldest time, stream time and sequence number after restoration."""
        if self._is_loaded:
            return
        self._is_loaded = True
        self._oldest = _first_time(self._base.scan(None, None))
        latest = _first_time(self._base.scan(None, None, reverse=True))
        self._stream_time = UNKNOWN if latest is None else latest
        # If the sequence restarted at zero, a record could replace one with the same key and time.
        self._sequence = 0
        for stored_key, _ in self._base.scan(None, None):
            self._sequence = max(self._sequence, _SEQUENCE.unpack(stored_key[-_SEQUENCE.size :])[0])

    def _clear_oldest_if_empty(self) -> None:
        if self._oldest is not None and self._stream_time < self._oldest:
            self._oldest = None

    def _decoded(self, stored_key: bytes, stored: bytes) -> BufferedRecord:
        value, _ = BufferValue.decode(stored)
        key = self._key_serde.deserialize(self._topic, stored_key[_KEY_START : -_SEQUENCE.size])
        data = value.new
        decoded = None if data is None else self._value_serde.deserialize(self._topic, data)
        return BufferedRecord(key, decoded, value.context)


def _first_time(items: ByteItems) -> int | None:
    first = next(items, None)
    items.close()
    if first is None:
        return None
    time: int = _TIME.unpack_from(first[0], len(_TIME_FIRST))[0]
    return time
