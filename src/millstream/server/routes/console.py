"""What the console shows: once, or whenever it has changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from millstream.server.console_feed import ConsoleFeed, Parts, event_of
from millstream.server.http_error import HttpError
from millstream.server.routing import Asked, Endpoint
from millstream.server.served import Served
from millstream.server.workers import Workers, answered_on

_LOOK_S: Final = 1.0
#: How often something is sent at least, so that both sides notice when the other is gone.
_BEAT_S: Final = 15.0
_EVENTS: Final = "text/event-stream"
_STREAMS_MOST: Final = 16


class _Events(StreamingResponse):
    """Events that are told as long as the client wants them.

    It is one of those that are told before anything of it is waited for: who comes at the same time
    is counted with it.

    Args:
        events: what is told.
        told: all of them.
    """

    def __init__(self, events: AsyncIterator[bytes], told: set[_Events]) -> None:
        super().__init__(events, media_type=_EVENTS)
        self._told = told

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Tell them."""
        self._told.add(self)
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._told.discard(self)


class ConsoleRoutes:
    """`/console/state` and `/console/events`.

    Args:
        served: what is shown.
        workers: what the document is made on.
    """

    def __init__(self, served: Served, workers: Workers) -> None:
        self._state = answered_on(workers, lambda _: served.console_state())
        self._feed = ConsoleFeed(served, workers)
        self._closing = asyncio.Event()
        self._streams: set[_Events] = set()

    def endpoints(self) -> list[Endpoint]:
        """Both."""
        return [
            Endpoint(
                "GET",
                "/console/state",
                self._state,
                "All that the console shows; docs/operations/console.md has its parts.",
                "ConsoleState",
            ),
            Endpoint(
                "GET",
                "/console/events",
                self._events,
                "The same as server-sent events: `state` at once, then `change` with the parts "
                "that have changed; objects in it hold what has changed in them.",
                media_type=_EVENTS,
            ),
        ]

    def close(self) -> None:
        """End the streams. Called on the server's event loop."""
        self._closing.set()

    async def _events(self, asked: Asked) -> Response:
        if asked.method == "HEAD":
            return Response(media_type=_EVENTS)
        if len(self._streams) >= _STREAMS_MOST:
            raise HttpError(
                429,
                "TOO_MANY_REQUESTS",
                f"{_STREAMS_MOST} consoles are open, which is the most.",
                retry_after_ms=10_000,
            )
        return _Events(self._changes(), self._streams)

    async def _changes(self) -> AsyncIterator[bytes]:
        last: Parts | None = None
        silent_s = 0.0
        while not self._closing.is_set():
            event = b""
            # Where it is overloaded, the next look may tell.
            with suppress(HttpError):
                now = await self._feed.parts()
                event, last = event_of(last, now), now
            if event:
                silent_s = 0.0
                yield event
            elif silent_s >= _BEAT_S:
                silent_s = 0.0
                yield b": still here\n\n"
            try:
                await asyncio.wait_for(self._closing.wait(), _LOOK_S)
            except TimeoutError:
                silent_s += _LOOK_S
