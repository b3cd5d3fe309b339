"""The data of the console, as a document or as an event stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Final

import orjson
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from millstream.server.backend import ServerBackend
from millstream.server.request_routing import Endpoint, HttpRequest
from millstream.server.request_threads import RequestThreads, blocking_handler
from millstream.server.responses import HttpError, as_json

#: The maximum age of the document.
_MAX_AGE_S: Final = 0.8

#: The parts of a document as JSON, by name; objects are split into their members.
DocumentParts = Mapping[tuple[str, ...], bytes]
_POLL_INTERVAL_S: Final = 1.0
#: The keepalive interval, which lets both sides detect a lost connection.
_KEEPALIVE_S: Final = 15.0
_EVENT_STREAM_TYPE: Final = "text/event-stream"
_MAX_STREAMS: Final = 16


class ConsoleFeed:
    """Builds the current document once for all connected consoles, if there are any.

    Must only be used on the server's event loop.
    """

    def __init__(self, backend: ServerBackend, threads: RequestThreads) -> None:
        self._backend = backend
        self._threads = threads
        self._build_lock = asyncio.Lock()
        self._parts: DocumentParts = {}
        self._built_at = float("-inf")

    async def parts(self) -> DocumentParts:
        """Return the parts; rebuild them if they are older than `_MAX_AGE_S`."""
        async with self._build_lock:
            if time.monotonic() - self._built_at > _MAX_AGE_S:
                self._parts = await self._threads.run(self._build)
                self._built_at = time.monotonic()
            return self._parts

    def _build(self) -> DocumentParts:
        parts: dict[tuple[str, ...], bytes] = {}
        for name, part in self._backend.console_state().items():
            if isinstance(part, Mapping):
                parts |= {(name, inner): as_json(each) for inner, each in part.items()}
            else:
                parts[name,] = as_json(part)
        return parts


def change_event(before: DocumentParts | None, now: DocumentParts) -> bytes:
    """Return the event that updates a client; empty if nothing has changed.

    The event is a `state` with the whole document, or a `change` with the changed parts: a changed
    part replaces the previous one, and members of an object replace the members with the same name.
    """
    if before is None or before.keys() != now.keys():
        return b"event: state\ndata: " + _join(now) + b"\n\n"
    # Clients are updated every second, so most comparisons are between identical objects.
    changed = {name: part for name, part in now.items() if part != before[name]}
    return b"event: change\ndata: " + _join(changed) + b"\n\n" if changed else b""


def _join(parts: DocumentParts) -> bytes:
    document: dict[str, Any] = {}
    for (name, *inner), part in parts.items():
        if inner:
            document.setdefault(name, {})[inner[0]] = orjson.Fragment(part)
        else:
            document[name] = orjson.Fragment(part)
    return as_json(document)


class _EventStream(StreamingResponse):
    """An event stream that ends when the client disconnects.

    It is added to `open_streams` before its first await, so that concurrent requests count it.
    """

    def __init__(self, events: AsyncIterator[bytes], open_streams: set[_EventStream]) -> None:
        super().__init__(events, media_type=_EVENT_STREAM_TYPE)
        self._open_streams = open_streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._open_streams.add(self)
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._open_streams.discard(self)


class ConsoleRoutes:
    """`/console/state` and `/console/events`."""

    def __init__(self, backend: ServerBackend, threads: RequestThreads) -> None:
        self._state = blocking_handler(threads, lambda _: backend.console_state())
        self._feed = ConsoleFeed(backend, threads)
        self._closing = asyncio.Event()
        self._streams: set[_EventStream] = set()

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                "GET",
                "/console/state",
                self._state,
                "The document of the console; docs/operations/console.md describes its parts.",
                "ConsoleState",
            ),
            Endpoint(
                "GET",
                "/console/events",
                self._events,
                "The document as server-sent events: `state` first, then `change` with the changed "
                "parts; objects contain only their changed members.",
                media_type=_EVENT_STREAM_TYPE,
            ),
        ]

    def close(self) -> None:
        """End the streams. Must be called on the server's event loop."""
        self._closing.set()

    async def _events(self, request: HttpRequest) -> Response:
        if request.method == "HEAD":
            return Response(media_type=_EVENT_STREAM_TYPE)
        if len(self._streams) >= _MAX_STREAMS:
            raise HttpError(
                429,
                "TOO_MANY_REQUESTS",
                f"The maximum of {_MAX_STREAMS} open consoles is reached.",
                retry_after_ms=10_000,
            )
        return _EventStream(self._changes(), self._streams)

    async def _changes(self) -> AsyncIterator[bytes]:
        last: DocumentParts | None = None
        silent_s = 0.0
        while not self._closing.is_set():
            event = b""
            # If the server is overloaded, the next attempt may succeed.
            with suppress(HttpError):
                now = await self._feed.parts()
                event, last = change_event(last, now), now
            if event:
                silent_s = 0.0
                yield event
            elif silent_s >= _KEEPALIVE_S:
                silent_s = 0.0
                yield b": still here\n\n"
            try:
                await asyncio.wait_for(self._closing.wait(), _POLL_INTERVAL_S)
            except TimeoutError:
                silent_s += _POLL_INTERVAL_S
