"""The driver's end of the control connections.

The server accepts stream threads that have the application's key, rejects attempts that have been
replaced by later ones, forwards the threads' reports, and sends commands. The state of a thread
survives a broken connection; see `reliable_channel`.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from millstream.errors import SparkError, ThreadUnavailableError
from millstream.runtime.thread_control import Command, Report, ThreadRequest
from millstream.spark.code.shipping import dumps
from millstream.spark.connection import control_protocol
from millstream.spark.connection.control_protocol import ControlConnection
from millstream.spark.connection.encryption import TlsIdentity
from millstream.spark.connection.messages import (
    MAX_DATA_BYTES,
    Hello,
    MessageType,
    UndeliverableObject,
    decode_message,
    decode_value,
    encode_message,
    encode_using,
    encode_value,
)
from millstream.spark.connection.reliable_channel import (
    IDLE_TIMEOUT_S,
    ControlLink,
    ReliableChannel,
)

logger = logging.getLogger(__name__)

_HANDSHAKE_TIMEOUT_S: Final = 10.0
#: The maximum number of concurrent handshakes. Further connections are closed; workers then retry.
_MAX_HANDSHAKES: Final = 128
#: How long a new connection waits for the end of the previous connection of the same attempt.
_TAKEOVER_S: Final = 10.0
#: The maximum size of each part of a thread's code.
_CODE_BYTES: Final = 8 * 1024 * 1024
#: How long to collect commands before sending, because each frame interrupts the stream thread.
_LINGER_S: Final = 0.003
R = TypeVar("R")


class ControlListener(Protocol):
    """The callbacks of the server.

    They run on the server's threads, one at a time for each stream thread.
    """

    def on_registered(self, hello: Hello) -> None:
        """Handle the first registration of an attempt."""

    def on_report(self, hello: Hello, report: Report) -> None:
        """Handle a report. The method may block to slow down the thread's reports."""


@dataclass(eq=False, repr=False)
class _PendingRequest:
    thread: str
    request: ThreadRequest[Any]
    reply: Future[Any] = field(default_factory=Future)

    def complete(self, result: Any) -> None:
        """Complete the request with a result or an exception, unless it was canceled.

        Called only once, because the caller has removed the request from its attempt.
        """
        if not self.reply.set_running_or_notify_cancel():
            return
        if isinstance(result, BaseException):
            self.reply.set_exception(result)
        elif isinstance(result, UndeliverableObject):
            self.reply.set_exception(
                SparkError(
                    f"Stream thread {self.thread} replied to {_command_name(self.request)} with "
                    f"an object that could not be sent ({result.type_name}: {result.why}). Request "
                    "a smaller or a picklable result."
                )
            )
        else:
            self.reply.set_result(result)


class _Attempt:
    def __init__(self, hello: Hello) -> None:
        self.hello = hello
        self.reliable_channel = ReliableChannel(drop_oldest=False)
        self.link: ControlLink | None = None
        self.requests: dict[int, _PendingRequest] = {}

    def end(self, why: str) -> None:
        self.reliable_channel.end()
        for number in list(self.requests):
            request = self.requests.pop(number, None)
            if request is not None:
                request.complete(ThreadUnavailableError(why))


@dataclass(repr=False)
class _ThreadEntry:
    """The registration state of a stream thread."""

    lowest_submission: int = 0
    rejection_reason: str | None = None
    code: bytes = b""
    attempt: _Attempt | None = None


class ControlServer:
    """Accepts the connections of one application's stream threads.

    With port 0, the server uses a free port. `advertised_host` is the address of this machine for
    executors, `host` by default. Without an identity, connections are not encrypted.
    """

    def __init__(
        self,
        application_id: str,
        authkey: bytes,
        listener: ControlListener,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        advertised_host: str | None = None,
        identity: TlsIdentity | None = None,
    ) -> None:
        self._tls = None if identity is None else identity.server_context()
        self._application_id = application_id
        self._authkey = authkey
        self._listener = listener
        self._bind = (host, port)
        self._advertised_host = advertised_host or host
        self._lock = threading.Lock()
        self._entries: dict[str, _ThreadEntry] = {}
        self._handshakes = threading.BoundedSemaphore(_MAX_HANDSHAKES)
        self._next_request = 0
        self._closed = False
        self._sock: socket.socket | None = None
        self._accepting: threading.Thread | None = None

    def start(self) -> None:
        """Start to listen. Raises an `OSError` if the address or port cannot be used."""
        family = socket.AF_INET6 if ":" in self._bind[0] else socket.AF_INET
        self._sock = socket.create_server(self._bind, family=family, backlog=128)
        self._accepting = threading.Thread(
            target=self._accept, args=(self._sock,), name="millstream-control", daemon=True
        )
        self._accepting.start()

    @property
    def address(self) -> tuple[str, int]:
        assert self._sock is not None, "not started"
        return self._advertised_host, self._sock.getsockname()[1]

    def expect_thread(self, name: str, submission: int, code: bytes = b"") -> None:
        """Admit only attempts of this or a later submission, and send them the code.

        The code is a pickled `ThreadMain`.
        """
        with self._lock:
            entry = self._entries.setdefault(name, _ThreadEntry())
            entry.lowest_submission = submission
            entry.code = code
            entry.rejection_reason = None

    def stop_admitting(self, name: str, reason: str) -> None:
        """Reject new attempts. A registered attempt may still reconnect."""
        with self._lock:
            self._entries.setdefault(name, _ThreadEntry()).rejection_reason = reason

    def end_thread(self, name: str, reason: str) -> None:
        """Close the connection and fail the requests of a thread whose job has ended."""
        with self._lock:
            entry = self._entries.get(name, _ThreadEntry())
            attempt, entry.attempt = entry.attempt, None
            entry.rejection_reason = reason
            entry.code = b""
        if attempt is not None:
            attempt.end(f"Stream thread {name} has ended: {reason}.")
            if attempt.link is not None:
                attempt.link.reject(reason)

    def registered(self, name: str) -> Hello | None:
        attempt = self._find_attempt(name)
        return None if attempt is None else attempt.hello

    def connected(self, name: str) -> bool:
        attempt = self._find_attempt(name)
        return attempt is not None and attempt.link is not None

    def send(self, name: str, command: Command) -> None:
        """Send a command to a stream thread.

        If the connection is broken, the command is delivered after a reconnect.

        Raises:
            ThreadUnavailableError: the thread is not registered, or too many commands are pending.
            NotPicklableError: the command cannot be pickled.
            SparkError: the command is too large.
        """
        self._send(name, command, None)

    def _send(self, name: str, command: Command, number: int | None) -> None:
        attempt = self._attempt(name)
        data = encode_using(command, dumps)
        if len(data) > MAX_DATA_BYTES:
            raise SparkError(
                f"The command {_command_name(command)} to stream thread {name} has {len(data)} "
                f"bytes of data; the limit is {MAX_DATA_BYTES} bytes."
            )
        message = encode_message(MessageType.COMMAND, data, number)
        if not attempt.reliable_channel.post(message):
            raise ThreadUnavailableError(
                f"Stream thread {name} cannot accept the command: too many commands are pending, "
                "or the thread has just ended. Retry when it is running."
            )

    def request(self, name: str, request: ThreadRequest[R], timeout_ms: int) -> R:
        """Send a request and wait for the reply.

        Raises:
            ThreadUnavailableError: the thread is not registered, ended, or did not reply in time.
            BaseException: the exception that the thread replied with.
        """
        reply: Future[R] = self.post(name, request)
        try:
            return reply.result(timeout_ms / 1000)
        except FutureTimeoutError:
            if not reply.cancel():
                # The reply has just arrived, or is a timeout error itself.
                return reply.result()
            raise ThreadUnavailableError(
                f"Stream thread {name} did not reply to {_command_name(request)} within "
                f"{timeout_ms} ms: it is busy, restoring, or unreachable. Retry, or increase the "
                "timeout."
            ) from None

    def post(self, name: str, request: ThreadRequest[Any]) -> Future[Any]:
        """Send a request and return a future for the reply, which may be canceled.

        The future fails with a `ThreadUnavailableError` if the thread ends. The method itself
        raises this error if the thread is not registered.
        """
        attempt = self._attempt(name)
        pending = _PendingRequest(name, request)
        with self._lock:
            self._next_request += 1
            number = self._next_request
            attempt.requests[number] = pending
        pending.reply.add_done_callback(lambda _: attempt.requests.pop(number, None))
        try:
            self._send(name, request, number)
        except BaseException:
            pending.reply.cancel()
            raise
        return pending.reply

    def drop_connection(self, name: str) -> None:
        """Close a thread's connection, which the thread then reopens.

        Intended for tests and operators.
        """
        attempt = self._find_attempt(name)
        link = None if attempt is None else attempt.link
        if link is not None:
            link.close()

    def close(self) -> None:
        """Stop listening and end all connections. Idempotent."""
        self._closed = True
        for name in list(self._entries):
            self.end_thread(name, "the application is closing")
        if self._sock is not None:
            # Wake the accepting thread, because closing the socket does not do so on some systems.
            # On other systems, this call fails, which can be ignored.
            try:
                self._sock.shutdown(socket.SHUT_RDWR)
            except OSError as error:
                logger.debug("Shutting down the listening socket failed: %s", error)
            self._sock.close()
        if self._accepting is not None:
            self._accepting.join(_HANDSHAKE_TIMEOUT_S)

    def _find_attempt(self, name: str) -> _Attempt | None:
        with self._lock:
            entry = self._entries.get(name)
            return None if entry is None else entry.attempt

    def _attempt(self, name: str) -> _Attempt:
        if (attempt := self._find_attempt(name)) is not None:
            return attempt
        raise ThreadUnavailableError(
            f"Stream thread {name} is not registered: it is starting or restarting, or has ended. "
            "Retry when it is running."
        )

    def _accept(self, listening: socket.socket) -> None:
        while not self._closed:
            try:
                sock, _ = listening.accept()
            except OSError as error:
                if not self._closed:
                    logger.warning("The control port could not accept a connection: %s", error)
                    # Most likely, the process is out of file descriptors: wait until some are
                    # closed.
                    threading.Event().wait(0.1)
                continue
            if not self._handshakes.acquire(blocking=False):
                sock.close()
                continue
            threading.Thread(
                target=self._serve, args=(sock,), name="millstream-control-reader", daemon=True
            ).start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            try:
                connection = control_protocol.accept_worker(
                    sock,
                    self._authkey,
                    timeout_s=_HANDSHAKE_TIMEOUT_S,
                    idle_timeout_s=IDLE_TIMEOUT_S,
                    tls=self._tls,
                )
                first = decode_value(decode_message(connection.receive())[1])
                hello, last_received, wants_code = first
            finally:
                self._handshakes.release()
        except (ConnectionError, TypeError, ValueError) as error:
            logger.warning("The control port rejected a connection: %s", error)
            return
        admitted = self._admit(hello)
        if isinstance(admitted, str):
            logger.info("%s %s was rejected: %s", hello.thread_name, hello.epoch, admitted)
            self._send_all(
                connection, [encode_message(MessageType.REJECTED, encode_value(admitted))]
            )
            connection.close()
            return
        self._run_link(admitted, connection, last_received, wants_code=wants_code)

    def _admit(self, hello: Hello) -> _Attempt | str:
        """Return a stream thread's attempt, or the reason to reject the thread."""
        name = hello.thread_name
        if hello.application_id != self._application_id:
            return f"this is the driver of '{self._application_id}'"
        with self._lock:
            entry = self._entries.get(name)
            if entry is None:
                return f"no stream thread named {name} is expected"
            if hello.epoch.submission < entry.lowest_submission:
                return f"attempt {hello.epoch} is older than submission {entry.lowest_submission}"
            current = entry.attempt
            if current is not None and hello.epoch == current.hello.epoch:
                return current
            if current is not None and hello.epoch < current.hello.epoch:
                return f"attempt {hello.epoch} was replaced by {current.hello.epoch}"
            if entry.rejection_reason is not None:
                return entry.rejection_reason
            attempt = entry.attempt = _Attempt(hello)
        if current is not None:
            why = f"attempt {current.hello.epoch} was replaced by {hello.epoch}"
            current.end(f"Stream thread {name} was restarted: {why}.")
            if current.link is not None:
                current.link.reject(why)
        self._listener.on_registered(hello)
        return attempt

    def _run_link(
        self,
        attempt: _Attempt,
        connection: ControlConnection,
        last_received: int,
        *,
        wants_code: bool,
    ) -> None:
        link = ControlLink(
            connection,
            attempt.reliable_channel,
            lambda payload: self._on_message(attempt, payload),
            linger_s=_LINGER_S,
        )
        with self._lock:
            previous, attempt.link = attempt.link, link
            code = self._entries[attempt.hello.thread_name].code if wants_code else None
        # The worker may have detected the loss of the previous connection first. Wait until the
        # last message of that connection is processed, which determines the messages to repeat.
        if previous is not None:
            previous.close()
        if previous is None or previous.wait_ended(_TAKEOVER_S):
            attempt.reliable_channel.resume(last_received)
            welcome = encode_message(MessageType.WELCOME, b"", attempt.reliable_channel.received)
            self._send_all(connection, [welcome, *(() if code is None else _parts(code))])
        else:
            link.close()
        link.run(f"{attempt.hello.thread_name}-control-sender")
        with self._lock:
            if attempt.link is link:
                attempt.link = None

    def _on_message(self, attempt: _Attempt, payload: bytes) -> None:
        message_type, data, number = decode_message(payload)
        if message_type is MessageType.REPORT:
            report = decode_value(data)
            if isinstance(report, Report):
                self._listener.on_report(attempt.hello, report)
            else:
                logger.warning("%s sent an unreadable report: %s", attempt.hello, report)
        elif number is not None:
            request = attempt.requests.pop(number, None)
            if request is not None:
                request.complete(decode_value(data))

    @staticmethod
    def _send_all(connection: ControlConnection, messages: Iterable[bytes]) -> None:
        try:
            for message in messages:
                connection.send(message)
        except ConnectionError as error:
            logger.info("A stream thread disconnected during its registration: %s", error)


def _parts(code: bytes) -> Iterator[bytes]:
    """Split a thread's code into messages that fit into a frame."""
    starts = range(0, len(code), _CODE_BYTES) or range(1)
    for left, start in zip(reversed(range(len(starts))), starts, strict=True):
        yield encode_message(MessageType.CODE, code[start : start + _CODE_BYTES], left)


def _command_name(command: Command) -> str:
    return f"'{type(command).__name__}'"
