"""How stores of each kind are read for queries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from millstream.state.caches.record_cache import RecordCache
from millstream.state.queries.reads import (
    COUNT,
    STILL_VALID,
    VERSION,
    Read,
    ReadKind,
    nothing,
    one,
)
from millstream.state.storage.bytes_store import (
    ByteItems,
    BytesStore,
    end_including,
    end_of_prefix,
)
from millstream.state.storage.timed_store import TimedReads, from_place
from millstream.state.versioned.versions import Version, VersionedBytes
from millstream.state.windows.session_table import SessionTable
from millstream.state.windows.window_keys import session_key, session_of, window_key
from millstream.state.windows.window_table import WindowTable
from millstream.windowed import MAX_TIME_MS


class StoreReader(Protocol):
    """Reads a store, as it is at the time of the call."""

    def read(self, asked: Read) -> ByteItems | None:
        """The pairs of stored keys and values; None if the store is of another kind.

        Where at most one value is asked for, its key is the one that was asked.
        """
        ...


class KeyValueReader:
    """Reads a key-value store.

    Args:
        layers: the topmost layer.
        base: the one below the cache.
        cache: the record cache, None without caching.
    """

    def __init__(self, layers: BytesStore, base: BytesStore, cache: RecordCache | None) -> None:
        self._layers = layers
        self._base = base
        self._get = layers.get if cache is None else cache.peek

    def read(self, asked: Read) -> ByteItems | None:
        """The pairs; see `StoreReader`."""
        layer = self._base if asked.past_cache else self._layers
        key = asked.key
        match asked.kind:
            case ReadKind.GET:
                assert key is not None
                return one(key, self._base.get(key) if asked.past_cache else self._get(key))
            case ReadKind.RANGE:
                if key is not None and asked.upto is not None and key > asked.upto:
                    return nothing()
                return layer.scan(key, end_including(asked.upto), reverse=asked.reverse)
            case ReadKind.PREFIX:
                assert key is not None
                return layer.scan(key, end_of_prefix(key))
            case ReadKind.COUNT:
                return one(b"", COUNT.pack(layer.approximate_num_entries()))
            case _:
                return None


class WindowReader:
    """Reads a window store.

    Args:
        table: the store as operators see it.
        base: what lies below the cache.
    """

    def __init__(self, table: WindowTable, base: TimedReads) -> None:
        self._table = table
        self._base = base

    def read(self, asked: Read) -> ByteItems | None:
        """The pairs; see `StoreReader`."""
        layer: WindowTable | TimedReads = self._base if asked.past_cache else self._table
        first = 0 if asked.first is None else asked.first
        last = MAX_TIME_MS if asked.last is None else asked.last
        match asked.kind:
            case ReadKind.WINDOW:
                assert asked.key is not None
                if first < 0:
                    return nothing()
                return one(window_key(asked.key, first), self._table.fetch_raw(asked.key, first))
            case ReadKind.WINDOWS:
                assert asked.key is not None
                pairs = layer.read_key(asked.key, first, last)
                return _each(reversed(pairs) if asked.reverse else pairs)
            case ReadKind.WINDOW_RANGE:
                return layer.read_keys(
                    asked.key, asked.upto, first, last, reverse=asked.reverse, begin=asked.begin
                )
            case _:
                return None


class SessionReader:
    """Reads a session store.

    Args:
        table: the store as operators see it.
        base: what lies below the cache.
    """

    def __init__(self, table: SessionTable, base: TimedReads) -> None:
        self._table = table
        self._base = base

    def read(self, asked: Read) -> ByteItems | None:
        """The pairs; see `StoreReader`."""
        first = 0 if asked.first is None else asked.first
        last = MAX_TIME_MS if asked.last is None else asked.last
        key = asked.key
        match asked.kind:
            case ReadKind.SESSION:
                assert key is not None
                if first < 0:
                    return nothing()
                return one(session_key(key, first, last), self._table.fetch_raw(key, first, last))
            case ReadKind.SESSIONS:
                assert key is not None
                pairs = (
                    self._base.read_key(key, first, MAX_TIME_MS)
                    if asked.past_cache
                    else self._table.read_key(key, first)
                )
                if asked.begin is not None:
                    pairs = from_place(pairs, asked.begin, self._base.place_of, asked.reverse)
                return _started(reversed(pairs) if asked.reverse else pairs, last)
            case ReadKind.SESSION_RANGE:
                layer = self._base if asked.past_cache else self._table
                items = layer.read_keys(
                    key,
                    asked.upto,
                    first,
                    MAX_TIME_MS,
                    reverse=asked.reverse,
                    begin=asked.begin,
                )
                return _started(items, last)
            case _:
                return None


class VersionedReader:
    """Reads a versioned store. The keys that it gives are the times of the versions.

    Args:
        versions: the versions of all keys.
    """

    def __init__(self, versions: VersionedBytes) -> None:
        self._versions = versions

    def read(self, asked: Read) -> ByteItems | None:
        """The pairs; see `StoreReader`."""
        key, first = asked.key, asked.first
        match asked.kind:
            case ReadKind.VERSION:
                assert key is not None
                found = (
                    self._versions.get_latest(key)
                    if first is None
                    else self._versions.get_as_of(key, first)
                )
                return _versions([] if found is None else [found])
            case ReadKind.VERSIONS:
                assert key is not None
                several = self._versions.get_between(key, first, asked.last)
                return _versions(several if asked.reverse is False else several[::-1])
            case _:
                return None


def _each(pairs: Iterable[tuple[bytes, bytes]]) -> ByteItems:
    yield from pairs


def _started(pairs: Iterable[tuple[bytes, bytes]], latest_start: int) -> ByteItems:
    for stored, value in pairs:
        if session_of(stored)[0] <= latest_start:
            yield stored, value


def _versions(versions: Iterable[Version]) -> ByteItems:
    for version in versions:
        if version.value is not None:
            valid_to = STILL_VALID if version.valid_to is None else version.valid_to
            yield VERSION.pack(version.timestamp, valid_to), version.value
