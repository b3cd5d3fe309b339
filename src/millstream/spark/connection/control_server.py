"""The driver's end of the connections to the stream threads.

It listens, admits the threads that know the application's key and belong to it, turns away attempts
that a later one has replaced, hands their reports on, and sends them commands. What it knows of a
thread outlives a broken connection: see `conversation`.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, Protocol, TypeVar

from millstream.errors import SparkError, ThreadUnavailableError
from millstream.runtime.control import Command, Question, Report
from millstream.spark.code.shipping import dumps
from millstream.spark.connection import wire
from millstream.spark.connection.conversation import SILENCE_LIMIT_S, ControlLink, Conversation
from millstream.spark.connection.encryption import Identity
from millstream.spark.connection.messages import (
    MAX_DATA_BYTES,
    Hello,
    Undeliverable,
    What,
    decode_message,
    decode_value,
    encode_message,
    encode_value,
    encoded,
)
from millstream.spark.connection.wire import Connection

logger = logging.getLogger(__name__)

_HANDSHAKE_TIMEOUT_S: Final = 10.0
#: How many callers may be in the handshake at a time; more are hung up on and try again.
_MAX_STRANGERS: Final = 128
#: How long the previous connection of the same attempt may take to end before a new one is taken.
_TAKEOVER_S: Final = 10.0
#: How much of a thread's code goes into one message.
_CODE_BYTES: Final = 8 * 1024 * 1024
#: How long commands gather behind others: each piece that arrives interrupts the thread's work.
_GATHER_S: Final = 0.003


R = TypeVar("R")


class Listener(Protocol):
    """What the server tells its owner; called on the server's threads, one at a time per thread."""

    def on_registered(self, hello: Hello) -> None:
        """An attempt of a stream thread has registered for the first time."""

    def on_report(self, hello: Hello, report: Report) -> None:
        """A stream thread reported something. May block to slow down the thread's reports."""


class _Request:
    """A question that waits for its answer."""

    def __init__(self, thread: str, question: Question[Any]) -> None:
        self.reply: Future[Any] = Future()
        self._thread = thread
        self._question = question

    def settle(self, answer: Any) -> None:
        """This is the answer; an exception is raised. Does nothing if nobody waits any more.

        Once: whoever settles it has taken it out of its attempt.
        """
        if not self.reply.set_running_or_notify_cancel():
            return
        if isinstance(answer, BaseException):
            self.reply.set_exception(answer)
        elif isinstance(answer, Undeliverable):
            self.reply.set_exception(
                SparkError(
                    f"Stream thread {self._thread} answered {_named(self._question)} with "
                    f"something that could not be sent ({answer.type_name}: {answer.why}). Ask for "
                    "less, or for something picklable."
                )
            )
        else:
            self.reply.set_result(answer)


class _Attempt:
    """A registered attempt of a stream thread."""

    def __init__(self, hello: Hello) -> None:
        self.hello = hello
        self.conversation = Conversation(drop_oldest=False)
        self.link: ControlLink | None = None
        self.requests: dict[int, _Request] = {}

    def end(self, why: str) -> None:
        """Fail what still waits for this attempt."""
        self.conversation.end()
        for number in list(self.requests):
            request = self.requests.pop(number, None)
            if request is not None:
                request.settle(ThreadUnavailableError(why))


class _Seat:
    """The place of a stream thread: who may sit in it, and who does."""

    def __init__(self) -> None:
        self.lowest_submission = 0
        self.closed_because: str | None = None
        self.code = b""
        self.attempt: _Attempt | None = None


class ControlServer:
    """Listens for the stream threads of one application.

    Args:
        application_id: the application whose threads are admitted.
        authkey: the key that they must know.
        listener: told what happens.
        host: the address to listen on.
        port: the port to listen on; 0 takes a free one.
        advertised_host: the name by which executors reach this machine; default: `host`.
        identity: with what connections are encrypted; None if they are not.
    """

    def __init__(
        self,
        application_id: str,
        authkey: bytes,
        listener: Listener,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        advertised_host: str | None = None,
        identity: Identity | None = None,
    ) -> None:
        self._tls = None if identity is None else identity.server_context()
        self._application_id = application_id
        self._authkey = authkey
        self._listener = listener
        self._bind = (host, port)
        self._advertised_host = advertised_host or host
        self._lock = threading.Lock()
        self._seats: dict[str, _Seat] = {}
        self._strangers = threading.BoundedSemaphore(_MAX_STRANGERS)
        self._next_request = 0
        self._closed = False
        self._sock: socket.socket | None = None
        self._accepting: threading.Thread | None = None

    def start(self) -> None:
        """Begin to listen.

        Raises:
            OSError: the address or port cannot be listened on.
        """
        family = socket.AF_INET6 if ":" in self._bind[0] else socket.AF_INET
        self._sock = socket.create_server(self._bind, family=family, backlog=128)
        self._accepting = threading.Thread(
            target=self._accept, args=(self._sock,), name="millstream-control", daemon=True
        )
        self._accepting.start()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port for the stream threads to connect to."""
        assert self._sock is not None, "not started"
        return self._advertised_host, self._sock.getsockname()[1]

    def expect(self, name: str, submission: int, code: bytes = b"") -> None:
        """From now on only attempts of this submission or later ones are admitted.

        Args:
            name: the thread.
            submission: the least that is admitted.
            code: a pickled `ThreadMain`, which an attempt is given when it registers.
        """
        with self._lock:
            seat = self._seats.setdefault(name, _Seat())
            seat.lowest_submission = submission
            seat.code = code
            seat.closed_because = None

    def admit_no_more(self, name: str, why: str) -> None:
        """Turn away attempts that have not registered yet; one that has may still reconnect."""
        with self._lock:
            self._seats.setdefault(name, _Seat()).closed_because = why

    def forget(self, name: str, why: str) -> None:
        """The thread's job is over: end what is left of its connection, fail what waits for it."""
        with self._lock:
            seat = self._seats.get(name)
            attempt = seat.attempt if seat is not None else None
            if seat is not None:
                seat.attempt = None
                seat.closed_because = why
                seat.code = b""
        if attempt is not None:
            attempt.end(f"Stream thread {name} has ended: {why}.")
            if attempt.link is not None:
                attempt.link.refuse(why)

    def registered(self, name: str) -> Hello | None:
        """Who sits in the thread's place, connected just now or not; None: nobody registered."""
        with self._lock:
            seat = self._seats.get(name)
            return seat.attempt.hello if seat is not None and seat.attempt is not None else None

    def connected(self, name: str) -> bool:
        """Whether a registered attempt of the thread has a connection just now."""
        with self._lock:
            seat = self._seats.get(name)
            attempt = seat.attempt if seat is not None else None
            return attempt is not None and attempt.link is not None

    def send(self, name: str, command: Command) -> None:
        """Send a command; delivered after a reconnect if the connection is broken just now.

        Raises:
            ThreadUnavailableError: no attempt of the thread is registered, or too many commands
                wait for it already.
            NotPicklableError: the command cannot be shipped.
            SparkError: it is too large.
        """
        self._send(name, command, None)

    def _send(self, name: str, command: Command, number: int | None) -> None:
        attempt = self._attempt(name)
        data = encoded(command, dumps)
        if len(data) > MAX_DATA_BYTES:
            raise SparkError(
                f"The command {_named(command)} to stream thread {name} has {len(data)} bytes "
                f"of data; the limit is {MAX_DATA_BYTES} bytes."
            )
        message = encode_message(What.COMMAND, data, number)
        if not attempt.conversation.post(message):
            raise ThreadUnavailableError(
                f"Stream thread {name} takes no commands: too many wait for it, or it just ended. "
                "Try again when it is running."
            )

    def request(self, name: str, question: Question[R], timeout_ms: int) -> R:
        """Send a question and wait for the answer.

        Raises:
            ThreadUnavailableError: the thread is not registered, ended, or did not reply in time.
            BaseException: what the thread replied with, if that is an exception.
        """
        reply = self.post(name, question)
        try:
            answer: R = reply.result(timeout_ms / 1000)
        except FutureTimeoutError:
            if not reply.cancel():
                # It has come meanwhile, or is a timeout itself.
                return reply.result()  # type: ignore[no-any-return]
            raise ThreadUnavailableError(
                f"Stream thread {name} did not reply to {_named(question)} within {timeout_ms} ms: "
                "it is busy, restoring, or out of reach. Try again, or allow more time."
            ) from None
        return answer

    def post(self, name: str, question: Question[Any]) -> Future[Any]:
        """Send a question; what is returned gets the answer. Cancel it to wait no longer.

        Raises:
            ThreadUnavailableError: the thread is not registered. Later, in what is returned: it has
                ended.
        """
        attempt = self._attempt(name)
        request = _Request(name, question)
        with self._lock:
            self._next_request += 1
            number = self._next_request
            attempt.requests[number] = request
        request.reply.add_done_callback(lambda _: attempt.requests.pop(number, None))
        try:
            self._send(name, question, number)
        except BaseException:
            request.reply.cancel()
            raise
        return request.reply

    def drop_connection(self, name: str) -> None:
        """Cut a thread's connection; the thread opens it again. For tests and for operators."""
        with self._lock:
            seat = self._seats.get(name)
            link = seat.attempt.link if seat is not None and seat.attempt is not None else None
        if link is not None:
            link.close()

    def close(self) -> None:
        """Stop listening and end every connection. Does nothing the second time."""
        self._closed = True
        for name in list(self._seats):
            self.forget(name, "the application closes")
        if self._sock is not None:
            # Wakes the accepting thread; on some systems closing alone does not, and on others
            # this is an error, which then is of no interest.
            try:
                self._sock.shutdown(socket.SHUT_RDWR)
            except OSError as error:
                logger.debug("Shutting the listening socket down: %s", error)
            self._sock.close()
        if self._accepting is not None:
            self._accepting.join(_HANDSHAKE_TIMEOUT_S)

    def _attempt(self, name: str) -> _Attempt:
        with self._lock:
            seat = self._seats.get(name)
            if seat is not None and seat.attempt is not None:
                return seat.attempt
        raise ThreadUnavailableError(
            f"Stream thread {name} is not registered: it is starting, restarting or has ended. "
            "Try again when it is running."
        )

    def _accept(self, listening: socket.socket) -> None:
        while not self._closed:
            try:
                sock, _ = listening.accept()
            except OSError as error:
                if not self._closed:
                    logger.warning("The control port refused a caller: %s", error)
                    # Out of file descriptors, most likely: give the others time to close theirs.
                    threading.Event().wait(0.1)
                continue
            if not self._strangers.acquire(blocking=False):
                sock.close()
                continue
            threading.Thread(
                target=self._serve, args=(sock,), name="millstream-control-reader", daemon=True
            ).start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            try:
                connection = wire.welcome(
                    sock,
                    self._authkey,
                    timeout_s=_HANDSHAKE_TIMEOUT_S,
                    silence_limit_s=SILENCE_LIMIT_S,
                    tls=self._tls,
                )
                told = decode_value(decode_message(connection.receive())[1])
                hello, received_there, wants_code = told
            finally:
                self._strangers.release()
        except (ConnectionError, TypeError, ValueError) as error:
            logger.warning("A caller was not admitted to the control port: %s", error)
            return
        admitted = self._admit(hello)
        if isinstance(admitted, str):
            logger.info("%s %s was turned away: %s", hello.thread_name, hello.epoch, admitted)
            self._answer(connection, [encode_message(What.REFUSED, encode_value(admitted))])
            connection.close()
            return
        self._carry(admitted, connection, received_there, wants_code=wants_code)

    def _admit(self, hello: Hello) -> _Attempt | str:
        """The attempt that the caller is, or why it is not wanted."""
        name = hello.thread_name
        if hello.application_id != self._application_id:
            return f"this is the driver of '{self._application_id}'"
        with self._lock:
            seat = self._seats.get(name)
            if seat is None:
                return f"no stream thread of the name {name} is expected"
            if hello.epoch.submission < seat.lowest_submission:
                return f"attempt {hello.epoch} is older than submission {seat.lowest_submission}"
            current = seat.attempt
            if current is not None and hello.epoch == current.hello.epoch:
                return current
            if current is not None and hello.epoch < current.hello.epoch:
                return f"attempt {hello.epoch} was replaced by {current.hello.epoch}"
            if seat.closed_because is not None:
                return seat.closed_because
            attempt = seat.attempt = _Attempt(hello)
        if current is not None:
            why = f"attempt {current.hello.epoch} was replaced by {hello.epoch}"
            current.end(f"Stream thread {name} was restarted: {why}.")
            if current.link is not None:
                current.link.refuse(why)
        self._listener.on_registered(hello)
        return attempt

    def _carry(
        self,
        attempt: _Attempt,
        connection: Connection,
        received_there: int,
        *,
        wants_code: bool,
    ) -> None:
        link = ControlLink(
            connection,
            attempt.conversation,
            lambda payload: self._on_message(attempt, payload),
            gather_s=_GATHER_S,
        )
        with self._lock:
            previous, attempt.link = attempt.link, link
            code = self._seats[attempt.hello.thread_name].code if wants_code else None
        # The worker may have seen the previous one break first. Only when the last message of that
        # one is dealt with is it known which ones have to be repeated.
        if previous is not None:
            previous.close()
        if previous is None or previous.wait_ended(_TAKEOVER_S):
            attempt.conversation.resume(received_there)
            welcome = encode_message(What.WELCOME, b"", attempt.conversation.received)
            self._answer(connection, [welcome, *(() if code is None else _parts(code))])
        else:
            link.close()
        link.run(f"{attempt.hello.thread_name}-control-sender")
        with self._lock:
            if attempt.link is link:
                attempt.link = None

    def _on_message(self, attempt: _Attempt, payload: bytes) -> None:
        what, data, number = decode_message(payload)
        if what is What.REPORT:
            report = decode_value(data)
            if isinstance(report, Report):
                self._listener.on_report(attempt.hello, report)
            else:
                logger.warning("%s sent a report that cannot be read: %s", attempt.hello, report)
        elif number is not None:
            request = attempt.requests.pop(number, None)
            if request is not None:
                request.settle(decode_value(data))

    @staticmethod
    def _answer(connection: Connection, messages: Iterable[bytes]) -> None:
        try:
            for message in messages:
                connection.send(message)
        except ConnectionError as error:
            logger.info("A stream thread left before it was answered: %s", error)


def _parts(code: bytes) -> Iterator[bytes]:
    """The messages that carry a thread's code: a frame has a limit, code has none."""
    starts = range(0, len(code), _CODE_BYTES) or range(1)
    for left, start in zip(reversed(range(len(starts))), starts, strict=True):
        yield encode_message(What.CODE, code[start : start + _CODE_BYTES], left)


def _named(command: Command) -> str:
    return f"'{type(command).__name__}'"
