"""A fixed number of threads for requests, without a queue."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from starlette.responses import Response

from millstream.server.parameters import Parameter
from millstream.server.request_routing import Endpoint, Handler, HttpRequest
from millstream.server.responses import HttpError, JsonResponse, as_json

logger = logging.getLogger(__name__)

T = TypeVar("T")

_RETRY_AFTER_MS: Final = 1_000


class RequestThreads:
    """Runs blocking work, such as queries, outside of the server's event loop.

    A request fails if all threads are busy, or if it times out. After a timeout, the thread stays
    busy until the work ends.
    """

    def __init__(self, max_requests: int, timeout_ms: int) -> None:
        self._max_requests = max_requests
        self._timeout_ms = timeout_ms
        self._pool = ThreadPoolExecutor(max_requests, thread_name_prefix="millstream-http")
        self._lock = threading.Lock()
        self._busy = 0

    async def run(self, work: Callable[[], T], timed_out: threading.Event | None = None) -> T:
        """Run `work` and return its result.

        Long-running work should check `timed_out`, which is set on a timeout.

        Raises:
            HttpError: no thread is free, or the work timed out.
        """
        with self._lock:
            if self._busy >= self._max_requests:
                raise HttpError(
                    429,
                    "TOO_MANY_REQUESTS",
                    f"The server is already processing {self._max_requests} requests, the maximum "
                    "(server_max_concurrent_requests). Try again later.",
                    retry_after_ms=_RETRY_AFTER_MS,
                )
            self._busy += 1
        future = self._pool.submit(work)
        future.add_done_callback(self._release)
        pending = asyncio.wrap_future(future)
        await asyncio.wait([pending], timeout=self._timeout_ms / 1_000)
        if pending.done():
            return pending.result()
        # A late result is ignored.
        pending.add_done_callback(_log_late_error)
        if timed_out is not None:
            timed_out.set()
        raise HttpError(
            503,
            "TIMEOUT",
            f"The request timed out after {self._timeout_ms} ms (server_request_timeout_ms).",
            retry_after_ms=_RETRY_AFTER_MS,
        )

    def close(self) -> None:
        """Reject further work. Running work continues."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _release(self, _: Future[T]) -> None:
        with self._lock:
            self._busy -= 1


def _log_late_error(future: asyncio.Future[T]) -> None:
    if not future.cancelled() and future.exception() is not None:
        logger.debug("A request failed after it had timed out", exc_info=future.exception())


def blocking_handler(threads: RequestThreads, work: Callable[[HttpRequest], Any]) -> Handler:
    """Wrap blocking work as a handler with a JSON response."""

    async def handle(request: HttpRequest) -> Response:
        body = await threads.run(lambda: as_json(work(request)), request.timed_out)
        return Response(body, media_type=JsonResponse.media_type)

    return handle


def json_endpoint(
    threads: RequestThreads,
    path: str,
    work: Callable[[HttpRequest], Any],
    summary: str,
    schema: str,
    *parameters: Parameter,
) -> Endpoint:
    """Return an endpoint for blocking work with a JSON response.

    Endpoints with parameters may return 404.
    """
    failures = frozenset({404} if parameters else ())
    handle = blocking_handler(threads, work)
    return Endpoint("GET", path, handle, summary, schema, parameters=parameters, failures=failures)
