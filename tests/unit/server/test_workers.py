"""The threads on which requests are answered."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import msgspec
import pytest
from starlette.datastructures import Headers
from starlette.responses import Response
from support.waiting import wait_for

from millstream.server.cursors import Cursor
from millstream.server.forms import from_base64
from millstream.server.http_error import HttpError
from millstream.server.pages import Entry, page_of
from millstream.server.routing import Answer, Asked
from millstream.server.workers import Workers, answered_on


async def asking(answer: Answer, asked: Asked) -> Response:
    return await answer(asked)


def test_a_page_that_nobody_waits_for_ends() -> None:
    """Hunts threads that are taken for good by a client that asks again and again."""
    read = itertools.count()
    ended = False

    def endless(partition: int | None, cursor: Cursor | None) -> Iterator[Entry]:
        nonlocal ended
        try:
            for _ in read:
                yield Entry(b"a", {})
        finally:
            ended = True

    asked = Asked("GET", {"cursor": None, "limit": 1}, Headers())
    page = page_of(lambda *_: (Entry(b"a", {}) for _ in range(2)), None, asked)
    cursor = msgspec.msgpack.decode(from_base64(page["cursor"]), type=Cursor)
    # As if more entries of one key had been seen than there are.
    text = msgspec.structs.replace(cursor, seen=1 << 60).written()
    asked = Asked("GET", {"cursor": text, "limit": 1}, Headers())
    workers = Workers(1, 50)
    answer = answered_on(workers, lambda given: page_of(endless, None, given))
    try:
        with pytest.raises(HttpError, match="no answer within 50 ms"):
            asyncio.run(asking(answer, asked))
        wait_for(lambda: ended, 10, "the thread has ended what it did")
    finally:
        asked.given_up.set()
        workers.close()


def test_a_timeout_of_the_work_itself_is_not_the_servers() -> None:
    """Hunts a connection of the user's serde that fails, told as a request that took too long."""

    def fails() -> None:
        raise TimeoutError("the registry does not answer")

    workers = Workers(1, 60_000)
    try:
        with pytest.raises(TimeoutError, match="the registry"):
            asyncio.run(workers.run(fails))
    finally:
        workers.close()
