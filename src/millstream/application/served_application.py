"""The HTTP server of an application, and its backend."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import secrets
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from millstream.application.console.console_document import ConsoleDocument, MonitoredApplication
from millstream.application.console.subscription_view import MonitoredSubscription
from millstream.application.supervisor import ThreadSupervisor
from millstream.config.streams_config import StreamsConfig
from millstream.errors import ConfigError, IllegalStateError, StateStoreNotAvailableError
from millstream.export.prometheus import prometheus_text
from millstream.query.streams_metadata import KeyQueryMetadata, LagInfo, StreamsMetadata
from millstream.query.views import QueryableStoreType, S
from millstream.runtime.states.thread_states import ClientState
from millstream.server.address import AddressFile, ServerAddress, is_loopback, write_address
from millstream.server.backend import Health, ServerBackend
from millstream.server.server_settings import client_tls_context, server_options
from millstream.state.directories.state_directory import resolve_state_dir
from millstream.state.queries.codec import StoreCodec
from millstream.state.queries.requests.query_results import StateQueryRequest, StateQueryResult
from millstream.subscriptions.properties.subscription_properties import Properties

if TYPE_CHECKING:
    from millstream.server.server_thread import HttpServer

logger = logging.getLogger("millstream")

_DEAD: Final = frozenset({ClientState.PENDING_ERROR, ClientState.ERROR, ClientState.NOT_RUNNING})
_TOKEN_BYTES: Final = 32
_MIN_TOKEN_CHARACTERS: Final = 8


class ServedApplication:
    """The backend of the HTTP server for one application; see `ServerBackend`."""

    def __init__(
        self,
        streams: MonitoredApplication,
        config: StreamsConfig,
        supervisor: ThreadSupervisor,
        subscription: Callable[[], MonitoredSubscription | None],
    ) -> None:
        self._streams = streams
        self._config = config
        self._supervisor = supervisor
        self._query_client = supervisor.query_client
        self._subscription = subscription
        self._drawing = threading.Lock()

    def health(self) -> Health:
        """Return whether the instance is live and ready.

        It is live unless it has failed or been closed, or a thread hangs. It is ready if it is
        RUNNING and all threads make progress and commit.
        """
        state = self._streams.state
        threads = self._streams.metadata_for_local_threads()
        hanging = [each.thread_name for each in threads if each.stall is not None]
        uncommitted = [each.thread_name for each in threads if each.uncommitted_ms is not None]
        why = ""
        if state in _DEAD:
            why = f"the state is {state.name}: {self._streams.error or 'closed'}"
        elif hanging:
            why = f"{', '.join(hanging)} made no progress for max.poll.interval.ms"
        elif uncommitted:
            why = f"{', '.join(uncommitted)} processed records without a commit for too long"
        elif state is not ClientState.RUNNING:
            why = f"the state is {state.name}"
        return Health(
            live=state not in _DEAD and not hanging,
            ready=state is ClientState.RUNNING and not hanging and not uncommitted,
            state=state.name,
            why=why,
        )

    def console_state(self) -> Mapping[str, Any]:
        with self._drawing:
            return self._document.build()

    @cached_property
    def _document(self) -> ConsoleDocument:
        # Lazy: the console of most applications is never opened, and a large topology takes time.
        return ConsoleDocument(self._streams, self._config, self._supervisor, self._subscription)

    def threads(self) -> list[Mapping[str, Any]]:
        return [asdict(each) for each in self._streams.metadata_for_local_threads()]

    def topology(self) -> Mapping[str, Any]:
        description = self._supervisor.topology.describe()
        return {**description.to_dict(), "text": str(description)}

    def stores(self) -> Sequence[Mapping[str, Any]]:
        with self._drawing:
            return self._document.stores

    def codec_of(self, store: str) -> StoreCodec | None:
        return self._query_client.stores.find(store).codec

    def is_global(self, store: str) -> bool:
        return self._query_client.stores.find(store).is_global

    def partitions_of(self, store: str) -> Sequence[int] | None:
        known = self._query_client.stores.find(store)
        if known.part is None:
            return None
        count = self._query_client.partitions_of(store)
        if count is not None:
            return range(count)
        # If only the local partitions were read, an incomplete result would look complete.
        raise StateStoreNotAvailableError(
            f"Store {store} cannot be read now: its number of partitions could not be fetched from "
            "the cluster. Retry in a moment."
        )

    def locate_key(self, store: str, key: Any) -> KeyQueryMetadata | None:
        return self._query_client.routing.key_metadata(store, key, None, None)

    def instances(self) -> Sequence[StreamsMetadata]:
        return self._query_client.routing.all_clients()

    def lags(self) -> Mapping[str, Mapping[int, LagInfo]]:
        return self._query_client.lags()

    def answer_peer(self, document: bytes) -> bytes:
        return self._query_client.answer(document)

    def metrics_text(self) -> str:
        return prometheus_text(self._streams.metrics())

    def query(self, request: StateQueryRequest) -> StateQueryResult:
        return self._query_client.queries.query(request)

    def store(
        self,
        name: str,
        kind: QueryableStoreType[S],
        partition: int | None,
        *,
        stale: bool,
        begin: bytes | None = None,
    ) -> S:
        return self._query_client.queries.store(name, kind, partition, stale=stale, begin=begin)

    def properties(self) -> Mapping[str, Any] | None:
        subscription = self._subscription()
        return None if subscription is None else _plain(subscription.properties)

    def change_properties(self, given: Mapping[str, Any]) -> Mapping[str, Any] | None:
        subscription = self._subscription()
        if subscription is None:
            return None
        if "properties" in given:
            # `properties` is the only other argument of `update_properties`.
            raise ConfigError("There is no property 'properties'.")
        return _plain(subscription.update_properties(**given))


def _plain(properties: Properties) -> dict[str, Any]:
    return {each.name: getattr(properties, each.name) for each in Properties.table()}


class ApplicationHttpServer:
    """Starts and closes the HTTP server of an application. Thread-safe.

    Args:
        announce: called with the address for other instances (`host:port`, or None if they cannot
            reach the server), the token, and the TLS context for connections to other instances.
    """

    def __init__(
        self,
        config: StreamsConfig,
        application: ServerBackend,
        announce: Callable[[str | None, str, ssl.SSLContext | None], None],
    ) -> None:
        self._config = config
        self._application = application
        self._announce = announce
        self._lock = threading.Lock()
        self._server: HttpServer | None = None
        self._address: ServerAddress | None = None
        self._file: AddressFile | None = None

    @property
    def address(self) -> ServerAddress | None:
        return self._address

    def start(self, host: str | None, port: int | None, token: str | None) -> ServerAddress:
        """Start the server. Arguments that are None are taken from the settings.

        Raises:
            ConfigError: the address cannot be bound, or the extra `server` is not installed.
            IllegalStateError: the server is already running.
        """
        with self._lock:
            if self._address is not None:
                raise IllegalStateError(
                    f"The application already serves HTTP at {self._address.url}. It can only have "
                    "one server."
                )
            config = self._config
            given = config.server_token if token is None else token
            own = _checked_token(secrets.token_urlsafe(_TOKEN_BYTES) if given is None else given)
            host = config.server_host if host is None else host
            port = (config.server_port or 0) if port is None else port
            options = server_options(config, host=host, port=port, token=own)
            peers = client_tls_context(config)
            server = _server_class()(self._application, options)
            reached = f"{_advertised_host(host)}:{server.port}"
            scheme = "http" if options.tls is None else "https"
            address = ServerAddress(f"{scheme}://{reached}", own)
            try:
                # On another machine, a loopback address would refer to that machine itself.
                self._announce(None if is_loopback(host) else reached, own, peers)
                self._log_exposure(host, is_encrypted=options.tls is not None)
                self._publish_address(address, is_given=given is not None)
            except BaseException:
                server.close()
                raise
            self._server, self._address = server, address
            return address

    def close(self) -> None:
        with self._lock:
            self._address = None
            try:
                if self._server is not None:
                    self._server.close()
                    self._server = None
            finally:
                file, self._file = self._file, None
                if file is not None:
                    file.remove()

    def _log_exposure(self, host: str, *, is_encrypted: bool) -> None:
        config = self._config
        if is_loopback(host):
            if not config.application_server:
                logger.info(
                    "%s is served on this machine only, so its address is not announced to other "
                    "instances. Set server_host, or application_server if all instances run on "
                    "this machine",
                    config.application_id,
                )
        elif not is_encrypted:
            logger.warning(
                "%s is served at %s without TLS: the token can be read on the network. Set "
                "server_tls_certificate",
                config.application_id,
                host,
            )

    def _publish_address(self, address: ServerAddress, *, is_given: bool) -> None:
        config = self._config
        folder = resolve_state_dir(config.state_dir) / config.application_id
        try:
            self._file = write_address(folder, address, with_token=not is_given)
        except OSError as error:
            logger.warning(
                "cannot write the address file, so commands need --url and --token: %s", error
            )
        shown = address.url if is_given else address.console
        logger.info("%s is served at %s", config.application_id, shown)


def _server_class() -> type[HttpServer]:
    try:
        from millstream.server.server_thread import HttpServer
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"The HTTP server needs {error.name}, which is not installed: "
            "pip install 'millstream[server]'"
        ) from error
    return HttpServer


def _checked_token(token: str) -> str:
    if len(token) < _MIN_TOKEN_CHARACTERS or not token.isascii() or not token.isprintable():
        raise ConfigError(
            f"server_token must have at least {_MIN_TOKEN_CHARACTERS} printable ASCII "
            "characters, because nothing else protects the server. Leave it out to generate a "
            "token."
        )
    if " " in token:
        raise ConfigError("server_token must not contain spaces, because it is sent in a header.")
    return token


def _advertised_host(host: str) -> str:
    """Return the host name at which other machines reach a server on `host`."""
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
        if address.is_unspecified:
            return socket.gethostname()
        if address.version == 6:
            return f"[{address}]"
    return host or socket.gethostname()
