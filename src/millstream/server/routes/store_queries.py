"""Queries of stores: single keys, ranges, windows, sessions and versions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any, Final

from millstream.query.views import QueryableStoreType, QueryableStoreTypes, S
from millstream.record import ValueAndTimestamp
from millstream.server.backend import ServerBackend, known_location
from millstream.server.json_codec import KEY, KEY_AS, STORE, given_key, to_json_value
from millstream.server.paged_answers import EntryReader, PageCursor, StoreEntry, read_page
from millstream.server.parameters import Parameter, bad_request
from millstream.server.request_routing import Endpoint, HttpRequest
from millstream.server.request_threads import RequestThreads, json_endpoint
from millstream.server.responses import HttpError
from millstream.state.queries.codec import StoreCodec, StoreShape
from millstream.state.queries.requests.queries import (
    KeyQuery,
    MultiVersionedKeyQuery,
    Query,
    TimestampedKeyQuery,
    VersionedKeyQuery,
)
from millstream.state.queries.requests.query_results import (
    FailureReason,
    QueryResult,
    StateQueryRequest,
)
from millstream.state.windows.window_keys import MAX_SEQNUM, session_key, window_key
from millstream.windowed import MAX_TIME_MS

_STALE: Final = Parameter(
    "stale",
    "Whether to also read standby and restoring copies, which may lag.",
    kind="boolean",
    default=False,
)
_LIMIT: Final = Parameter(
    "limit",
    "The maximum number of entries on a page.",
    kind="integer",
    default=100,
    minimum=1,
    maximum=1_000,
)
_CURSOR: Final = Parameter("cursor", "The cursor of the previous page.")
_DESCENDING: Final = Parameter(
    "descending", "Whether to reverse the order.", kind="boolean", default=False
)
_FROM_KEY: Final = Parameter("from", "The first key, inclusive.")
_TO_KEY: Final = Parameter("to", "The last key, inclusive.")
_FROM: Final = Parameter(
    "from", "The earliest window start, in milliseconds since the epoch.", kind="integer"
)
_TO: Final = Parameter("to", "The latest window start, inclusive.", kind="integer")
_FROM_TIME: Final = Parameter(
    "from", "The earliest time, in milliseconds since the epoch.", kind="integer"
)
_TO_TIME: Final = Parameter("to", "The latest time, inclusive.", kind="integer")
_AS_OF: Final = Parameter(
    "as_of", "A single point in time, instead of `from` and `to`.", kind="integer"
)
_PAGED: Final = (KEY_AS, _STALE, _LIMIT, _CURSOR)
_RETRY_MS: Final = 500


class StoreRoutes:
    """The endpoints under `/stores`."""

    def __init__(self, backend: ServerBackend, threads: RequestThreads) -> None:
        self._backend = backend
        self._threads = threads

    def endpoints(self) -> list[Endpoint]:
        get = partial(json_endpoint, self._threads)
        return [
            get(
                "/stores", lambda _: self._backend.stores(), "The stores of the topology.", "Stores"
            ),
            get(
                "/stores/{store}/keys/{key}",
                self._key,
                "The value of a key; for a versioned store, the latest version.",
                "Found",
                *(STORE, KEY, KEY_AS, _STALE),
            ),
            get(
                "/stores/{store}/range",
                self._range,
                "A page of the entries of a key-value store, ordered by partition and serialized "
                "key.",
                "Page",
                *(STORE, _FROM_KEY, _TO_KEY, *_PAGED, _DESCENDING),
            ),
            get(
                "/stores/{store}/windows",
                self._all_windows,
                "A page of the windows of all keys.",
                "Page",
                *(STORE, _FROM, _TO, *_PAGED, _DESCENDING),
            ),
            get(
                "/stores/{store}/windows/{key}",
                self._windows,
                "A page of the windows of a key, ordered by start.",
                "Page",
                *(STORE, KEY, _FROM, _TO, *_PAGED, _DESCENDING),
            ),
            get(
                "/stores/{store}/sessions/{key}",
                self._sessions,
                "A page of the sessions of a key.",
                "Page",
                *(STORE, KEY, *_PAGED, _DESCENDING),
            ),
            get(
                "/stores/{store}/versions/{key}",
                self._versions,
                "A page of the versions of a key, newest first.",
                "Page",
                *(STORE, KEY, _FROM_TIME, _TO_TIME, _AS_OF, *_PAGED),
                Parameter(
                    "descending",
                    "Whether the newest version comes first.",
                    kind="boolean",
                    default=True,
                ),
            ),
        ]

    # --- single values ---------------------------------------------------------------------------

    def _key(self, request: HttpRequest) -> Any:
        codec = self._codec(request, "key-value", "versioned")
        key = given_key(request, codec)
        partition, host, value, position = self._value(codec, key, stale=request.values["stale"])
        if value is None:
            raise HttpError(404, "KEY_NOT_FOUND", f"Store {codec.name} does not have this key.")
        shown = to_json_value(key)
        found = {"key": shown, "partition": partition, "host": host, "position": position}
        return found | _entry(codec, shown, value)

    def _value(
        self, codec: StoreCodec, key: Any, *, stale: bool
    ) -> tuple[int | None, Any, Any, dict[str, Any]]:
        """Return partition, host, value and position of a key."""
        name = codec.name
        if self._backend.is_global(name):
            view = self._backend.store(name, _key_value(codec), None, stale=stale)
            return None, None, view.get(key), {}
        query: Query = KeyQuery(key)
        if codec.shape == "versioned":
            query = VersionedKeyQuery(key)
        elif codec.timestamped:
            query = TimestampedKeyQuery(key)
        state_query = StateQueryRequest.in_store(name).with_query(query)
        if not stale:
            state_query = state_query.require_active()
        place = known_location(self._backend, name, key)
        if place is not None:
            found = self._found(state_query.with_partitions({place.partition}))
            if found is not None:
                partition, answer = found
                # An instance without an HTTP server has no address.
                host = None if place.active_host.port < 0 else str(place.active_host)
                return partition, host, answer.result, answer.position.as_dict()
        # The writer of the input may have used another partitioner.
        found = self._found(state_query)
        if found is None:
            return None, None, None, {}
        partition, answer = found
        return partition, None, answer.result, answer.position.as_dict()

    def _found(self, request: StateQueryRequest) -> tuple[int, QueryResult] | None:
        """Return the result of the partition that has a value, or None."""
        answers = self._backend.query(request).partition_results
        for partition, answer in answers.items():
            if answer.is_success and answer.result is not None:
                return partition, answer
        for answer in answers.values():
            _check_answered(request.store, answer)
        if not answers:
            raise _not_ready(f"No partition of store {request.store} responded.")
        return None

    # --- pages -----------------------------------------------------------------------------------

    def _range(self, request: HttpRequest) -> Any:
        codec = self._codec(request, "key-value")
        values = request.values
        lo, hi = (
            None if values[end] is None else given_key(request, codec, end)
            for end in ("from", "to")
        )
        kind, descending = _key_value(codec), values["descending"]

        def entries(partition: int | None, after: PageCursor | None) -> Iterator[StoreEntry]:
            first, last = lo, hi
            if after is not None:
                boundary = codec.key_serde.deserialize(codec.topic, after.key)
                first, last = (lo, boundary) if descending else (boundary, hi)
            view = self._store(request, codec, kind, partition)
            items = view.reverse_range(first, last) if descending else view.range(first, last)
            with closing(items):
                for key, value in items:
                    yield StoreEntry(codec.key(key), _entry(codec, to_json_value(key), value))

        return self._page(request, codec, entries)

    def _all_windows(self, request: HttpRequest) -> Any:
        codec = self._codec(request, "window")
        first, last = _times(request)
        kind, descending = _windowed(codec), request.values["descending"]

        def entries(partition: int | None, after: PageCursor | None) -> Iterator[StoreEntry]:
            begin = None
            if after is not None:
                number = MAX_SEQNUM if descending else 0
                begin = window_key(after.key, after.start_ms, number)
            view = self._store(request, codec, kind, partition, begin)
            fetch = view.backward_fetch_all if descending else view.fetch_all
            with closing(fetch(first, last)) as items:
                for windowed, value in items:
                    yield _windowed_entry(codec, windowed, value)

        return self._page(request, codec, entries)

    def _windows(self, request: HttpRequest) -> Any:
        codec = self._codec(request, "window")
        key = given_key(request, codec)
        first, last = _times(request)
        kind, descending = _windowed(codec), request.values["descending"]
        serialized, shown = codec.key(key), to_json_value(key)

        def entries(partition: int | None, after: PageCursor | None) -> Iterator[StoreEntry]:
            view = self._store(request, codec, kind, partition)
            begin, end = first, last
            if after is not None:
                begin, end = (first, after.start_ms) if descending else (after.start_ms, last)
            fetch = view.backward_fetch if descending else view.fetch
            with closing(fetch(key, begin, end)) as items:
                for start_ms, value in items:
                    end_ms = min(start_ms + codec.window_size_ms, MAX_TIME_MS)
                    entry = _entry(codec, shown, value)
                    entry |= {"window_start": start_ms, "window_end": end_ms}
                    yield StoreEntry(serialized, entry, start_ms, end_ms)

        return self._page(request, codec, entries, key)

    def _sessions(self, request: HttpRequest) -> Any:
        codec = self._codec(request, "session")
        key = given_key(request, codec)
        kind = QueryableStoreTypes.session()

        def entries(partition: int | None, after: PageCursor | None) -> Iterator[StoreEntry]:
            begin = None
            if after is not None:
                begin = session_key(after.key, after.start_ms, after.end_ms)
            view = self._store(request, codec, kind, partition, begin)
            fetch = view.backward_fetch if request.values["descending"] else view.fetch
            with closing(fetch(key)) as items:
                for windowed, value in items:
                    yield _windowed_entry(codec, windowed, value)

        return self._page(request, codec, entries, key)

    def _versions(self, request: HttpRequest) -> Any:
        codec = self._codec(request, "versioned")
        key = given_key(request, codec)
        values = request.values
        first, last = values["from"], values["to"]
        if values["as_of"] is not None:
            if first is not None or last is not None:
                raise bad_request("as_of replaces from and to: do not combine them.")
            first = last = values["as_of"]
        _check_order(first, last)
        descending = values["descending"]
        serialized, shown = codec.key(key), to_json_value(key)

        def entries(partition: int | None, after: PageCursor | None) -> Iterator[StoreEntry]:
            begin, end = first, last
            if after is not None and descending:
                end = max(after.start_ms, first or 0)
            elif after is not None:
                begin = max(after.start_ms, first or 0)
            query = MultiVersionedKeyQuery(key, begin, end, descending)
            state_query = StateQueryRequest.in_store(codec.name).with_query(query)
            if partition is not None:
                state_query = state_query.with_partitions({partition})
            if not values["stale"]:
                state_query = state_query.require_active()
            for answer in self._backend.query(state_query).partition_results.values():
                _check_answered(codec.name, answer)
                with closing(answer.result) as versions:
                    for each in versions:
                        # This version is valid at the start time, but was already returned.
                        if after is not None and not descending and each.timestamp < after.start_ms:
                            continue
                        entry = _entry(codec, shown, each) | {"valid_to": each.valid_to}
                        yield StoreEntry(serialized, entry, each.timestamp)

        return self._page(request, codec, entries, key)

    def _page(
        self, request: HttpRequest, codec: StoreCodec, entries: EntryReader, key: Any = None
    ) -> Any:
        """Return a page of all partitions.

        The entries of a key are first read from the partition that the default partitioner chooses.
        """
        place = None if key is None else known_location(self._backend, codec.name, key)
        if place is not None and request.values["cursor"] is None:
            page = read_page(entries, [place.partition], request)
            if page["entries"]:
                return page
        return read_page(entries, self._backend.partitions_of(codec.name), request)

    # --- stores ----------------------------------------------------------------------------------

    def _codec(self, request: HttpRequest, *shapes: StoreShape) -> StoreCodec:
        name = request.values["store"]
        codec = self._backend.codec_of(name)
        if codec is None or codec.shape not in shapes:
            actual = "an internal store" if codec is None else f"a {codec.shape} store"
            raise HttpError(
                400,
                "WRONG_STORE_KIND",
                f"Store {name} is {actual}; this request requires a {' or '.join(shapes)} store.",
            )
        return codec

    def _store(
        self,
        request: HttpRequest,
        codec: StoreCodec,
        kind: QueryableStoreType[S],
        partition: int | None,
        begin: bytes | None = None,
    ) -> S:
        stale = request.values["stale"]
        return self._backend.store(codec.name, kind, partition, stale=stale, begin=begin)


def _key_value(codec: StoreCodec) -> QueryableStoreType[Any]:
    if codec.timestamped:
        return QueryableStoreTypes.timestamped_key_value()
    return QueryableStoreTypes.key_value()


def _windowed(codec: StoreCodec) -> QueryableStoreType[Any]:
    if codec.timestamped:
        return QueryableStoreTypes.timestamped_window()
    return QueryableStoreTypes.window()


def _entry(codec: StoreCodec, key: Any, value: Any) -> dict[str, Any]:
    is_dated = codec.timestamped and isinstance(value, ValueAndTimestamp)
    if is_dated or codec.shape == "versioned":
        return {"key": key, "value": to_json_value(value.value), "timestamp": value.timestamp}
    return {"key": key, "value": to_json_value(value)}


def _windowed_entry(codec: StoreCodec, windowed: Any, value: Any) -> StoreEntry:
    window = windowed.window
    entry = _entry(codec, to_json_value(windowed.key), value)
    entry |= {"window_start": window.start_ms, "window_end": window.end_ms}
    return StoreEntry(codec.key(windowed.key), entry, window.start_ms, window.end_ms)


def _times(request: HttpRequest) -> tuple[int, int]:
    first, last = request.values["from"], request.values["to"]
    _check_order(first, last)
    return first or 0, MAX_TIME_MS if last is None else last


def _check_order(first: int | None, last: int | None) -> None:
    if first is not None and last is not None and first > last:
        raise bad_request(f"from ({first}) is later than to ({last}).")


def _check_answered(store: str, answer: QueryResult) -> None:
    reason, message = answer.failure_reason, str(answer.failure_message)
    if reason is None:
        return
    if reason in (FailureReason.NOT_ACTIVE, FailureReason.NOT_PRESENT):
        raise _not_ready(message)
    if reason is FailureReason.DOES_NOT_EXIST:
        raise HttpError(404, "UNKNOWN_PARTITION", message)
    if reason is FailureReason.UNKNOWN_QUERY_TYPE:
        raise HttpError(400, "WRONG_STORE_KIND", message)
    raise HttpError(503, "STORE_FAILED", f"Store {store} did not respond: {message}")


def _not_ready(message: str) -> HttpError:
    return HttpError(503, "STORE_NOT_READY", message, retry_after_ms=_RETRY_MS)
