"""What all tables of operators have in common: objects above, bytes below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.serdes import Serde


class EncodedTable:
    """A store as operators see it, with the serdes of its keys and values.

    Args:
        name: the store's name.
        topic: handed to serdes, the changelog's name.
        key_serde: for keys.
        value_serde: for values.
    """

    def __init__(
        self, name: str, *, topic: str, key_serde: Serde[Any], value_serde: Serde[Any]
    ) -> None:
        self.name = name
        #: Whether values cannot be changed in place, so that they may be shared.
        self.immutable = value_serde.immutable
        self._topic = topic
        self._key_serde = key_serde
        self._value_serde = value_serde

    def encode_keys(self, keys: Sequence[Any]) -> list[bytes]:
        """The serialized keys. None has no place in a table: leave such records out before.

        Raises:
            BatchSerializationError: one of them does not fit the key serde.
        """
        encoded: list[Any] = self._key_serde.serialize_many(self._topic, keys)
        return encoded

    def encode(self, value: Any) -> bytes | None:
        """The serialized value."""
        return self._value_serde.serialize(self._topic, value)

    def encode_many(self, values: Sequence[Any]) -> list[bytes | None]:
        """The serialized values, in a new list.

        Raises:
            BatchSerializationError: one of them does not fit the value serde.
        """
        return self._value_serde.serialize_many(self._topic, values)

    def decode(self, data: bytes | None) -> Any:
        """The value of some bytes: a new object."""
        return self._value_serde.deserialize(self._topic, data)

    def unreadable(self, stored_keys: Sequence[bytes]) -> frozenset[bytes]:
        """Those that are never read again, whatever is put under them: none where no time is."""
        return frozenset()

    def own(self, value: Any) -> Any:
        """A value equal to this one that nobody else holds, to be changed in place."""
        return value if self.immutable else self.decode(self.encode(value))
