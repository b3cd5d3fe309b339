"""From queries to reads, and from pairs of bytes to answers, by the serdes of a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from millstream.errors import NullKeyError
from millstream.query.requests import queries as q
from millstream.record import ValueAndTimestamp, VersionedRecord
from millstream.serdes import Serde
from millstream.state.builders.key_value import KeyValueStoreBuilder
from millstream.state.builders.store_builder import StoreBuilder
from millstream.state.builders.versioned import VersionedStoreBuilder
from millstream.state.builders.windows import SessionStoreBuilder, WindowStoreBuilder
from millstream.state.queries.reads import COUNT, STILL_VALID, VERSION, Read, ReadKind
from millstream.state.storage.value_formats import format_of
from millstream.state.windows.window_keys import SESSIONS, WINDOWS, StoredKeySerde

#: What a store is to those who ask it.
Shape = Literal["key-value", "window", "session", "versioned"]

Pairs = Iterable[tuple[bytes, bytes]]
_LARGEST_COUNT: Final = (1 << 63) - 1


@dataclass(frozen=True)
class StoreCodec:
    """The serdes of a store, and how it keeps what they make.

    Args:
        name: of the store.
        topic: handed to serdes: the name of the changelog, whether there is one or not.
        shape: what it is to those who ask it.
        key_serde: for keys.
        value_serde: for values.
        timestamped: whether values are kept with their timestamps.
        window_size_ms: how long the windows of a window store are.
    """

    name: str
    topic: str
    shape: Shape
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    timestamped: bool = False
    window_size_ms: int = 0

    # --- asking ----------------------------------------------------------------------------------

    def key(self, key: Any) -> bytes:
        """A serialized key.

        Raises:
            NullKeyError: it is None.
            SerializationError: it does not fit the store's serde.
        """
        data = self.key_serde.serialize(self.topic, key)
        if data is None:
            raise NullKeyError(f"A query of store {self.name} needs a key, but got None.")
        return data

    def key_or_none(self, key: Any) -> bytes | None:
        """The same for the end of a range, where None means that it is open."""
        return None if key is None else self.key(key)

    # --- answers ---------------------------------------------------------------------------------

    def value(self, stored: bytes) -> Any:
        """A value, without its timestamp if it has one."""
        data, _ = format_of(self.timestamped).split(stored)
        return self.value_serde.deserialize(self.topic, data)

    def timed_value(self, stored: bytes) -> Any:
        """A value with its timestamp, if the store keeps them."""
        data, timestamp = format_of(self.timestamped).split(stored)
        value = self.value_serde.deserialize(self.topic, data)
        return ValueAndTimestamp(value, timestamp) if self.timestamped else value

    def items(self, pairs: Pairs, value: Callable[[bytes], Any]) -> Iterator[tuple[Any, Any]]:
        """Keys and values of a key-value store."""
        decode, topic = self.key_serde.deserialize, self.topic
        return ((decode(topic, key), value(stored)) for key, stored in pairs)

    def starts(self, pairs: Pairs, value: Callable[[bytes], Any]) -> Iterator[tuple[int, Any]]:
        """The starts of windows, and their values."""
        return ((WINDOWS.time_of(key), value(stored)) for key, stored in pairs)

    def windows(self, pairs: Pairs, value: Callable[[bytes], Any]) -> Iterator[tuple[Any, Any]]:
        """The windowed keys of a window or a session store, and their values."""
        layout = SESSIONS if self.shape == "session" else WINDOWS
        decode = StoredKeySerde(self.key_serde, layout, self.window_size_ms).deserialize
        return ((decode(self.topic, key), value(stored)) for key, stored in pairs)

    def versions(self, pairs: Pairs) -> Iterator[VersionedRecord]:
        """The versions of a key."""
        for times, data in pairs:
            timestamp, valid_to = VERSION.unpack(times)
            value = self.value_serde.deserialize(self.topic, data)
            until = None if valid_to == STILL_VALID else valid_to
            yield VersionedRecord(value, timestamp, until)


def count_of(pairs: Pairs) -> int:
    """The count that all pairs together give, as a Java long has it."""
    total: int = sum(COUNT.unpack(count)[0] for _, count in pairs)
    return min(_LARGEST_COUNT, total)


def codec_of(builder: StoreBuilder, topic: str) -> StoreCodec | None:
    """How a store is asked.

    Args:
        builder: of the store, resolved.
        topic: of its changelog, as serdes are told.

    Returns:
        None for stores that only the engine reads.
    """
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
class Plan:
    """A query, ready to be read.

    Args:
        read: what the store is asked for.
        finish: makes the answer of the pairs that it gives.
        is_iterated: whether the answer is an iterator, which may come in pages.
    """

    read: Read
    finish: Callable[[Pairs], Any]
    is_iterated: bool


def plan(query: q.Query, codec: StoreCodec) -> Plan | None:
    """What to read for a query; None if stores of this kind do not know it.

    Which store knows which query, and with timestamps or without, follows Kafka Streams' metered
    stores.

    Raises:
        NullKeyError: the key is None.
        SerializationError: a key does not fit the store's serde.
        ValueError: a stretch of time ends before it begins.
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


def _key_value(query: q.Query, codec: StoreCodec) -> Plan | None:
    match query:
        case q.TimestampedKeyQuery() | q.TimestampedRangeQuery() if not codec.timestamped:
            return None
        case q.KeyQuery(key, skip_cache) | q.TimestampedKeyQuery(key, skip_cache):
            value = codec.value if isinstance(query, q.KeyQuery) else codec.timed_value
            read = Read(ReadKind.GET, codec.key(key), past_cache=skip_cache)
            return Plan(read, partial(_first_value, value=value), is_iterated=False)
        case q.RangeQuery(lo, hi, descending) | q.TimestampedRangeQuery(lo, hi, descending):
            value = codec.value if isinstance(query, q.RangeQuery) else codec.timed_value
            read = Read(
                ReadKind.RANGE,
                codec.key_or_none(lo),
                codec.key_or_none(hi),
                reverse=descending,
                past_cache=True,
            )
            return Plan(read, partial(codec.items, value=value), is_iterated=True)
        case _:
            return None


def _window(query: q.Query, codec: StoreCodec) -> Plan | None:
    value = codec.timed_value
    match query:
        case q.WindowKeyQuery(key, first, last):
            read = Read(ReadKind.WINDOWS, codec.key(key), first=first, last=last, past_cache=True)
            return Plan(read, partial(codec.starts, value=value), is_iterated=True)
        case q.WindowRangeQuery(first, last):
            read = Read(ReadKind.WINDOW_RANGE, first=first, last=last, past_cache=True)
            return Plan(read, partial(codec.windows, value=value), is_iterated=True)
        case _:
            return None


def _session(query: q.Query, codec: StoreCodec) -> Plan | None:
    if not isinstance(query, q.SessionsOfKeyQuery):
        return None
    read = Read(ReadKind.SESSIONS, codec.key(query.key), past_cache=True)
    return Plan(read, partial(codec.windows, value=codec.value), is_iterated=True)


def _versioned(query: q.Query, codec: StoreCodec) -> Plan | None:
    match query:
        case q.VersionedKeyQuery(key, as_of):
            read = Read(ReadKind.VERSION, codec.key(key), first=as_of)
            return Plan(read, partial(_first_version, codec=codec), is_iterated=False)
        case q.MultiVersionedKeyQuery(key, first, last, descending):
            if first is not None and last is not None and first > last:
                raise ValueError(
                    f"Versions were asked for from {first} to {last}: the first time must not be "
                    "later than the last one."
                )
            newest_first = descending is not False
            read = Read(
                ReadKind.VERSIONS, codec.key(key), first=first, last=last, reverse=newest_first
            )
            return Plan(read, codec.versions, is_iterated=True)
        case _:
            return None


def _first_value(pairs: Pairs, value: Callable[[bytes], Any]) -> Any:
    return next((value(stored) for _, stored in pairs), None)


def _first_version(pairs: Pairs, codec: StoreCodec) -> VersionedRecord | None:
    return next(codec.versions(pairs), None)
