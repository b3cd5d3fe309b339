"""The threads on which requests are answered: a fixed number, and no queue before them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from starlette.responses import Response

from millstream.server.http_error import HttpError
from millstream.server.json_response import JsonResponse, as_json
from millstream.server.routing import Answer, Asked

logger = logging.getLogger(__name__)

T = TypeVar("T")

_COME_AGAIN_MS: Final = 1_000


class Workers:
    """Runs what waits, such as queries, beside the server's event loop.

    Who comes while all threads are taken is sent away at once. Who has waited too long as well; the
    thread is taken until what it does has ended.

    Args:
        most: how many threads there are.
        timeout_ms: how long is waited for each.
    """

    def __init__(self, most: int, timeout_ms: int) -> None:
        self._most = most
        self._timeout_ms = timeout_ms
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="millstream-http")
        self._lock = threading.Lock()
        self._taken = 0

    async def run(self, work: Callable[[], T], given_up: threading.Event | None = None) -> T:
        """What `work` returns.

        Args:
            work: what is done; if it takes long, it should look at `given_up` now and then.
            given_up: is set when there is no time for it any more.

        Raises:
            HttpError: there is no thread, or no time, for it.
        """
        with self._lock:
            if self._taken >= self._most:
                raise HttpError(
                    429,
                    "TOO_MANY_REQUESTS",
                    f"{self._most} requests are worked on, which is the most "
                    "(server_max_concurrent_requests). Ask again later.",
                    retry_after_ms=_COME_AGAIN_MS,
                )
            self._taken += 1
        future = self._pool.submit(work)
        future.add_done_callback(self._ended)
        waited = asyncio.wrap_future(future)
        await asyncio.wait([waited], timeout=self._timeout_ms / 1_000)
        if waited.done():
            return waited.result()
        # What comes of it later is nobody's any more.
        waited.add_done_callback(_forget)
        if given_up is not None:
            given_up.set()
        raise HttpError(
            503,
            "TIMEOUT",
            f"There was no answer within {self._timeout_ms} ms (server_request_timeout_ms).",
            retry_after_ms=_COME_AGAIN_MS,
        )

    def close(self) -> None:
        """Take no more work. What runs comes to its end."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ended(self, _: Future[T]) -> None:
        with self._lock:
            self._taken -= 1


def _forget(future: asyncio.Future[T]) -> None:
    if not future.cancelled() and future.exception() is not None:
        logger.debug("what was not waited for any more has failed", exc_info=future.exception())


def answered_on(workers: Workers, work: Callable[[Asked], Any]) -> Answer:
    """An answer in JSON of what may wait."""

    async def answer(asked: Asked) -> Response:
        body = await workers.run(lambda: as_json(work(asked)), asked.given_up)
        return Response(body, media_type=JsonResponse.media_type)

    return answer
