"""The server's thread: an event loop that answers until it is closed."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from functools import partial
from typing import Final

import uvicorn

from millstream.errors import ConfigError, StreamsError
from millstream.server.answers import Answers
from millstream.server.protocol import ConnectionLimits, TimedProtocol
from millstream.server.served import Served
from millstream.server.settings import ServerOptions
from millstream.server.site import Site
from millstream.server.tls import Tls

logger = logging.getLogger("millstream")
_uvicorn = logging.getLogger("uvicorn.error")

#: Connections for each request that may be worked on: browsers keep several.
_CONNECTIONS_A_REQUEST: Final = 8
_IDLE_S: Final = 5
_BACKLOG: Final = 128
#: How long answers under way may take when the server closes, in seconds.
_GRACE_S: Final = 2
_START_S: Final = 15.0
_END_S: Final = 10.0


class Serving:
    """A server that runs, from its making until `close`.

    Args:
        served: what is asked.
        options: where it listens, and whom it answers.

    Raises:
        ConfigError: nothing can listen there, or the certificate cannot be used.
        StreamsError: the server does not start.
    """

    def __init__(self, served: Served, options: ServerOptions) -> None:
        self._answers = Answers(served, options)
        limits = ConnectionLimits(
            options.max_requests * _CONNECTIONS_A_REQUEST, options.timeout_ms / 1_000
        )
        spoken = partial(TimedProtocol, limits) if options.tls is None else Tls(options.tls, limits)
        config = uvicorn.Config(
            Site(self._answers.routes, options),
            interface="asgi3",
            # uvicorn calls it as it would call its own class.
            http=spoken,  # type: ignore[arg-type]
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_IDLE_S,
            timeout_graceful_shutdown=_GRACE_S,
            backlog=_BACKLOG,
        )
        if _uvicorn.level == logging.NOTSET:
            # It tells of its processes, under a name that says "error".
            _uvicorn.setLevel(logging.WARNING)
        config.load()
        self._socket = _bound(options.host, options.port)
        self._server = uvicorn.Server(config)
        #: Where it listens.
        self.port: int = self._socket.getsockname()[1]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="millstream-server", daemon=True)
        self._thread.start()
        self._started.wait(_START_S)
        if not self._thread.is_alive():
            self.close()
            raise StreamsError("The HTTP server did not start; the log tells why.")

    def close(self) -> None:
        """Listen no more, let answers under way come to their ends, and end the thread."""
        if self._loop is not None and self._thread.is_alive():
            # First, while the loop is sure to be there.
            self._loop.call_soon_threadsafe(self._answers.end_streams)
        self._server.should_exit = True
        self._thread.join(_END_S)
        self._socket.close()
        self._answers.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:
            logger.exception("the HTTP server has failed")
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        # The socket listens from its making: who comes before the loop does, waits.
        self._started.set()
        await self._server.serve(sockets=[self._socket])


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"The HTTP server cannot listen on {host}:{port}: {error}. Another program may have "
            "the port: choose another one (server_port), or 0 for any that is free."
        ) from error
