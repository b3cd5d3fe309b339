"""As what a store is asked: the types of views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from millstream.query.views import (
    ReadOnlyKeyValueStore,
    ReadOnlySessionStore,
    ReadOnlyStore,
    ReadOnlyWindowStore,
)
from millstream.state.queries.codec import StoreCodec

S = TypeVar("S", bound="ReadOnlyStore[Any, Any]")


@dataclass(frozen=True)
class QueryableStoreType(Generic[S]):
    """As what a store is asked. Made by `QueryableStoreTypes`.

    Args:
        name: for messages.
        view: what the user gets.
        shape: of the stores that can be asked so.
        timestamped: whether values come as `ValueAndTimestamp`.

    Example:
        >>> QueryableStoreTypes.key_value().shape
        'key-value'
    """

    name: str
    view: type[S]
    shape: str
    timestamped: bool

    def accepts(self, codec: StoreCodec | None) -> bool:
        """Whether a store can be asked so.

        Args:
            codec: how the store keeps what it has; None if it takes no queries.

        Example:
            >>> QueryableStoreTypes.key_value().accepts(None)
            False
        """
        return (
            codec is not None
            and codec.shape == self.shape
            and (codec.timestamped or not self.timestamped)
        )


class QueryableStoreTypes:
    """As what `KafkaStreams.store` gives a store: Kafka Streams' `QueryableStoreTypes`.

    A store that keeps timestamps can be asked with and without them; one that keeps none, only
    without. Versioned stores are asked with `KafkaStreams.query` only.

    Example:
        >>> QueryableStoreTypes.timestamped_key_value().name
        'timestamped key-value store'
    """

    @staticmethod
    def key_value() -> QueryableStoreType[ReadOnlyKeyValueStore[Any, Any]]:
        """A key-value store; values come without timestamps.

        Example:
            >>> QueryableStoreTypes.key_value().timestamped
            False
        """
        return QueryableStoreType("key-value store", ReadOnlyKeyValueStore, "key-value", False)

    @staticmethod
    def timestamped_key_value() -> QueryableStoreType[ReadOnlyKeyValueStore[Any, Any]]:
        """A key-value store that keeps timestamps; values are `ValueAndTimestamp`.

        Example:
            >>> QueryableStoreTypes.timestamped_key_value().timestamped
            True
        """
        name = "timestamped key-value store"
        return QueryableStoreType(name, ReadOnlyKeyValueStore, "key-value", True)

    @staticmethod
    def window() -> QueryableStoreType[ReadOnlyWindowStore[Any, Any]]:
        """A window store; values come without timestamps.

        Example:
            >>> QueryableStoreTypes.window().name
            'window store'
        """
        return QueryableStoreType("window store", ReadOnlyWindowStore, "window", False)

    @staticmethod
    def timestamped_window() -> QueryableStoreType[ReadOnlyWindowStore[Any, Any]]:
        """A window store that keeps timestamps; values are `ValueAndTimestamp`.

        Example:
            >>> QueryableStoreTypes.timestamped_window().timestamped
            True
        """
        return QueryableStoreType("timestamped window store", ReadOnlyWindowStore, "window", True)

    @staticmethod
    def session() -> QueryableStoreType[ReadOnlySessionStore[Any, Any]]:
        """A session store.

        Example:
            >>> QueryableStoreTypes.session().name
            'session store'
        """
        return QueryableStoreType("session store", ReadOnlySessionStore, "session", False)
