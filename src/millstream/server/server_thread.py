"""The thread and event loop of the HTTP server."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from functools import partial
from typing import Final

import uvicorn

from millstream.errors import ConfigError, StreamsError
from millstream.server.asgi_app import AsgiApp
from millstream.server.backend import ServerBackend
from millstream.server.http_protocol import ConnectionLimits, TimedProtocol, TlsProtocolFactory
from millstream.server.openapi import document_endpoint
from millstream.server.request_routing import Routes
from millstream.server.request_threads import RequestThreads
from millstream.server.routes.console_data import ConsoleRoutes
from millstream.server.routes.console_files import ConsoleFiles
from millstream.server.routes.internal import health_endpoints, metrics_endpoint, peer_endpoint
from millstream.server.routes.metadata import MetadataRoutes, subscription_endpoints
from millstream.server.routes.store_queries import StoreRoutes
from millstream.server.server_settings import ServerOptions

logger = logging.getLogger("millstream")
_uvicorn = logging.getLogger("uvicorn.error")

#: Connections per concurrent request: browsers keep several open.
_CONNECTIONS_PER_REQUEST: Final = 8
_KEEP_ALIVE_S: Final = 5
_BACKLOG: Final = 128
#: The grace period for running requests when the server closes, in seconds.
_GRACE_PERIOD_S: Final = 2
_START_TIMEOUT_S: Final = 15.0
_CLOSE_TIMEOUT_S: Final = 10.0


class ServerEndpoints:
    """The endpoints of an application's server, and the threads that they use."""

    def __init__(self, backend: ServerBackend, options: ServerOptions) -> None:
        self._threads = RequestThreads(options.max_requests, options.timeout_ms)
        self._peer_threads = RequestThreads(options.max_requests, options.timeout_ms)
        self._console = ConsoleRoutes(backend, self._threads)
        endpoints = [
            *ConsoleFiles().endpoints(),
            *health_endpoints(backend),
            *self._console.endpoints(),
            *StoreRoutes(backend, self._threads).endpoints(),
            *MetadataRoutes(backend, self._threads).endpoints(),
            *subscription_endpoints(backend, self._threads),
            metrics_endpoint(backend, self._threads),
            peer_endpoint(backend, self._peer_threads),
        ]
        self.routes = Routes([*endpoints, document_endpoint(endpoints)])

    def end_streams(self) -> None:
        """End the event streams. Must be called on the server's event loop."""
        self._console.close()

    def close(self) -> None:
        self._threads.close()
        self._peer_threads.close()


class HttpServer:
    """A running HTTP server. It starts on creation and runs until `close`.

    Raises:
        ConfigError: the server cannot listen on the address, or the certificate cannot be used.
        StreamsError: the server does not start.
    """

    def __init__(self, backend: ServerBackend, options: ServerOptions) -> None:
        self._endpoints = ServerEndpoints(backend, options)
        limits = ConnectionLimits(
            options.max_requests * _CONNECTIONS_PER_REQUEST, options.timeout_ms / 1_000
        )
        protocol = (
            partial(TimedProtocol, limits)
            if options.tls is None
            else TlsProtocolFactory(options.tls, limits)
        )
        config = uvicorn.Config(
            AsgiApp(self._endpoints.routes, options),
            interface="asgi3",
            # uvicorn calls this in place of its protocol class.
            http=protocol,  # type: ignore[arg-type]
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_GRACE_PERIOD_S,
            backlog=_BACKLOG,
        )
        if _uvicorn.level == logging.NOTSET:
            # uvicorn logs its start and end to "uvicorn.error" at level INFO.
            _uvicorn.setLevel(logging.WARNING)
        config.load()
        self._socket = _listen(options.host, options.port)
        self._server = uvicorn.Server(config)
        #: The port that the server listens on.
        self.port: int = self._socket.getsockname()[1]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="millstream-server", daemon=True)
        self._thread.start()
        self._started.wait(_START_TIMEOUT_S)
        if not self._thread.is_alive():
            self.close()
            raise StreamsError("The HTTP server did not start; see the log for the cause.")

    def close(self) -> None:
        if self._loop is not None and self._thread.is_alive():
            # Before the server exits, while the loop is still running.
            self._loop.call_soon_threadsafe(self._endpoints.end_streams)
        self._server.should_exit = True
        self._thread.join(_CLOSE_TIMEOUT_S)
        self._socket.close()
        self._endpoints.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:
            logger.exception("The HTTP server failed")
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        # The socket already listens: early connections wait for the loop.
        self._started.set()
        await self._server.serve(sockets=[self._socket])


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"The HTTP server cannot listen on {host}:{port}: {error}. The port may be in use: "
            "choose another one (server_port), or 0 for any free port."
        ) from error
