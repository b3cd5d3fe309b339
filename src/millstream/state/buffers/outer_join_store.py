"""What a left or outer join of two streams remembers: records that found no partner yet.

Kafka Streams' store of `TimestampedKeyAndJoinSide` and `LeftOrRightValue` over a `ListValueStore`.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Any, Final, NamedTuple

from millstream.serdes import BYTES, Serde, list_of
from millstream.state.changelogs.store_changelog import StoreChangelog
from millstream.state.storage.bytes_store import ByteItems, BytesStore

_TIME: Final = struct.Struct(">q")
_KEY_START: Final = _TIME.size + 1
_LEFT: Final = b"\x01"
_RIGHT: Final = b"\x00"
_LIST: Final = list_of(BYTES)


class UnjoinedKey(NamedTuple):
    """The records of one side with one key and timestamp that have found no partner.

    Args:
        stored_key: names them to `remove`.
        timestamp: their timestamp, in milliseconds.
        left: whether they are of the left stream.
        stored: their values; see `OuterJoinStore.values`.
    """

    stored_key: bytes
    timestamp: int
    left: bool
    stored: bytes


class OuterJoinStore:
    """Records without a partner, in the order of timestamp, side (right first), serialized key.

    Args:
        name: the store's name.
        layers: the bytes layer below.
        topic: handed to serdes, the changelog's name.
        key_serde: for keys.
        left_serde: for values of the left stream.
        right_serde: for values of the right stream.
        persistent: whether the data survives its process.
        changelog: where changes are logged.
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
        #: Whether the data survives its process.
        self.persistent = persistent
        self._layers = layers
        self._topic = topic
        self._key_serde = key_serde
        self._left_serde = left_serde
        self._right_serde = right_serde
        self._changelog = changelog

    def put(self, timestamp: int, left: bool, key: Any, value: Any, *, record_time: int) -> None:
        """Remember a record. Several with the same key, side and timestamp are all kept.

        Args:
            timestamp: of the record.
            left: whether it is of the left stream.
            key: its key, not None.
            value: its value, not None.
            record_time: the timestamp of the record being processed, for the changelog.

        Raises:
            SerializationError: key or value do not fit their serdes.
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
        """Forget the records of a key, side and timestamp if there are any: they found a partner.

        Args:
            timestamp: of the records.
            left: whether they are of the left stream.
            key: their key.
            record_time: the timestamp of the record being processed, for the changelog.

        Returns:
            Whether there were any.
        """
        stored_key = self._stored_key(timestamp, left, key)
        if self._layers.get(stored_key) is None:
            return False
        self._write(stored_key, None, record_time)
        return True

    def remove(self, stored_key: bytes, *, record_time: int) -> None:
        """Forget what `all` has found.

        Args:
            stored_key: of an `UnjoinedKey`.
            record_time: the timestamp of the record being processed, for the changelog.
        """
        self._write(stored_key, None, record_time)

    def all(self) -> Generator[UnjoinedKey, None, None]:
        """Everything, in order, as it was at the time of the call; close it when done early."""
        return _unjoined(self._layers.scan(None, None))

    def key(self, unjoined: UnjoinedKey) -> Any:
        """The key of some records.

        Raises:
            SerializationError: its bytes do not fit the key serde.
        """
        return self._key_serde.deserialize(self._topic, unjoined.stored_key[_KEY_START:])

    def values(self, unjoined: UnjoinedKey) -> list[Any]:
        """The values of some records, in the order of their arrival.

        Raises:
            SerializationError: their bytes do not fit the value serde.
        """
        serde = self._left_serde if unjoined.left else self._right_serde
        datas: Any = _LIST.deserialize(self._topic, unjoined.stored)
        return serde.deserialize_many(self._topic, [data[1:] for data in datas])

    def approximate_num_entries(self) -> int:
        """About how many keys there are."""
        return self._layers.approximate_num_entries()

    def close(self) -> None:
        """Nothing to do: the layer below is closed by the task."""

    def _stored_key(self, timestamp: int, left: bool, key: Any) -> bytes:
        key_bytes: Any = self._key_serde.serialize(self._topic, key)
        side = _LEFT if left else _RIGHT
        return b"".join((_TIME.pack(timestamp), side, key_bytes))

    def _write(self, stored_key: bytes, stored: bytes | None, record_time: int) -> None:
        self._layers.put(stored_key, stored, record_time)
        self._changelog.log(stored_key, stored, record_time)


def _unjoined(items: ByteItems) -> Generator[UnjoinedKey, None, None]:
    try:
        for stored_key, stored in items:
            left = stored_key[_TIME.size : _KEY_START] == _LEFT
            yield UnjoinedKey(stored_key, _TIME.unpack_from(stored_key)[0], left, stored)
    finally:
        items.close()
