"""What is in stores: single keys, and pages of ranges, windows, sessions and versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final

from millstream.query.requests.answers import FailureReason, QueryResult, StateQueryRequest
from millstream.query.requests.queries import (
    KeyQuery,
    MultiVersionedKeyQuery,
    Query,
    TimestampedKeyQuery,
    VersionedKeyQuery,
)
from millstream.query.store_types import QueryableStoreType, QueryableStoreTypes, S
from millstream.record import ValueAndTimestamp
from millstream.server.cursors import Cursor
from millstream.server.forms import plain
from millstream.server.http_error import HttpError
from millstream.server.pages import Entries, Entry, page_of
from millstream.server.parameters import Parameter, bad_request
from millstream.server.routes.keys import KEY, KEY_AS, STORE, given_key
from millstream.server.routing import Asked, Endpoint
from millstream.server.served import Served, known_place
from millstream.server.workers import Workers, answered_on
from millstream.state.queries.codec import Shape, StoreCodec
from millstream.state.windows.window_keys import LAST_NUMBER, session_key, window_key
from millstream.windowed import MAX_TIME_MS

_STALE: Final = Parameter(
    "stale",
    "Whether copies may answer as well, which may be behind: standbys, and what is restored.",
    kind="boolean",
    default=False,
)
_LIMIT: Final = Parameter(
    "limit", "The most entries of a page.", kind="integer", default=100, least=1, most=1_000
)
_CURSOR: Final = Parameter("cursor", "Where to go on: what the page before had as its cursor.")
_DESCENDING: Final = Parameter(
    "descending", "Whether the order is the opposite one.", kind="boolean", default=False
)
_FROM_KEY: Final = Parameter("from", "The first key, itself included.")
_TO_KEY: Final = Parameter("to", "The last key, itself included.")
_FROM: Final = Parameter(
    "from", "The first start of a window, in milliseconds since the epoch.", kind="integer"
)
_TO: Final = Parameter("to", "The last one, itself included.", kind="integer")
_FROM_TIME: Final = Parameter(
    "from", "The first time, in milliseconds since the epoch.", kind="integer"
)
_TO_TIME: Final = Parameter("to", "The last one, itself included.", kind="integer")
_AS_OF: Final = Parameter(
    "as_of", "The only time that matters, in place of the two.", kind="integer"
)
_PAGED: Final = (KEY_AS, _STALE, _LIMIT, _CURSOR)
_FAILURES: Final = frozenset({404})
_RETRY_MS: Final = 500


class StoreRoutes:
    """Everything under `/stores`.

    Args:
        served: whose stores.
        workers: what waits for their answers.
    """

    def __init__(self, served: Served, workers: Workers) -> None:
        self._served = served
        self._workers = workers

    def endpoints(self) -> list[Endpoint]:
        """All of them."""
        return [
            self._get("/stores", self._stores, "The stores of the topology.", "Stores"),
            self._get(
                "/stores/{store}/keys/{key}",
                self._key,
                "The value of a key; of a versioned store the latest.",
                "Found",
                STORE,
                KEY,
                KEY_AS,
                _STALE,
            ),
            self._get(
                "/stores/{store}/range",
                self._range,
                "A page of the keys of a key-value store, partition by partition, in the order of "
                "the serialized keys.",
                "Page",
                *(STORE, _FROM_KEY, _TO_KEY, *_PAGED, _DESCENDING),
            ),
            self._get(
                "/stores/{store}/windows",
                self._all_windows,
                "A page of the windows of all keys.",
                "Page",
                *(STORE, _FROM, _TO, *_PAGED, _DESCENDING),
            ),
            self._get(
                "/stores/{store}/windows/{key}",
                self._windows,
                "A page of the windows of a key, by their starts.",
                "Page",
                *(STORE, KEY, _FROM, _TO, *_PAGED, _DESCENDING),
            ),
            self._get(
                "/stores/{store}/sessions/{key}",
                self._sessions,
                "A page of the sessions of a key.",
                "Page",
                *(STORE, KEY, *_PAGED, _DESCENDING),
            ),
            self._get(
                "/stores/{store}/versions/{key}",
                self._versions,
                "A page of the versions of a key, the newest first.",
                "Page",
                *(STORE, KEY, _FROM_TIME, _TO_TIME, _AS_OF, *_PAGED),
                Parameter(
                    "descending",
                    "Whether the newest comes first.",
                    kind="boolean",
                    default=True,
                ),
            ),
        ]

    def _get(
        self,
        path: str,
        work: Callable[[Asked], Any],
        summary: str,
        schema: str,
        *parameters: Parameter,
    ) -> Endpoint:
        return Endpoint(
            "GET",
            path,
            answered_on(self._workers, work),
            summary,
            schema,
            parameters=parameters,
            failures=_FAILURES if parameters else frozenset(),
        )

    # --- single values ---------------------------------------------------------------------------

    def _stores(self, _: Asked) -> Any:
        return self._served.stores()

    def _key(self, asked: Asked) -> Any:
        codec = self._codec(asked, "key-value", "versioned")
        key = given_key(asked, codec)
        partition, host, value, position = self._value(codec, key, stale=asked.values["stale"])
        if value is None:
            raise HttpError(404, "KEY_NOT_FOUND", f"Store {codec.name} has no such key.")
        shown = plain(key)
        found = {"key": shown, "partition": partition, "host": host, "position": position}
        return found | _entry(codec, shown, value)

    def _value(
        self, codec: StoreCodec, key: Any, *, stale: bool
    ) -> tuple[int | None, Any, Any, dict[str, Any]]:
        """Partition, host, value and position of a key."""
        name = codec.name
        if self._served.is_global(name):
            view = self._served.store(name, _key_value(codec), None, stale=stale)
            return None, None, view.get(key), {}
        query: Query = KeyQuery(key)
        if codec.shape == "versioned":
            query = VersionedKeyQuery(key)
        elif codec.timestamped:
            query = TimestampedKeyQuery(key)
        request = StateQueryRequest.in_store(name).with_query(query)
        if not stale:
            request = request.require_active()
        place = known_place(self._served, name, key)
        if place is not None:
            found = self._found(request.with_partitions({place.partition}))
            if found is not None:
                partition, answer = found
                # An instance that is not announced has no name.
                host = None if place.active_host.port < 0 else str(place.active_host)
                return partition, host, answer.result, answer.position.as_dict()
        # Who has written the input may have had another partitioner.
        found = self._found(request)
        if found is None:
            return None, None, None, {}
        partition, answer = found
        return partition, None, answer.result, answer.position.as_dict()

    def _found(self, request: StateQueryRequest) -> tuple[int, QueryResult] | None:
        """The answer of the partition that has something; None if none has.

        Raises:
            HttpError: it may be in one that has not answered.
        """
        answers = self._served.query(request).partition_results
        for partition, answer in answers.items():
            if answer.is_success and answer.result is not None:
                return partition, answer
        for answer in answers.values():
            _check_answered(request.store, answer)
        if not answers:
            raise _not_ready(f"No partition of store {request.store} has answered.")
        return None

    # --- pages -----------------------------------------------------------------------------------

    def _range(self, asked: Asked) -> Any:
        codec = self._codec(asked, "key-value")
        values = asked.values
        lo, hi = (
            None if values[end] is None else given_key(asked, codec, end) for end in ("from", "to")
        )
        kind, descending = _key_value(codec), values["descending"]

        def entries(partition: int | None, after: Cursor | None) -> Iterator[Entry]:
            first, last = lo, hi
            if after is not None:
                boundary = codec.key_serde.deserialize(codec.topic, after.key)
                first, last = (lo, boundary) if descending else (boundary, hi)
            view = self._store(asked, codec, kind, partition)
            items = view.reverse_range(first, last) if descending else view.range(first, last)
            with closing(items):
                for key, value in items:
                    yield Entry(codec.key(key), _entry(codec, plain(key), value))

        return self._page(asked, codec, entries)

    def _all_windows(self, asked: Asked) -> Any:
        codec = self._codec(asked, "window")
        first, last = _times(asked)
        kind, descending = _windowed(codec), asked.values["descending"]

        def entries(partition: int | None, after: Cursor | None) -> Iterator[Entry]:
            begin = None
            if after is not None:
                number = LAST_NUMBER if descending else 0
                begin = window_key(after.key, after.start_ms, number)
            view = self._store(asked, codec, kind, partition, begin)
            fetch = view.backward_fetch_all if descending else view.fetch_all
            with closing(fetch(first, last)) as items:
                for windowed, value in items:
                    yield _windowed_entry(codec, windowed, value)

        return self._page(asked, codec, entries)

    def _windows(self, asked: Asked) -> Any:
        codec = self._codec(asked, "window")
        key = given_key(asked, codec)
        first, last = _times(asked)
        kind, descending = _windowed(codec), asked.values["descending"]
        serialized, shown = codec.key(key), plain(key)

        def entries(partition: int | None, after: Cursor | None) -> Iterator[Entry]:
            view = self._store(asked, codec, kind, partition)
            begin, end = first, last
            if after is not None:
                begin, end = (first, after.start_ms) if descending else (after.start_ms, last)
            fetch = view.backward_fetch if descending else view.fetch
            with closing(fetch(key, begin, end)) as items:
                for start_ms, value in items:
                    end_ms = min(start_ms + codec.window_size_ms, MAX_TIME_MS)
                    entry = _entry(codec, shown, value)
                    entry |= {"window_start": start_ms, "window_end": end_ms}
                    yield Entry(serialized, entry, start_ms, end_ms)

        return self._page(asked, codec, entries, key)

    def _sessions(self, asked: Asked) -> Any:
        codec = self._codec(asked, "session")
        key = given_key(asked, codec)
        kind = QueryableStoreTypes.session()

        def entries(partition: int | None, after: Cursor | None) -> Iterator[Entry]:
            begin = None
            if after is not None:
                begin = session_key(after.key, after.start_ms, after.end_ms)
            view = self._store(asked, codec, kind, partition, begin)
            fetch = view.backward_fetch if asked.values["descending"] else view.fetch
            with closing(fetch(key)) as items:
                for windowed, value in items:
                    yield _windowed_entry(codec, windowed, value)

        return self._page(asked, codec, entries, key)

    def _versions(self, asked: Asked) -> Any:
        codec = self._codec(asked, "versioned")
        key = given_key(asked, codec)
        values = asked.values
        first, last = values["from"], values["to"]
        if values["as_of"] is not None:
            if first is not None or last is not None:
                raise bad_request("as_of stands in the place of from and to: give it alone.")
            first = last = values["as_of"]
        _check_order(first, last)
        descending = values["descending"]
        serialized, shown = codec.key(key), plain(key)

        def entries(partition: int | None, after: Cursor | None) -> Iterator[Entry]:
            begin, end = first, last
            if after is not None and descending:
                end = max(after.start_ms, first or 0)
            elif after is not None:
                begin = max(after.start_ms, first or 0)
            query = MultiVersionedKeyQuery(key, begin, end, descending)
            request = StateQueryRequest.in_store(codec.name).with_query(query)
            if partition is not None:
                request = request.with_partitions({partition})
            if not values["stale"]:
                request = request.require_active()
            for answer in self._served.query(request).partition_results.values():
                _check_answered(codec.name, answer)
                with closing(answer.result) as versions:
                    for each in versions:
                        # Valid at that time, but told of before.
                        if after is not None and not descending and each.timestamp < after.start_ms:
                            continue
                        entry = _entry(codec, shown, each) | {"valid_to": each.valid_to}
                        yield Entry(serialized, entry, each.timestamp)

        return self._page(asked, codec, entries, key)

    def _page(self, asked: Asked, codec: StoreCodec, entries: Entries, key: Any = None) -> Any:
        """A page of all partitions; a key is looked for first where it should be."""
        place = None if key is None else known_place(self._served, codec.name, key)
        if place is not None and asked.values["cursor"] is None:
            page = page_of(entries, [place.partition], asked)
            if page["entries"]:
                return page
        return page_of(entries, self._served.partitions_of(codec.name), asked)

    # --- stores ----------------------------------------------------------------------------------

    def _codec(self, asked: Asked, *shapes: Shape) -> StoreCodec:
        """How the store is asked, if it is one of those that can be."""
        name = asked.values["store"]
        codec = self._served.codec_of(name)
        if codec is None or codec.shape not in shapes:
            is_one = "one of the engine's own" if codec is None else f"a {codec.shape} store"
            raise HttpError(
                400,
                "WRONG_STORE_KIND",
                f"Store {name} is {is_one}; this is for {' and '.join(shapes)} stores.",
            )
        return codec

    def _store(
        self,
        asked: Asked,
        codec: StoreCodec,
        kind: QueryableStoreType[S],
        partition: int | None,
        begin: bytes | None = None,
    ) -> S:
        stale = asked.values["stale"]
        return self._served.store(codec.name, kind, partition, stale=stale, begin=begin)


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
        return {"key": key, "value": plain(value.value), "timestamp": value.timestamp}
    return {"key": key, "value": plain(value)}


def _windowed_entry(codec: StoreCodec, windowed: Any, value: Any) -> Entry:
    window = windowed.window
    entry = _entry(codec, plain(windowed.key), value)
    entry |= {"window_start": window.start_ms, "window_end": window.end_ms}
    return Entry(codec.key(windowed.key), entry, window.start_ms, window.end_ms)


def _times(asked: Asked) -> tuple[int, int]:
    first, last = asked.values["from"], asked.values["to"]
    _check_order(first, last)
    return first or 0, MAX_TIME_MS if last is None else last


def _check_order(first: int | None, last: int | None) -> None:
    if first is not None and last is not None and first > last:
        raise bad_request(f"from ({first}) is later than to ({last}).")


def _check_answered(store: str, answer: QueryResult) -> None:
    """Whether a partition has said something.

    Raises:
        HttpError: it has not; it says what to do.
    """
    reason, message = answer.failure_reason, str(answer.failure_message)
    if reason is None:
        return
    if reason in (FailureReason.NOT_ACTIVE, FailureReason.NOT_PRESENT):
        raise _not_ready(message)
    if reason is FailureReason.DOES_NOT_EXIST:
        raise HttpError(404, "UNKNOWN_PARTITION", message)
    if reason is FailureReason.UNKNOWN_QUERY_TYPE:
        raise HttpError(400, "WRONG_STORE_KIND", message)
    raise HttpError(503, "STORE_FAILED", f"Store {store} has not answered: {message}")


def _not_ready(message: str) -> HttpError:
    return HttpError(503, "STORE_NOT_READY", message, retry_after_ms=_RETRY_MS)
