"""An HTTP server for metrics, with bounded resources."""

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

#: The timeouts of an idle connection and of a request, in seconds.
_IDLE_TIMEOUT_S: Final = 10.0
_REQUEST_TIMEOUT_S: Final = 30.0
#: The maximum number of concurrent requests.
_MAX_REQUESTS: Final = 16


class ScrapeServer(ThreadingMixIn, WSGIServer):
    """Serves a WSGI application on a port until closed, with one thread per request.

    There is no authentication, so anyone who reaches the port can connect. Therefore, the number of
    threads is limited, and connections beyond the limit or the timeout are closed. If the server is
    bound to a loopback address, the `Host` header of requests must name this machine. This prevents
    DNS rebinding, in which the header names a website whose name resolves to this machine.
    """

    daemon_threads = True
    request_queue_size = 128
    # Waiting for the threads would block while connections are idle.
    block_on_close = False

    def __init__(
        self,
        host: str,
        port: int,
        application: Application,
        max_requests: int = _MAX_REQUESTS,
        request_timeout_s: float = _REQUEST_TIMEOUT_S,
    ) -> None:
        self.address_family: int
        self.address_family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        self._max_requests = max_requests
        self._request_timeout_s = request_timeout_s
        self._open_requests: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__((str(address[0]), port), _Handler)
        if ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
            application = _local_only(application, host)
        self.set_app(application)
        self._thread = threading.Thread(
            target=self.serve_forever, name="millstream-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop the server. Can be called several times."""
        self.shutdown()
        self.server_close()
        self._thread.join()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        with self._lock:
            if len(self._open_requests) >= self._max_requests:
                return False
            self._open_requests[request] = time.monotonic()
            return True

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open_requests.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Close connections that exceed the timeout. Called twice per second."""
        with self._lock:
            since = time.monotonic() - self._request_timeout_s
            expired = [one for one, began in self._open_requests.items() if began < since]
            for one in expired:
                # The thread of the request then reads the end of the stream and closes the socket.
                # `shutdown` fails if the client has already disconnected.
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a failed request at debug level.

        At a higher level, clients that disconnect or time out could flood the log.
        """
        logger.debug("A metrics request failed", exc_info=True)


class _Handler(WSGIRequestHandler):
    timeout = _IDLE_TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests."""


def _local_only(application: Application, own: str) -> Application:
    """Reject requests whose `Host` header does not name this machine."""

    def respond(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        if not _names_this_machine(environ.get("HTTP_HOST", ""), own):
            start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"Metrics are served to this machine only: use localhost or its address.\n"]
        return application(environ, start_response)

    return respond


def _names_this_machine(host_header: str, own: str) -> bool:
    host = host_header.rpartition("]")[0].lstrip("[") or host_header.partition(":")[0]
    if not host or host.lower() in {"localhost", own.lower()}:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
