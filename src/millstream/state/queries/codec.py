"""Converts queries to read requests, and pairs of bytes to results.

The conversions use the serdes of a store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from millstream.errors import NullKeyError
from millstream.record import ValueAndTimestamp, VersionedRecord
from millstream.serdes import Serde
from millstream.state.builders.store_builder import KeyValueStoreBuilder, StoreBuilder
from millstream.state.builders.versioned_builders import VersionedStoreBuilder
from millstream.state.builders.window_builders import SessionStoreBuilder, WindowStoreBuilder
from millstream.state.queries.read_requests import (
    COUNT,
    STILL_VALID,
    VERSION,
    ReadKind,
    ReadRequest,
)
from millstream.state.queries.requests import queries as q
from millstream.state.storage.value_formats import format_of
from millstream.state.windows.window_keys import SESSIONS, WINDOWS, StoredKeySerde

#: The kinds of stores that queries distinguish.
StoreShape = Literal["key-value", "window", "session", "versioned"]

Pairs = Iterable[tuple[bytes, bytes]]
_LARGEST_COUNT: Final = (1 << 63) - 1


@dataclass(frozen=True)
class StoreCodec:
    """The serdes of a store and the format of its values.

    Args:
        topic: the topic that is passed to serdes: the changelog's name, even if the store has none.
    """

    name: str
    topic: str
    shape: StoreShape
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    timestamped: bool = False
    window_size_ms: int = 0

    # --- requests --------------------------------------------------------------------------------

    def key(self, key: Any) -> bytes:
        """Serialize a key.

        Raises:
            NullKeyError: the key is None.
            SerializationError: the key serde rejected the key.
        """
        data = self.key_serde.serialize(self.topic, key)
        if data is None:
            raise NullKeyError(f"A query of store {self.name} needs a key, but got None.")
        return data

    def key_or_none(self, key: Any) -> bytes | None:
        """Serialize a bound of a range; None leaves that side open."""
        return None if key is None else self.key(key)

    # --- results ---------------------------------------------------------------------------------

    def value(self, stored: bytes) -> Any:
        """Deserialize a value without its timestamp."""
        data, _ = format_of(self.timestamped).split(stored)
        return self.value_serde.deserialize(self.topic, data)

    def timed_value(self, stored: bytes) -> Any:
        """Deserialize a value, with its timestamp if the store is timestamped."""
        data, timestamp = format_of(self.timestamped).split(stored)
        value = self.value_serde.deserialize(self.topic, data)
        return ValueAndTimestamp(value, timestamp) if self.timestamped else value

    def items(self, pairs: Pairs, value: Callable[[bytes], Any]) -> Iterator[tuple[Any, Any]]:
        decode, topic = self.key_serde.deserialize, self.topic
        return ((decode(topic, key), value(stored)) for key, stored in pairs)

    def starts(self, pairs: Pairs, value: Callable[[bytes], Any]) -> Iterator[tuple[int, Any]]:
        return ((WINDOWS.time_of(key), value(stored)) for key, stored in pairs)

    def windows(self, pairs: Pairs, value: Callable[[bytes], Any]) -> Iterator[tuple[Any, Any]]:
        layout = SESSIONS if self.shape == "session" else WINDOWS
        decode = StoredKeySerde(self.key_serde, layout, self.window_size_ms).deserialize
        return ((decode(self.topic, key), value(stored)) for key, stored in pairs)

    def versions(self, pairs: Pairs) -> Iterator[VersionedRecord]:
        for times, data in pairs:
            timestamp, valid_to = VERSION.unpack(times)
            value = self.value_serde.deserialize(self.topic, data)
            until = None if valid_to == STILL_VALID else valid_to
            yield VersionedRecord(value, timestamp, until)


def count_of(pairs: Pairs) -> int:
    """Return the sum of counts, limited to the range of a Java long."""
    total: int = sum(COUNT.unpack(count)[0] for _, count in pairs)
    return min(_LARGEST_COUNT, total)


def codec_of(builder: StoreBuilder, topic: str) -> StoreCodec | None:
    """Return the codec of a resolved builder; None for stores that cannot be queried."""
    match builder:
        case KeyValueStoreBuilder(timestamped=timestamped):
            return StoreCodec(builder.name, topic, "key-value", *builder.serdes(), timestamped)
        case WindowStoreBuilder(timestamped=timestamped, window_size_ms=size_ms):
            return StoreCodec(
                builder.name, topic, "window", *builder.serdes(), timestamped, size_ms
            )
        case SessionStoreBuilder():
            return StoreCodec(builder.name, topic, "session", *builder.serdes())
        case VersionedStoreBuilder():
            return StoreCodec(builder.name, topic, "versioned", *builder.serdes())
        case _:
            return None


@dataclass(frozen=True)
class QueryPlan:
    """A planned query.

    Args:
        finish: converts the pairs that were read to the result.
        is_iterated: whether the result is an iterator, which may be fetched in pages.
    """

    read: ReadRequest
    finish: Callable[[Pairs], Any]
    is_iterated: bool


def plan_query(query: q.Query, codec: StoreCodec) -> QueryPlan | None:
    """Plan a query; return None if stores of this kind do not support it.

    The supported queries, with or without timestamps, are those of Kafka Streams' metered stores.

    Raises:
        NullKeyError: the key is None.
        SerializationError: the store's serde rejected a key.
        ValueError: a time range ends before it starts.
    """
    match codec.shape:
        case "key-value":
            return _key_value(query, codec)
        case "window":
            return _window(query, codec)
        case "session":
            return _session(query, codec)
        case "versioned":
            return _versioned(query, codec)


def _key_value(query: q.Query, codec: StoreCodec) -> QueryPlan | None:
    match query:
        case q.TimestampedKeyQuery() | q.TimestampedRangeQuery() if not codec.timestamped:
            return None
        case q.KeyQuery(key, skip_cache) | q.TimestampedKeyQuery(key, skip_cache):
            value = codec.value if isinstance(query, q.KeyQuery) else codec.timed_value
            read = ReadRequest(ReadKind.GET, codec.key(key), skip_cache=skip_cache)
            return QueryPlan(read, partial(_first_value, value=value), is_iterated=False)
        case q.RangeQuery(lo, hi, descending) | q.TimestampedRangeQuery(lo, hi, descending):
            value = codec.value if isinstance(query, q.RangeQuery) else codec.timed_value
            read = ReadRequest(
                ReadKind.RANGE,
                codec.key_or_none(lo),
                codec.key_or_none(hi),
                reverse=descending,
                skip_cache=True,
            )
            return QueryPlan(read, partial(codec.items, value=value), is_iterated=True)
        case _:
            return None


def _window(query: q.Query, codec: StoreCodec) -> QueryPlan | None:
    value = codec.timed_value
    match query:
        case q.WindowKeyQuery(key, first, last):
            read = ReadRequest(
                ReadKind.WINDOWS, codec.key(key), first=first, last=last, skip_cache=True
            )
            return QueryPlan(read, partial(codec.starts, value=value), is_iterated=True)
        case q.WindowRangeQuery(first, last):
            read = ReadRequest(ReadKind.WINDOW_RANGE, first=first, last=last, skip_cache=True)
            return QueryPlan(read, partial(codec.windows, value=value), is_iterated=True)
        case _:
            return None


def _session(query: q.Query, codec: StoreCodec) -> QueryPlan | None:
    if not isinstance(query, q.SessionsOfKeyQuery):
        return None
    read = ReadRequest(ReadKind.SESSIONS, codec.key(query.key), skip_cache=True)
    return QueryPlan(read, partial(codec.windows, value=codec.value), is_iterated=True)


def _versioned(query: q.Query, codec: StoreCodec) -> QueryPlan | None:
    match query:
        case q.VersionedKeyQuery(key, as_of):
            read = ReadRequest(ReadKind.VERSION, codec.key(key), first=as_of)
            return QueryPlan(read, partial(_first_version, codec=codec), is_iterated=False)
        case q.MultiVersionedKeyQuery(key, first, last, descending):
            if first is not None and last is not None and first > last:
                raise ValueError(
                    f"The time range of a query is from {first} to {last}. The first time must not "
                    "be later than the last one."
                )
            newest_first = descending is not False
            read = ReadRequest(
                ReadKind.VERSIONS, codec.key(key), first=first, last=last, reverse=newest_first
            )
            return QueryPlan(read, codec.versions, is_iterated=True)
        case _:
            return None


def _first_value(pairs: Pairs, value: Callable[[bytes], Any]) -> Any:
    return next((value(stored) for _, stored in pairs), None)


def _first_version(pairs: Pairs, codec: StoreCodec) -> VersionedRecord | None:
    return next(codec.versions(pairs), None)
