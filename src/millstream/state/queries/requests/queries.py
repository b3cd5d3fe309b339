"""The queries that stores support. Each partition is queried separately."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from millstream.errors import NullKeyError

K = TypeVar("K")


@dataclass(frozen=True)
class Query:
    """The base class of queries.

    Example:
        >>> isinstance(KeyQuery("ann"), Query)
        True
    """

    def __post_init__(self) -> None:
        """Reject None as the key of queries that have a key."""
        if getattr(self, "key", self) is None:
            raise NullKeyError(f"A {query_name(self)} needs a key, but got None.")


@dataclass(frozen=True)
class KeyQuery(Query, Generic[K]):
    """The value of a key in a key-value store, without its timestamp.

    The result is None if there is no such key. Kafka Streams' `KeyQuery` (KIP-796).

    Args:
        skip_cache: whether to leave out changes since the last commit.

    Example:
        >>> KeyQuery("alice").key
        'alice'
    """

    key: K
    skip_cache: bool = False


@dataclass(frozen=True)
class TimestampedKeyQuery(Query, Generic[K]):
    """The value of a key and its timestamp, as a `ValueAndTimestamp`.

    Not supported by stores without timestamps. Kafka Streams' `TimestampedKeyQuery` (KIP-992).

    Args:
        skip_cache: whether to leave out changes since the last commit.

    Example:
        >>> TimestampedKeyQuery("alice", skip_cache=True).skip_cache
        True
    """

    key: K
    skip_cache: bool = False


@dataclass(frozen=True)
class RangeQuery(Query, Generic[K]):
    """The keys and values in a range of a key-value store.

    The results are in the order of the serialized keys. Changes since the last commit are left out,
    as in Kafka Streams' `RangeQuery` (KIP-805, KIP-985).

    Args:
        lo: the first key, inclusive; None for no lower bound.
        hi: the last key, inclusive; None for no upper bound.
        descending: whether to iterate from the last key to the first.

    Example:
        >>> RangeQuery("a", "f", descending=True)
        RangeQuery(lo='a', hi='f', descending=True)
    """

    lo: K | None = None
    hi: K | None = None
    descending: bool = False


@dataclass(frozen=True)
class TimestampedRangeQuery(Query, Generic[K]):
    """The keys and timestamped values in a range of a key-value store.

    The values are `ValueAndTimestamp` objects; see also `RangeQuery`. Kafka Streams'
    `TimestampedRangeQuery` (KIP-992).

    Args:
        lo: the first key, inclusive; None for no lower bound.
        hi: the last key, inclusive; None for no upper bound.
        descending: whether to iterate from the last key to the first.

    Example:
        >>> TimestampedRangeQuery(hi="f").lo is None
        True
    """

    lo: K | None = None
    hi: K | None = None
    descending: bool = False


@dataclass(frozen=True)
class WindowKeyQuery(Query, Generic[K]):
    """The windows of a key in a window store: pairs of a window's start and value.

    Kafka Streams' `WindowKeyQuery` (KIP-806).

    Args:
        from_ms: the earliest window start, in milliseconds since the epoch.
        to_ms: the latest window start, inclusive.

    Example:
        >>> WindowKeyQuery("alice", 0, 3_600_000).to_ms
        3600000
    """

    key: K
    from_ms: int
    to_ms: int


@dataclass(frozen=True)
class WindowRangeQuery(Query):
    """The windows of all keys of a window store: pairs of `Windowed` key and value.

    `WindowRangeQuery.with_key(key)` queries the sessions of a key in a session store instead. Kafka
    Streams' `WindowRangeQuery` (KIP-806).

    Args:
        from_ms: the earliest window start, in milliseconds since the epoch.
        to_ms: the latest window start, inclusive.

    Example:
        >>> WindowRangeQuery(0, 60_000).to_ms, WindowRangeQuery.with_key("alice").key
        (60000, 'alice')
    """

    from_ms: int
    to_ms: int

    @staticmethod
    def with_key(key: K) -> SessionsOfKeyQuery[K]:
        """Create a query of a key's sessions in a session store.

        Example:
            >>> WindowRangeQuery.with_key("ann")
            SessionsOfKeyQuery(key='ann')
        """
        return SessionsOfKeyQuery(key)


@dataclass(frozen=True)
class SessionsOfKeyQuery(Query, Generic[K]):
    """The sessions of a key in a session store: pairs of `Windowed` key and value.

    Kafka Streams' `WindowRangeQuery.withKey` (KIP-806).

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
        as_of: the time, in milliseconds since the epoch; None for the latest version.

    Example:
        >>> VersionedKeyQuery("alice", as_of=1_000).as_of
        1000
    """

    key: K
    as_of: int | None = None


@dataclass(frozen=True)
class MultiVersionedKeyQuery(Query, Generic[K]):
    """The versions of a key that were valid at any time in a range.

    The results are `VersionedRecord` objects. Kafka Streams' `MultiVersionedKeyQuery` (KIP-968).

    Args:
        from_ms: the first time, inclusive; None for no lower bound.
        to_ms: the last time, inclusive; None for no upper bound.
        descending: True for newest first, False for oldest first; None for newest first, which is
            Kafka Streams' default.

    Example:
        >>> MultiVersionedKeyQuery("alice", from_ms=0, to_ms=9).to_ms
        9
    """

    key: K
    from_ms: int | None = None
    to_ms: int | None = None
    descending: bool | None = None


def query_name(query: Any) -> str:
    return type(query).__name__
