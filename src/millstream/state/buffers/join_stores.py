"""The stores of joins: unmatched stream records, and foreign-key subscriptions."""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple

from millstream.record import Headers
from millstream.serdes import BYTES, Serde, list_of
from millstream.state.changelogs.store_changelog import StoreChangelog
from millstream.state.storage.bytes_store import ByteItems, BytesStore, end_of_prefix
from millstream.state.storage.value_formats import TIMESTAMPED

_TIME: Final = struct.Struct(">q")
_KEY_START: Final = _TIME.size + 1
_LEFT: Final = b"\x01"
_RIGHT: Final = b"\x00"
_LIST: Final = list_of(BYTES)


class UnmatchedKey(NamedTuple):
    """The unmatched records of one side with the same key and timestamp."""

    stored_key: bytes
    timestamp: int
    left: bool
    stored: bytes


class OuterJoinStore:
    """The unmatched records of a left or outer stream-stream join.

    Ordered by timestamp, side (right first) and serialized key. Corresponds to Kafka Streams' store
    of `TimestampedKeyAndJoinSide` and `LeftOrRightValue` above a `ListValueStore`.
    """

    def __init__(
        self,
        name: str,
        layers: BytesStore,
        *,
        topic: str,
        key_serde: Serde[Any],
        left_serde: Serde[Any],
        right_serde: Serde[Any],
        persistent: bool,
        changelog: StoreChangelog,
    ) -> None:
        self.name = name
        #: Whether the data survives the process.
        self.persistent = persistent
        self._layers = layers
        self._topic = topic
        self._key_serde = key_serde
        self._left_serde = left_serde
        self._right_serde = right_serde
        self._changelog = changelog

    def put(self, timestamp: int, left: bool, key: Any, value: Any, *, record_time: int) -> None:
        """Add a record. All records with the same key, side and timestamp are kept.

        Args:
            record_time: the timestamp of the record being processed, for the changelog.

        Raises:
            SerializationError: a serde rejected the key or value.
        """
        stored_key = self._stored_key(timestamp, left, key)
        serde, side = (self._left_serde, _LEFT) if left else (self._right_serde, _RIGHT)
        data: Any = serde.serialize(self._topic, value)
        stored = self._layers.get(stored_key)
        values = None if stored is None else _LIST.deserialize(self._topic, stored)
        values = values or []
        values.append(side + data)
        self._write(stored_key, _LIST.serialize(self._topic, values), record_time)

    def remove_joined(self, timestamp: int, left: bool, key: Any, *, record_time: int) -> bool:
        """Remove the records of a key, side and timestamp, which were joined.

        Returns whether any existed.
        """
        stored_key = self._stored_key(timestamp, left, key)
        if self._layers.get(stored_key) is None:
            return False
        self._write(stored_key, None, record_time)
        return True

    def remove(self, stored_key: bytes, *, record_time: int) -> None:
        self._write(stored_key, None, record_time)

    def all(self) -> Generator[UnmatchedKey, None, None]:
        """Iterate over a snapshot of all records, in order.

        Close the iterator unless it is exhausted.
        """
        return _unmatched(self._layers.scan(None, None))

    def key(self, unmatched: UnmatchedKey) -> Any:
        """Deserialize the key of unmatched records.

        Raises:
            SerializationError: the key serde rejected the bytes.
        """
        return self._key_serde.deserialize(self._topic, unmatched.stored_key[_KEY_START:])

    def values(self, unmatched: UnmatchedKey) -> list[Any]:
        """Deserialize the values of unmatched records, in the order of arrival.

        Raises:
            SerializationError: the value serde rejected the bytes.
        """
        serde = self._left_serde if unmatched.left else self._right_serde
        datas: Any = _LIST.deserialize(self._topic, unmatched.stored)
        return serde.deserialize_many(self._topic, [data[1:] for data in datas])

    def close(self) -> None:
        """Do nothing: the task closes the layer below."""

    def _stored_key(self, timestamp: int, left: bool, key: Any) -> bytes:
        key_bytes: Any = self._key_serde.serialize(self._topic, key)
        side = _LEFT if left else _RIGHT
        return b"".join((_TIME.pack(timestamp), side, key_bytes))

    def _write(self, stored_key: bytes, stored: bytes | None, record_time: int) -> None:
        self._layers.put(stored_key, stored, record_time)
        self._changelog.log(stored_key, stored, record_time)


def _unmatched(items: ByteItems) -> Generator[UnmatchedKey, None, None]:
    try:
        for stored_key, stored in items:
            left = stored_key[_TIME.size : _KEY_START] == _LEFT
            yield UnmatchedKey(stored_key, _TIME.unpack_from(stored_key)[0], left, stored)
    finally:
        items.close()


class SubscriptionTable:
    """The store of a foreign-key join: the references from left rows to right rows.

    A timestamped key-value store whose keys start with the key of the right row, so that all left
    rows that refer to it are adjacent. Unlike those of other stores, its changes are logged with
    the headers of the records that caused them, as in Kafka Streams 4.3.
    """

    def __init__(self, name: str, layers: BytesStore, changelog: StoreChangelog) -> None:
        self.name = name
        self._layers = layers
        self._changelog = changelog

    def put_many(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None,
    ) -> None:
        """Store subscriptions, in order; a value of None deletes one."""
        self._layers.put_many(keys, TIMESTAMPED.join_many(values, timestamps), timestamps)
        self._changelog.log_many(keys, values, timestamps, headers)

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Return the keys with a prefix, in order, with their serialized subscriptions."""
        items = self._layers.scan(prefix, end_of_prefix(prefix))
        return [(key, TIMESTAMPED.split(stored)[0]) for key, stored in items]
