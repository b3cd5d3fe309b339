"""Queries between instances over HTTP.

Each request and each response is one document. Documents are encoded in msgpack with a fixed
schema, and never contain pickles. Keys and values are transferred as the stored bytes.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence, Set
from typing import Final

import msgspec

from millstream.assignment.wire_format import HostInfo
from millstream.errors import (
    InvalidStateStoreError,
    StateStoreMigratedError,
    StateStoreNotAvailableError,
    StreamsError,
)
from millstream.query.local_threads import QuerySource
from millstream.query.store_catalog import StoreCatalog
from millstream.runtime.queries.query_messages import NextPage, QueryStore, TaskQueryResult
from millstream.state.queries.read_requests import ReadRequest
from millstream.state.queries.requests.query_results import FailureReason

#: The path for requests from other instances.
PATH: Final = "/internal/query"
#: The timeouts for a response and for connecting, in seconds. The remote server times out after
#: 10 s (`server_request_timeout_ms`). The response timeout is longer, to receive that error.
TIMEOUT_S: Final = 12.0
_CONNECT_S: Final = 2.0
_MAX_IDLE: Final = 4
#: The HTTP statuses of temporary failures, which cause no backoff.
_TEMPORARY: Final = frozenset({http.client.SERVICE_UNAVAILABLE, http.client.TOO_MANY_REQUESTS})
_UNAUTHORIZED: Final = frozenset({http.client.UNAUTHORIZED, http.client.FORBIDDEN})
#: The backoff after an instance could not be reached, in seconds.
_UNREACHABLE_BACKOFF_S: Final = 2.0
#: The errors of a connection that the remote side has closed.
_DISCONNECTED: Final = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)
#: The maximum size of a response. A regular page has about 100 KiB per partition.
_MAX_BYTES: Final = 256 << 20


class _RequestDocument(msgspec.Struct, omit_defaults=True):
    store: str = ""
    read: ReadRequest | None = None
    query: str = ""
    partitions: list[int] | None = None
    active_only: bool = False
    bound: dict[str, dict[int, int]] = {}
    cursor: str | None = None
    page_number: int = 0
    close: bool = False
    page_bytes: int = 256 * 1024


class _TaskDocument(msgspec.Struct, omit_defaults=True):
    partition: int
    role: str
    page: list[tuple[bytes, bytes]] = []
    cursor: str | None = None
    reason: str | None = None
    message: str = ""
    position: dict[str, dict[int, int]] = {}
    took_ns: int = 0
    retriable: bool = False


class _ResponseDocument(msgspec.Struct, omit_defaults=True):
    tasks: list[_TaskDocument] = []
    page: list[tuple[bytes, bytes]] = []
    cursor: str | None = None
    error: str | None = None
    migrated: bool = False


_request_decoder = msgspec.msgpack.Decoder(_RequestDocument)
_response_decoder = msgspec.msgpack.Decoder(_ResponseDocument)
#: The maximum page size in bytes that other instances may request.
_MAX_PAGE_BYTES: Final = 4 << 20


def query_responder(own: QuerySource, stores: StoreCatalog) -> Callable[[bytes], bytes]:
    """Return a function that responds to queries from other instances.

    The function only uses data from local threads. It takes a document and returns a document, even
    for errors. It raises a `ValueError` for an invalid document. `stores` contains the stores of
    the local topology, whose version may differ from that of the requesting instance.
    """

    def answer(document: bytes) -> bytes:
        try:
            request = _request_decoder.decode(document)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ValueError(f"This is not a request from another instance: {error}") from error
        return msgspec.msgpack.encode(_respond(own, stores, request))

    return answer


def _respond(
    own: QuerySource, stores: StoreCatalog, request: _RequestDocument
) -> _ResponseDocument:
    page_bytes = max(0 if request.cursor else 1, min(request.page_bytes, _MAX_PAGE_BYTES))
    try:
        if request.cursor is not None and request.close:
            own.close_cursor(request.cursor)
            return _ResponseDocument()
        if request.cursor is not None:
            more = own.next_page(request.cursor, request.page_number, page_bytes)
            return _ResponseDocument(page=list(more.page), cursor=more.cursor)
        store = stores.get(request.store)
        if store is None:
            return _ResponseDocument()
        query = QueryStore(
            request.store,
            request.read,
            request.query,
            None if request.partitions is None else frozenset(request.partitions),
            request.active_only,
            request.bound,
            page_bytes=page_bytes,
        )
        return _ResponseDocument(
            tasks=[
                _TaskDocument(
                    each.partition,
                    each.role,
                    list(each.page),
                    each.cursor,
                    None if each.reason is None else each.reason.name,
                    each.message,
                    {topic: dict(offsets) for topic, offsets in each.position.items()},
                    each.took_ns,
                    each.retriable,
                )
                for each in own.query(query, None if store.part is None else store.part.id)
            ]
        )
    except StateStoreMigratedError as error:
        return _ResponseDocument(error=error.message, migrated=True)
    except StreamsError as error:
        return _ResponseDocument(error=str(error))


class RemoteInstance:
    """A client for another instance of the application, over HTTP. Thread-safe."""

    def __init__(self, host: HostInfo, token: str | None, tls: ssl.SSLContext | None) -> None:
        self.host = host
        self._token = token
        self._tls = tls
        self._idle: list[http.client.HTTPConnection] = []
        self._max_idle = _MAX_IDLE
        self._not_before_s = 0.0
        self._lock = threading.Lock()

    def query(self, query: QueryStore, subtopology: int | None) -> Sequence[TaskQueryResult]:
        """Query a store; see `QuerySource`.

        The remote instance looks up the sub-topology by store name, because its number may differ
        in another version of the topology.
        """
        partitions = query.partitions
        response = self._request(
            _RequestDocument(
                query.store,
                query.read,
                query.query,
                None if partitions is None else sorted(partitions),
                query.active_only,
                {topic: dict(offsets) for topic, offsets in query.bound.items()},
                page_bytes=query.page_bytes,
            )
        )
        if response is None:
            return ()
        return [
            TaskQueryResult(
                each.partition,
                each.role,
                tuple(each.page),
                each.cursor,
                None if each.reason is None else FailureReason[each.reason],
                each.message,
                each.position,
                each.took_ns,
                each.retriable,
            )
            for each in response.tasks
        ]

    def next_page(self, cursor: str, page_number: int, page_bytes: int) -> NextPage:
        response = self._request(
            _RequestDocument(cursor=cursor, page_number=page_number, page_bytes=page_bytes)
        )
        if response is None:
            raise StateStoreMigratedError(
                f"The rest of the result is on {self.host}, which cannot be reached. Repeat the "
                "query."
            )
        return NextPage(tuple(response.page), response.cursor)

    def close_cursor(self, cursor: str) -> None:
        self._request(_RequestDocument(cursor=cursor, close=True))

    def close(self) -> None:
        """Close idle connections, and keep no connections from now on.

        Requests for open cursors still work, with one connection per request.
        """
        with self._lock:
            self._max_idle = 0
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _request(self, request: _RequestDocument) -> _ResponseDocument | None:
        """Send a request. Returns None if the instance cannot be reached.

        Raises:
            InvalidStateStoreError: the instance rejected the request.
        """
        data = self._post(msgspec.msgpack.encode(request))
        if data is None:
            return None
        try:
            response = _response_decoder.decode(data)
            known = FailureReason.__members__
            if any(each.reason is not None and each.reason not in known for each in response.tasks):
                raise msgspec.ValidationError("unknown failure reason")
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidStateStoreError(
                f"The response of {self.host} cannot be decoded ({error}). The instance probably "
                "runs another version, or another service uses this address: check "
                "application_server."
            ) from error
        if response.error is not None:
            kind = StateStoreMigratedError if response.migrated else InvalidStateStoreError
            raise kind(f"{self.host} returned an error: {response.error}")
        return response

    def _post(self, body: bytes) -> bytes | None:
        headers = {"Content-Type": "application/msgpack"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if time.monotonic() < self._not_before_s:
            return None
        with self._lock:
            idle = self._idle.pop() if self._idle else None
        for connection in ([] if idle is None else [idle]) + [self._new_connection()]:
            has_begun = False
            try:
                if connection.sock is None:
                    _open(connection)
                connection.request("POST", PATH, body, headers)
                response = connection.getresponse()
                has_begun = True
                data = response.read(_MAX_BYTES)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                # The remote side may have closed an idle connection: retry on a new one. Other
                # errors are not retried, because the remote side cannot be reached, or may still
                # be processing the request, so that a retry would only add load.
                if connection is idle and not has_begun and isinstance(error, _DISCONNECTED):
                    continue
                self._not_before_s = time.monotonic() + _UNREACHABLE_BACKOFF_S
                return None
            self._release(connection)
            if response.status == http.client.OK:
                return data
            if response.status in _TEMPORARY:
                return None
            raise self._rejection(response)
        return None

    def _rejection(self, response: http.client.HTTPResponse) -> InvalidStateStoreError:
        problem = f"{self.host} rejected the request ({response.status} {response.reason})."
        if response.status in _UNAUTHORIZED:
            return InvalidStateStoreError(
                f"{problem} All instances need the same server_token and TLS settings."
            )
        return StateStoreNotAvailableError(
            f"{problem} The instance has failed, or runs an older version that does not respond to "
            "other instances, or another service uses this address: check application_server. Try "
            "again when all instances run the same version."
        )

    def _new_connection(self) -> http.client.HTTPConnection:
        host, port = self.host
        if self._tls is None:
            return http.client.HTTPConnection(host, port, timeout=_CONNECT_S)
        return http.client.HTTPSConnection(host, port, timeout=_CONNECT_S, context=self._tls)

    def _release(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < self._max_idle:
                self._idle.append(connection)
                return
        connection.close()


def _open(connection: http.client.HTTPConnection) -> None:
    """Connect, and set the response timeout.

    The response timeout is longer than the connect timeout.
    """
    connection.connect()
    sock: socket.socket = connection.sock
    sock.settimeout(TIMEOUT_S)


class RemoteInstances:
    """Clients for the other instances, by address. Thread-safe."""

    def __init__(self) -> None:
        self._instances: dict[HostInfo, RemoteInstance] = {}
        self._lock = threading.Lock()
        self._token: str | None = None
        self._tls: ssl.SSLContext | None = None

    def set_credentials(self, token: str | None, tls: ssl.SSLContext | None = None) -> None:
        with self._lock:
            self._token, self._tls = token, tls
        self.close()

    def get(self, host: HostInfo) -> RemoteInstance:
        with self._lock:
            known = self._instances.get(host)
            if known is None:
                known = self._instances[host] = RemoteInstance(host, self._token, self._tls)
            return known

    def retain(self, hosts: Set[HostInfo]) -> None:
        """Close connections to instances that no longer exist."""
        with self._lock:
            gone = [self._instances.pop(host) for host in self._instances.keys() - hosts]
        for instance in gone:
            instance.close()

    def close(self) -> None:
        self.retain(frozenset())
