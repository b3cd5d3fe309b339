"""The queries that a store can be asked: each is answered by every partition for itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from millstream.errors import NullKeyError

K = TypeVar("K")


@dataclass(frozen=True)
class Query:
    """Something to ask of a store. Its class says what, and what the answer is.

    Example:
        >>> isinstance(KeyQuery("ann"), Query)
        True
    """

    def __post_init__(self) -> None:
        """Refuse None as the key, where a query has one."""
        if getattr(self, "key", self) is None:
            raise NullKeyError(f"A {described(self)} needs a key, but got None.")


@dataclass(frozen=True)
class KeyQuery(Query, Generic[K]):
    """The value of a key in a key-value store, without its timestamp.

    None, as a success, where there is no such key. Kafka Streams' `KeyQuery` (KIP-796).

    Args:
        key: the key.
        skip_cache: leave out what has changed since the last commit.

    Example:
        >>> KeyQuery("alice").key
        'alice'
    """

    key: K
    skip_cache: bool = False


@dataclass(frozen=True)
class TimestampedKeyQuery(Query, Generic[K]):
    """The value of a key with its timestamp, as a `ValueAndTimestamp`.

    A store that keeps no timestamps does not know it. Kafka Streams' `TimestampedKeyQuery`
    (KIP-992).

    Args:
        key: the key.
        skip_cache: leave out what has changed since the last commit.

    Example:
        >>> TimestampedKeyQuery("alice", skip_cache=True).skip_cache
        True
    """

    key: K
    skip_cache: bool = False


@dataclass(frozen=True)
class RangeQuery(Query, Generic[K]):
    """Pairs of key and value of a key-value store, in the order of the serialized keys.

    What has changed since the last commit is left out, as in Kafka Streams, whose `RangeQuery`
    (KIP-805, KIP-985) it is.

    Args:
        lo: the first key, itself included; None for all from the beginning.
        hi: the last key, itself included; None for all to the end.
        descending: from the last to the first.

    Example:
        >>> RangeQuery("a", "f", descending=True)
        RangeQuery(lo='a', hi='f', descending=True)
    """

    lo: K | None = None
    hi: K | None = None
    descending: bool = False


@dataclass(frozen=True)
class TimestampedRangeQuery(Query, Generic[K]):
    """The same with values as `ValueAndTimestamp`.

    Kafka Streams' `TimestampedRangeQuery` (KIP-992).

    Args:
        lo: the first key, itself included; None for all from the beginning.
        hi: the last key, itself included; None for all to the end.
        descending: from the last to the first.

    Example:
        >>> TimestampedRangeQuery(hi="f").lo is None
        True
    """

    lo: K | None = None
    hi: K | None = None
    descending: bool = False


@dataclass(frozen=True)
class WindowKeyQuery(Query, Generic[K]):
    """The windows of a key in a window store: pairs of a window's start and its value.

    Kafka Streams' `WindowKeyQuery` (KIP-806).

    Args:
        key: the key.
        from_ms: the first start of a window, in milliseconds since the epoch.
        to_ms: the last one, itself included.

    Example:
        >>> WindowKeyQuery("alice", 0, 3_600_000).to_ms
        3600000
    """

    key: K
    from_ms: int
    to_ms: int


@dataclass(frozen=True)
class WindowRangeQuery(Query):
    """The windows of all keys: pairs of a `Windowed` key and its value, of a window store.

    `WindowRangeQuery.with_key(key)` asks a session store for the sessions of a key instead. Kafka
    Streams' `WindowRangeQuery` (KIP-806).

    Args:
        from_ms: the first start of a window, in milliseconds since the epoch.
        to_ms: the last one, itself included.

    Example:
        >>> WindowRangeQuery(0, 60_000).to_ms, WindowRangeQuery.with_key("alice").key
        (60000, 'alice')
    """

    from_ms: int
    to_ms: int

    @staticmethod
    def with_key(key: K) -> SessionsOfKeyQuery[K]:
        """The sessions of a key, in a session store.

        Example:
            >>> WindowRangeQuery.with_key("ann")
            SessionsOfKeyQuery(key='ann')
        """
        return SessionsOfKeyQuery(key)


@dataclass(frozen=True)
class SessionsOfKeyQuery(Query, Generic[K]):
    """The sessions of a key: pairs of a `Windowed` key and its value, of a session store.

    Kafka Streams' `WindowRangeQuery.withKey` (KIP-806).

    Args:
        key: the key.

    Example:
        >>> SessionsOfKeyQuery("alice") == WindowRangeQuery.with_key("alice")
        True
    """

    key: K


@dataclass(frozen=True)
class VersionedKeyQuery(Query, Generic[K]):
    """The version of a key that was valid at a time, as a `VersionedRecord`, or None.

    Kafka Streams' `VersionedKeyQuery` (KIP-960).

    Args:
        key: the key.
        as_of: the time, in milliseconds since the epoch; None for the latest version.

    Example:
        >>> VersionedKeyQuery("alice", as_of=1_000).as_of
        1000
    """

    key: K
    as_of: int | None = None


@dataclass(frozen=True)
class MultiVersionedKeyQuery(Query, Generic[K]):
    """The versions of a key that were valid at any time between two, as `VersionedRecord`.

    Kafka Streams' `MultiVersionedKeyQuery` (KIP-968).

    Args:
        key: the key.
        from_ms: the first time, itself included; None from the beginning.
        to_ms: the last time, itself included; None to the end.
        descending: the newest first, True, or the oldest first, False; None for the newest first,
            which is what Kafka Streams gives where no order is asked for.

    Example:
        >>> MultiVersionedKeyQuery("alice", from_ms=0, to_ms=9).to_ms
        9
    """

    key: K
    from_ms: int | None = None
    to_ms: int | None = None
    descending: bool | None = None


def described(query: Any) -> str:
    """The kind of a query, for messages."""
    return type(query).__name__
