"""The HTTP server of the metrics, which may not take much of its process, whoever asks."""

from __future__ import annotations

import ipaddress
import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

logger = logging.getLogger(__name__)

#: A WSGI application.
Application = Callable[..., Any]

#: For how long one may be silent, and how long a request may take in all, in seconds.
_SILENT_S: Final = 10.0
_LONGEST_S: Final = 30.0
#: How many are answered at a time.
_MOST: Final = 16


class ScrapeServer(ThreadingMixIn, WSGIServer):
    """Answers at a port until it is closed, each request on a thread.

    It needs no token, so whoever reaches it can connect: there are only so many threads, and who is
    beyond, or takes too long, is hung up on. Where only this machine reaches it, a request has to
    name this machine: the page of a website whose name has come to stand for this machine (DNS
    rebinding) names the website.

    Args:
        host: the address to listen at.
        port: 0 for any that is free.
        application: what answers.
        most: how many requests at a time.
        longest_s: how long a request may take, in seconds.

    Raises:
        OSError: the port is taken.
    """

    daemon_threads = True
    request_queue_size = 128
    # Who waits for these would wait for those that say nothing.
    block_on_close = False

    def __init__(
        self,
        host: str,
        port: int,
        application: Application,
        most: int = _MOST,
        longest_s: float = _LONGEST_S,
    ) -> None:
        self.address_family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        self._most = most
        self._longest_s = longest_s
        self._open: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__((str(address[0]), port), _Handler)
        if ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
            application = _of_this_machine(application, host)
        self.set_app(application)
        self._thread = threading.Thread(
            target=self.serve_forever, name="millstream-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Listen no more. Does nothing the second time."""
        self.shutdown()
        self.server_close()
        self._thread.join()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is a thread for one more."""
        with self._lock:
            if len(self._open) >= self._most:
                return False
            self._open[request] = time.monotonic()
            return True

    def shutdown_request(self, request: Any) -> None:
        """A connection has ended."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Hang up on those that take too long. Called twice a second."""
        with self._lock:
            since = time.monotonic() - self._longest_s
            late = [one for one, began in self._open.items() if began < since]
            for one in late:
                # Its thread reads the end, and closes it; or the client has gone already.
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client has gone or was too slow: anybody could fill the log."""
        logger.debug("a request for metrics has failed", exc_info=True)


class _Handler(WSGIRequestHandler):
    timeout = _SILENT_S

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is told of requests."""


def _of_this_machine(application: Application, own: str) -> Application:
    """Answer only requests to this machine by a name that nobody else can give it."""

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        if not _is_own(environ.get("HTTP_HOST", ""), own):
            start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"Metrics of this machine alone: ask for localhost or for its address.\n"]
        return application(environ, start_response)

    return answer


def _is_own(named: str, own: str) -> bool:
    host = named.rpartition("]")[0].lstrip("[") or named.partition(":")[0]
    if not host or host.lower() in {"localhost", own.lower()}:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
