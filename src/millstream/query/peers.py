"""Instance to instance: what one asks another of its stores, as one document over HTTP.

The documents are msgpack with a fixed shape; nothing in them is ever unpickled. Keys and values
travel as the bytes that the store has.
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

from millstream.assignment.wire.assignment_info import HostInfo
from millstream.errors import (
    InvalidStateStoreError,
    StateStoreMigratedError,
    StateStoreNotAvailableError,
    StreamsError,
)
from millstream.query.asking import Answering
from millstream.query.requests.answers import FailureReason
from millstream.query.stores import KnownStores
from millstream.runtime.queries.questions import AskStore, NextPage, TaskAnswer
from millstream.state.queries.reads import Read

#: Where an instance answers others.
PATH: Final = "/internal/query"
#: How long another instance may take to answer, and how long to be reached, in seconds. It gives up
#: by itself after 10 s (`server_request_timeout_ms`), and should be heard when it says so.
TIMEOUT_S: Final = 12.0
_CONNECT_S: Final = 2.0
_MOST_IDLE: Final = 4
#: It cannot answer now, which says nothing about the next time.
_BUSY: Final = frozenset({http.client.SERVICE_UNAVAILABLE, http.client.TOO_MANY_REQUESTS})
_NOT_ALLOWED: Final = frozenset({http.client.UNAUTHORIZED, http.client.FORBIDDEN})
#: How long one that could not be reached is not tried again, in seconds.
_PAUSE_S: Final = 2.0
#: How a connection fails that was closed by the other side.
_HUNG_UP: Final = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)
#: A larger answer is none of ours: pages are of some 100 KiB, one for each partition.
_MOST_BYTES: Final = 256 << 20


class _Asked(msgspec.Struct, omit_defaults=True):
    """What another instance asks: of a store, for a next page, or to let go of the rest."""

    store: str = ""
    read: Read | None = None
    query: str = ""
    partitions: list[int] | None = None
    active_only: bool = False
    bound: dict[str, dict[int, int]] = {}
    cursor: str | None = None
    page_number: int = 0
    close: bool = False
    page_bytes: int = 256 * 1024


class _Task(msgspec.Struct, omit_defaults=True):
    partition: int
    role: str
    page: list[tuple[bytes, bytes]] = []
    cursor: str | None = None
    reason: str | None = None
    message: str = ""
    position: dict[str, dict[int, int]] = {}
    took_ns: int = 0
    retriable: bool = False


class _Answered(msgspec.Struct, omit_defaults=True):
    tasks: list[_Task] = []
    page: list[tuple[bytes, bytes]] = []
    cursor: str | None = None
    error: str | None = None
    migrated: bool = False


_asked = msgspec.msgpack.Decoder(_Asked)
_answered = msgspec.msgpack.Decoder(_Answered)
#: The largest page that others may ask for, in bytes.
_LARGEST_PAGE: Final = 4 << 20


def answering(own: Answering, stores: KnownStores) -> Callable[[bytes], bytes]:
    """What answers the documents of other instances, from this one's own threads only.

    The function takes a document and gives one, also where there is an error.

    Args:
        own: the threads of this instance.
        stores: those of its topology, which may be another version than that of the asker.

    Raises:
        ValueError: raised by the function: what it was given is no such document.
    """

    def answer(document: bytes) -> bytes:
        try:
            asked = _asked.decode(document)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ValueError(f"This is no question of another instance: {error}") from error
        return msgspec.msgpack.encode(_answer(own, stores, asked))

    return answer


def _answer(own: Answering, stores: KnownStores, asked: _Asked) -> _Answered:
    page_bytes = max(0 if asked.cursor else 1, min(asked.page_bytes, _LARGEST_PAGE))
    try:
        if asked.cursor is not None and asked.close:
            own.close_cursor(asked.cursor)
            return _Answered()
        if asked.cursor is not None:
            more = own.next_page(asked.cursor, asked.page_number, page_bytes)
            return _Answered(page=list(more.page), cursor=more.cursor)
        store = stores.known(asked.store)
        if store is None:
            return _Answered()
        question = AskStore(
            asked.store,
            asked.read,
            asked.query,
            None if asked.partitions is None else frozenset(asked.partitions),
            asked.active_only,
            asked.bound,
            page_bytes=page_bytes,
        )
        return _Answered(
            tasks=[
                _Task(
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
                for each in own.ask(question, None if store.part is None else store.part.id)
            ]
        )
    except StateStoreMigratedError as error:
        return _Answered(error=error.message, migrated=True)
    except StreamsError as error:
        return _Answered(error=str(error))


class Instance:
    """Another instance of the application, asked over HTTP.

    Usable from several threads.

    Args:
        host: its `application.server`.
        token: what it wants to be shown; None for nothing.
        tls: with what connections are encrypted; None for plain ones.
    """

    def __init__(self, host: HostInfo, token: str | None, tls: ssl.SSLContext | None) -> None:
        self.host = host
        self._token = token
        self._tls = tls
        self._idle: list[http.client.HTTPConnection] = []
        self._most_idle = _MOST_IDLE
        self._not_before_s = 0.0
        self._lock = threading.Lock()

    def ask(self, question: AskStore, subtopology: int | None) -> Sequence[TaskAnswer]:
        """What is in a store; see `Answering`. The instance finds the sub-topology by the store's
        name: in another version of the topology it may have another number.

        Raises:
            InvalidStateStoreError: the instance refuses.
        """
        partitions = question.partitions
        answered = self._request(
            _Asked(
                question.store,
                question.read,
                question.query,
                None if partitions is None else sorted(partitions),
                question.active_only,
                {topic: dict(offsets) for topic, offsets in question.bound.items()},
                page_bytes=question.page_bytes,
            )
        )
        if answered is None:
            return ()
        return [
            TaskAnswer(
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
            for each in answered.tasks
        ]

    def next_page(self, cursor: str, page_number: int, page_bytes: int) -> NextPage:
        """More of an answer; see `Answering`."""
        answered = self._request(
            _Asked(cursor=cursor, page_number=page_number, page_bytes=page_bytes)
        )
        if answered is None:
            raise StateStoreMigratedError(
                f"The rest of this answer is at {self.host}, which cannot be reached. Ask anew."
            )
        return NextPage(tuple(answered.page), answered.cursor)

    def close_cursor(self, cursor: str) -> None:
        """Nobody wants the rest; see `Answering`."""
        self._request(_Asked(cursor=cursor, close=True))

    def close(self) -> None:
        """Let go of its connections. Whoever still reads an answer of it may go on, and each of
        those questions has a connection of its own."""
        with self._lock:
            self._most_idle = 0
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _request(self, asked: _Asked) -> _Answered | None:
        """What it answers; None if it cannot be reached.

        Raises:
            InvalidStateStoreError: it refuses.
        """
        body = msgspec.msgpack.encode(asked)
        data = self._post(body)
        if data is None:
            return None
        try:
            answered = _answered.decode(data)
            known = FailureReason.__members__
            if any(each.reason is not None and each.reason not in known for each in answered.tasks):
                raise msgspec.ValidationError("it has an unknown reason")
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidStateStoreError(
                f"What {self.host} answers cannot be read ({error}). Probably it runs another "
                "version, or something else listens there: check application_server."
            ) from error
        if answered.error is not None:
            kind = StateStoreMigratedError if answered.migrated else InvalidStateStoreError
            raise kind(f"{self.host} answered: {answered.error}")
        return answered

    def _post(self, body: bytes) -> bytes | None:
        headers = {"Content-Type": "application/msgpack"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if time.monotonic() < self._not_before_s:
            return None
        kept = self._kept()
        for connection in ([] if kept is None else [kept]) + [self._fresh()]:
            has_begun = False
            try:
                if connection.sock is None:
                    _open(connection)
                connection.request("POST", PATH, body, headers)
                response = connection.getresponse()
                has_begun = True
                data = response.read(_MOST_BYTES)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                # One that was kept may have been closed by the other side meanwhile. All else has
                # been heard, or is still worked on: to repeat it would make it worse.
                if connection is kept and not has_begun and isinstance(error, _HUNG_UP):
                    continue
                self._not_before_s = time.monotonic() + _PAUSE_S
                return None
            self._keep(connection)
            if response.status == http.client.OK:
                return data
            if response.status in _BUSY:
                return None
            raise self._refused(response)
        return None

    def _refused(self, response: http.client.HTTPResponse) -> InvalidStateStoreError:
        said = f"{self.host} refuses to answer ({response.status} {response.reason})."
        if response.status in _NOT_ALLOWED:
            return InvalidStateStoreError(
                f"{said} All instances need the same server_token and TLS settings."
            )
        return StateStoreNotAvailableError(
            f"{said} Probably it runs an older version that answers no other instances, or has "
            "failed; or something else listens there: check application_server. Ask again when "
            "all instances run the same version."
        )

    def _kept(self) -> http.client.HTTPConnection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _fresh(self) -> http.client.HTTPConnection:
        host, port = self.host
        if self._tls is None:
            return http.client.HTTPConnection(host, port, timeout=_CONNECT_S)
        return http.client.HTTPSConnection(host, port, timeout=_CONNECT_S, context=self._tls)

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < self._most_idle:
                self._idle.append(connection)
                return
        connection.close()


def _open(connection: http.client.HTTPConnection) -> None:
    """Connect. Being reached may take less long than the answer."""
    connection.connect()
    sock: socket.socket = connection.sock
    sock.settimeout(TIMEOUT_S)


class Instances:
    """The other instances by their addresses. Usable from several threads."""

    def __init__(self) -> None:
        self._known: dict[HostInfo, Instance] = {}
        self._lock = threading.Lock()
        self._token: str | None = None
        self._tls: ssl.SSLContext | None = None

    def use(self, token: str | None, tls: ssl.SSLContext | None = None) -> None:
        """Show this token from now on, and encrypt connections so.

        Args:
            token: what all instances want to be shown.
            tls: None for plain connections.
        """
        with self._lock:
            self._token, self._tls = token, tls
        self.close()

    def at(self, host: HostInfo) -> Instance:
        """The instance at an address."""
        with self._lock:
            known = self._known.get(host)
            if known is None:
                known = self._known[host] = Instance(host, self._token, self._tls)
            return known

    def keep(self, hosts: Set[HostInfo]) -> None:
        """Let go of connections to all others: they are not there any more."""
        with self._lock:
            gone = [self._known.pop(host) for host in self._known.keys() - hosts]
        for instance in gone:
            instance.close()

    def close(self) -> None:
        """Let go of all connections."""
        self.keep(frozenset())
