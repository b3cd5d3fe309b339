"""The threads that handle requests."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import msgspec
import pytest
from starlette.datastructures import Headers
from starlette.responses import Response
from support.waiting import wait_for

from millstream.server.json_codec import from_base64
from millstream.server.paged_answers import PageCursor, StoreEntry, read_page
from millstream.server.request_routing import Handler, HttpRequest
from millstream.server.request_threads import RequestThreads, blocking_handler
from millstream.server.responses import HttpError


async def handle(answer: Handler, request: HttpRequest) -> Response:
    return await answer(request)


def test_an_abandoned_page_ends() -> None:
    """Detects threads that are occupied forever by a client that repeats its request."""
    read = itertools.count()
    ended = False

    def endless(partition: int | None, cursor: PageCursor | None) -> Iterator[StoreEntry]:
        nonlocal ended
        try:
            for _ in read:
                yield StoreEntry(b"a", {})
        finally:
            ended = True

    request = HttpRequest("GET", {"cursor": None, "limit": 1}, Headers())
    page = read_page(lambda *_: (StoreEntry(b"a", {}) for _ in range(2)), None, request)
    cursor = msgspec.msgpack.decode(from_base64(page["cursor"]), type=PageCursor)
    # A forged cursor that claims to have seen more entries of one key than there are.
    text = msgspec.structs.replace(cursor, seen=1 << 60).encode()
    request = HttpRequest("GET", {"cursor": text, "limit": 1}, Headers())
    workers = RequestThreads(1, 50)
    answer = blocking_handler(workers, lambda given: read_page(endless, None, given))
    try:
        with pytest.raises(HttpError, match="timed out after 50 ms"):
            asyncio.run(handle(answer, request))
        wait_for(lambda: ended, 10, "the thread has finished")
    finally:
        request.timed_out.set()
        workers.close()


def test_a_timeout_of_user_code_is_not_a_request_timeout() -> None:
    """Detects a failed connection of a user's serde that is reported as a request timeout."""

    def fails() -> None:
        raise TimeoutError("the registry does not answer")

    workers = RequestThreads(1, 60_000)
    try:
        with pytest.raises(TimeoutError, match="the registry"):
            asyncio.run(workers.run(fails))
    finally:
        workers.close()
