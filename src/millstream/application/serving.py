"""The HTTP server of an application: made when it is asked for, closed with the application."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import secrets
import socket
import ssl
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from millstream.config import StreamsConfig
from millstream.errors import ConfigError, IllegalStateError
from millstream.server.address import AddressFile, ServerAddress, is_loopback, write_address
from millstream.server.served import Served
from millstream.server.settings import options_of, peers_context
from millstream.state.directories.host_path import state_dir_here

if TYPE_CHECKING:
    from millstream.server.serving import Serving

logger = logging.getLogger("millstream")

_TOKEN_BYTES: Final = 32
_TOKEN_CHARACTERS_LEAST: Final = 8


class ApplicationServing:
    """At most one server of an application. Usable from any thread.

    Args:
        config: settings.
        served: what is asked.
        announce: is told where other instances reach it, as `host:port` or None for not at all,
            and with what this one reaches them: the token, and what connections are encrypted with.
    """

    def __init__(
        self,
        config: StreamsConfig,
        served: Served,
        announce: Callable[[str | None, str, ssl.SSLContext | None], None],
    ) -> None:
        self._config = config
        self._served = served
        self._announce = announce
        self._lock = threading.Lock()
        self._serving: Serving | None = None
        self._address: ServerAddress | None = None
        self._file: AddressFile | None = None

    @property
    def address(self) -> ServerAddress | None:
        """Where it answers, if it does."""
        return self._address

    def start(self, host: str | None, port: int | None, token: str | None) -> ServerAddress:
        """Answer from now on; what is None is as in the settings.

        Raises:
            ConfigError: nothing can listen there, or the extra is not installed.
            IllegalStateError: it answers already.
        """
        with self._lock:
            if self._address is not None:
                raise IllegalStateError(
                    f"The application answers at {self._address.url} already: one server is enough."
                )
            config = self._config
            given = config.server_token if token is None else token
            own = _checked_token(secrets.token_urlsafe(_TOKEN_BYTES) if given is None else given)
            host = config.server_host if host is None else host
            port = (config.server_port or 0) if port is None else port
            options = options_of(config, host=host, port=port, token=own)
            peers = peers_context(config)
            serving = _server_class()(self._served, options)
            reached = f"{_reachable(host)}:{serving.port}"
            scheme = "http" if options.tls is None else "https"
            address = ServerAddress(f"{scheme}://{reached}", own)
            try:
                # On each machine it is another one who listens at such an address.
                self._announce(None if is_loopback(host) else reached, own, peers)
                self._warn(host, is_encrypted=options.tls is not None)
                self._tell(address, is_given=given is not None)
            except BaseException:
                serving.close()
                raise
            self._serving, self._address = serving, address
            return address

    def close(self) -> None:
        """Answer no more. Does nothing if it does not."""
        with self._lock:
            self._address = None
            try:
                if self._serving is not None:
                    self._serving.close()
                    self._serving = None
            finally:
                file, self._file = self._file, None
                if file is not None:
                    file.forget()

    def _warn(self, host: str, *, is_encrypted: bool) -> None:
        config = self._config
        if is_loopback(host):
            if not config.application_server:
                logger.info(
                    "%s is served on this machine alone, so that other instances are not told of "
                    "it: set server_host, or application_server if all run on this machine",
                    config.application_id,
                )
        elif not is_encrypted:
            logger.warning(
                "%s is served at %s without TLS: who can see the network sees the token; set "
                "server_tls_certificate",
                config.application_id,
                host,
            )

    def _tell(self, address: ServerAddress, *, is_given: bool) -> None:
        config = self._config
        folder = state_dir_here(config.state_dir) / config.application_id
        try:
            self._file = write_address(folder, address, with_token=not is_given)
        except OSError as error:
            logger.warning("programs cannot find the server by itself: %s", error)
        shown = address.url if is_given else address.console
        logger.info("%s is served at %s", config.application_id, shown)


def _server_class() -> type[Serving]:
    try:
        from millstream.server.serving import Serving
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"The HTTP server needs {error.name}, which is not installed: "
            "pip install 'millstream[server]'"
        ) from error
    return Serving


def _checked_token(token: str) -> str:
    if len(token) < _TOKEN_CHARACTERS_LEAST or not token.isascii() or not token.isprintable():
        raise ConfigError(
            f"server_token must have at least {_TOKEN_CHARACTERS_LEAST} printable ASCII "
            "characters: it is all that keeps others out. Leave it out, and one is made up."
        )
    if " " in token:
        raise ConfigError("server_token must not hold spaces: it goes into a header.")
    return token


def _reachable(host: str) -> str:
    """Under which name others reach what listens on `host`."""
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
        if address.is_unspecified:
            return socket.gethostname()
        if address.version == 6:
            return f"[{address}]"
    return host or socket.gethostname()
