"""Reads of each kind of store for queries.

Each function returns pairs of stored keys and values from a snapshot of the store, or None if the
request is for another kind of store. A read of a single value returns it with the requested stored
key, except for versions (see `read_versions`).
"""

from __future__ import annotations

from collections.abc import Iterable

from millstream.state.caches.record_cache import RecordCache
from millstream.state.queries.read_requests import (
    COUNT,
    STILL_VALID,
    VERSION,
    ReadKind,
    ReadRequest,
    single_pair,
)
from millstream.state.storage.bytes_store import (
    ByteItems,
    BytesStore,
    end_including,
    end_of_prefix,
    iterate,
)
from millstream.state.storage.timed_store import ReadableTimedStore, from_stored_key
from millstream.state.versioned.versions import Version, VersionedBytes
from millstream.state.windows.session_table import SessionTable
from millstream.state.windows.window_keys import session_key, session_of, window_key
from millstream.state.windows.window_table import WindowTable
from millstream.windowed import MAX_TIME_MS


def read_key_values(
    layers: BytesStore, base: BytesStore, cache: RecordCache | None, request: ReadRequest
) -> ByteItems | None:
    """Read a key-value store, or only its lowest layer if the cache is skipped."""
    layer = base if request.skip_cache else layers
    key = request.key
    match request.kind:
        case ReadKind.GET:
            assert key is not None
            get = layer.get if cache is None or request.skip_cache else cache.peek
            return single_pair(key, get(key))
        case ReadKind.RANGE:
            if key is not None and request.last_key is not None and key > request.last_key:
                return iterate()
            return layer.scan(key, end_including(request.last_key), reverse=request.reverse)
        case ReadKind.PREFIX:
            assert key is not None
            return layer.scan(key, end_of_prefix(key))
        case ReadKind.COUNT:
            return single_pair(b"", COUNT.pack(layer.approximate_num_entries()))
        case _:
            return None


def read_windows(
    table: WindowTable, base: ReadableTimedStore, request: ReadRequest
) -> ByteItems | None:
    """Read a window store, or only its lowest layer if the cache is skipped."""
    layer: WindowTable | ReadableTimedStore = base if request.skip_cache else table
    first = 0 if request.first is None else request.first
    last = MAX_TIME_MS if request.last is None else request.last
    match request.kind:
        case ReadKind.WINDOW:
            assert request.key is not None
            if first < 0:
                return iterate()
            return single_pair(window_key(request.key, first), table.fetch_raw(request.key, first))
        case ReadKind.WINDOWS:
            assert request.key is not None
            pairs = layer.read_key(request.key, first, last)
            return iterate(reversed(pairs) if request.reverse else pairs)
        case ReadKind.WINDOW_RANGE:
            return layer.read_keys(
                request.key,
                request.last_key,
                first,
                last,
                reverse=request.reverse,
                begin=request.begin,
            )
        case _:
            return None


def read_sessions(
    table: SessionTable, base: ReadableTimedStore, request: ReadRequest
) -> ByteItems | None:
    """Read a session store, or only its lowest layer if the cache is skipped."""
    first = 0 if request.first is None else request.first
    last = MAX_TIME_MS if request.last is None else request.last
    key = request.key
    match request.kind:
        case ReadKind.SESSION:
            assert key is not None
            if first < 0:
                return iterate()
            return single_pair(session_key(key, first, last), table.fetch_raw(key, first, last))
        case ReadKind.SESSIONS:
            assert key is not None
            pairs = (
                base.read_key(key, first, MAX_TIME_MS)
                if request.skip_cache
                else table.read_key(key, first)
            )
            if request.begin is not None:
                pairs = from_stored_key(pairs, request.begin, base.sort_key_of, request.reverse)
            return _started_by(reversed(pairs) if request.reverse else pairs, last)
        case ReadKind.SESSION_RANGE:
            layer: SessionTable | ReadableTimedStore = base if request.skip_cache else table
            items = layer.read_keys(
                key,
                request.last_key,
                first,
                MAX_TIME_MS,
                reverse=request.reverse,
                begin=request.begin,
            )
            return _started_by(items, last)
        case _:
            return None


def read_versions(versions: VersionedBytes, request: ReadRequest) -> ByteItems | None:
    """Read a versioned store. The key of each pair is the validity of a version."""
    key, first = request.key, request.first
    match request.kind:
        case ReadKind.VERSION:
            assert key is not None
            found = versions.get_latest(key) if first is None else versions.get_as_of(key, first)
            return _versions([] if found is None else [found])
        case ReadKind.VERSIONS:
            assert key is not None
            several = versions.get_between(key, first, request.last)
            return _versions(several if request.reverse is False else several[::-1])
        case _:
            return None


def _started_by(pairs: Iterable[tuple[bytes, bytes]], latest_start: int) -> ByteItems:
    for stored, value in pairs:
        if session_of(stored)[0] <= latest_start:
            yield stored, value


def _versions(versions: Iterable[Version]) -> ByteItems:
    for version in versions:
        if version.value is not None:
            valid_to = STILL_VALID if version.valid_to is None else version.valid_to
            yield VERSION.pack(version.timestamp, valid_to), version.value
