"""What the console shows: once, or whenever it has changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from starlette.responses import Response, StreamingResponse

from millstream.server.console_feed import ConsoleFeed, Parts, event_of
from millstream.server.http_error import HttpError
from millstream.server.json_response import JsonResponse, as_json
from millstream.server.routing import Asked, Endpoint
from millstream.server.served import Served
from millstream.server.workers import Workers

_LOOK_S: Final = 1.0
#: How often something is sent at least, so that both sides notice when the other is gone.
_BEAT_S: Final = 15.0
_EVENTS: Final = "text/event-stream"
_STREAMS_MOST: Final = 16


class ConsoleRoutes:
    """`/console/state` and `/console/events`.

    Args:
        served: what is shown.
        workers: what the document is made on.
    """

    def __init__(self, served: Served, workers: Workers) -> None:
        self._served = served
        self._workers = workers
        self._feed = ConsoleFeed(served, workers)
        self._closing = asyncio.Event()
        self._streams = 0

    def endpoints(self) -> list[Endpoint]:
        """Both."""
        return [
            Endpoint(
                "GET",
                "/console/state",
                self._state,
                "All that the console shows; docs/console.md has its parts.",
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

    async def _state(self, _: Asked) -> Response:
        return Response(await self._document(), media_type=JsonResponse.media_type)

    async def _events(self, asked: Asked) -> Response:
        if asked.method == "HEAD":
            return Response(media_type=_EVENTS)
        if self._streams >= _STREAMS_MOST:
            raise HttpError(
                429,
                "TOO_MANY_REQUESTS",
                f"{_STREAMS_MOST} consoles are open, which is the most.",
                retry_after_ms=10_000,
            )
        return StreamingResponse(self._changes(), media_type=_EVENTS)

    async def _changes(self) -> AsyncIterator[bytes]:
        self._streams += 1
        try:
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
        finally:
            self._streams -= 1

    async def _document(self) -> bytes:
        return await self._workers.run(lambda: as_json(self._served.console_state()))
