"""The stream thread's end of the connection to the driver.

The thread's process opens the connection itself: executors can reach the driver, not the other way
round. Reports (states, assignment, metrics, restore progress) go up; commands (close, pause,
queries) come down. A connection that breaks is opened again for a grace period; only then does the
thread count itself as lost and stop in an orderly way. The driver's end is in `control_server`.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, Final

from millstream.clock import SystemClock
from millstream.errors import StreamsError, ThreadUnavailableError
from millstream.runtime.control import Asked, Close, Report
from millstream.spark.connection import wire
from millstream.spark.connection.conversation import SILENCE_LIMIT_S, ControlLink, Conversation
from millstream.spark.connection.messages import (
    Hello,
    What,
    decode_message,
    decode_value,
    encode_message,
    encode_value,
)
from millstream.spark.connection.wire import Connection

logger = logging.getLogger(__name__)

#: How long a thread without its driver goes on working, in milliseconds.
GRACE_MS: Final = 30_000
#: How long `report` waits for room when the driver has not taken earlier reports, in milliseconds.
REPORT_WAIT_MS: Final = 100

#: How many bytes may wait for the driver before answers are refused, so that reports have room.
MAX_REPLY_BYTES: Final = 32 * 1024 * 1024

_DIAL_TIMEOUT_S: Final = 5.0
#: How many commands wait here; more stay with the driver, which refuses beyond its own limit.
_MAX_COMMANDS: Final = 1_000
_BACKOFF_FIRST_S: Final = 0.1
_BACKOFF_MOST_S: Final = 2.0
_CLOCK: Final = SystemClock()


class ControlChannel:
    """What a stream thread holds of its driver.

    None of its methods blocks the processing loop for longer than it says. Usable from several
    threads; `commands` and `wait` from one at a time.

    Args:
        address: host and port at which the driver listens.
        authkey: the application's key.
        hello: who this thread is.
        grace_ms: milliseconds for which a lost connection is opened again.
        max_reports: most reports that wait for the driver; beyond it the oldest are given up,
            counted and logged.
        certificate: the driver's, in DER; empty if it does not encrypt.

    Attributes:
        on_news: called when a command has come or the driver is lost; on any thread, or in a signal
            handler.
    """

    def __init__(
        self,
        address: tuple[str, int],
        authkey: bytes,
        hello: Hello,
        *,
        grace_ms: int = GRACE_MS,
        max_reports: int = 10_000,
        certificate: bytes = b"",
    ) -> None:
        self._address = address
        self._certificate = certificate
        self._authkey = authkey
        self._hello = hello
        self._grace_s = grace_ms / 1000
        self._conversation = Conversation(max_messages=max_reports, drop_oldest=True)
        # A SimpleQueue because its `put` is safe in a signal handler; `_on_message` bounds it.
        self._commands: queue.SimpleQueue[Asked] = queue.SimpleQueue()
        self._waited_for: list[Asked] = []
        #: None until it has come.
        self._code: bytes | None = None
        self._link: ControlLink | None = None
        self._connected = threading.Event()
        self._settled = threading.Event()
        self._closing = threading.Event()
        self._keeper = threading.Thread(
            target=self._keep_connected, name=f"{hello.thread_name}-control", daemon=True
        )
        self._lost_reason: str | None = None
        self._signal: str | None = None
        self._dropped_before = 0
        self._no_answers: StreamsError | None = None
        self.on_news: Callable[[], None] = _nobody_waits

    def open(self) -> bool:
        """Connect and register with the driver; False if that fails for the grace period."""
        self._keeper.start()
        self._settled.wait()
        return not self.lost

    def close(self, flush_ms: int = 2_000) -> None:
        """Deliver what was reported, then hang up and leave no thread behind.

        Args:
            flush_ms: most milliseconds to wait until the driver has acknowledged the reports.
        """
        if not self.lost and self._keeper.is_alive():
            self._conversation.flush(flush_ms / 1000)
        self._closing.set()
        self._conversation.end()
        link = self._link
        if link is not None:
            link.close()
        if self._keeper.is_alive():
            # Longer than any single step of the keeper can take.
            self._keeper.join(_DIAL_TIMEOUT_S + 1)

    def take_code(self) -> bytes:
        """The thread's code, a pickled `ThreadMain`, which came when the thread registered. Once:
        afterwards it is not kept."""
        code, self._code = self._code or b"", b""
        return code

    @property
    def lost(self) -> bool:
        """Whether the driver is gone, or has turned this thread away: stop in an orderly way."""
        return self._lost_reason is not None

    @property
    def lost_reason(self) -> str | None:
        """Why the thread is lost; None while it is not."""
        return self._lost_reason

    @property
    def stop_signal(self) -> str | None:
        """The name of the signal by which the machine asked the thread to end, if one did."""
        return self._signal

    @property
    def connected(self) -> bool:
        """Whether there is a connection just now."""
        return self._connected.is_set()

    def report(self, report: Report, *, latest_only: bool = False) -> None:
        """Tell the driver something. Delivered once and in order, across reconnects.

        Blocks for at most `REPORT_WAIT_MS`, when the driver is there but takes nothing for long.

        Args:
            report: if it cannot be pickled it arrives as `Undeliverable`.
            latest_only: this replaces an earlier report of the same kind that is still waiting:
                for metrics and progress, where only the latest is of interest.
        """
        self._post(
            encode_message(What.REPORT, encode_value(report)),
            latest_key=type(report).__qualname__ if latest_only else None,
        )

    def reply(self, asked: Asked, answer: Any) -> None:
        """Answer a question; an exception is raised where it was asked.

        Does nothing for a command that expects no answer. While the driver is slow to take answers,
        further ones are not given: they would push out reports, which must arrive.
        """
        if asked.number is None:
            return
        data = encode_value(answer)
        waiting = self._conversation.waiting_bytes
        if waiting and waiting + len(data) > MAX_REPLY_BYTES:
            data = encode_value(
                ThreadUnavailableError(
                    f"The answer of {self._hello.thread_name} has {len(data)} bytes, and the "
                    f"driver has not taken {waiting} bytes of earlier ones: too much is asked at "
                    "the same time. Ask again in a moment."
                )
            )
        self._post(encode_message(What.REPLY, data, asked.number))

    def refuse_questions(self, error: StreamsError) -> None:
        """Answer all questions with an error from now on, those that wait included.

        A thread that closes looks at no commands, for minutes at worst, and whoever asks it must
        not wait for that.
        """
        self._no_answers = error
        self._waited_for = [asked for asked in self.commands() if not self._refuses(asked)]

    def attend(self) -> None:
        """Receive commands and send replies on the calling thread, without waiting; see
        `ControlLink.attend`."""
        link = self._link
        if link is not None:
            link.attend(_MAX_COMMANDS - self._commands.qsize())

    def commands(self) -> list[Asked]:
        """The commands that have come since the last call, oldest first. Does not wait."""
        arrived = self._commands
        # Called once per round of the processing loop, and nearly always there is nothing.
        if not self._waited_for and arrived.empty():
            return []
        found, self._waited_for = self._waited_for, []
        while not arrived.empty():
            found.append(arrived.get_nowait())
        return found

    def wait(self, timeout_ms: int) -> bool:
        """Wait for a command; True if there is one for `commands` to return."""
        if not self._waited_for:
            try:
                self._waited_for = [self._commands.get(timeout=timeout_ms / 1000)]
            except queue.Empty:
                return False
        return True

    def stop_by_signal(self, signal_name: str, commit_timeout_ms: int) -> None:
        """Ask the thread to close as if the driver had. Safe in a signal handler: takes no lock.

        Args:
            signal_name: what the machine sent.
            commit_timeout_ms: how long its last commit may take.
        """
        self._signal = signal_name
        self._commands.put(Asked(Close(commit_timeout_ms=commit_timeout_ms)))
        self.on_news()

    def _post(self, payload: bytes, latest_key: Hashable = None) -> None:
        conversation = self._conversation
        # Room comes only while the driver is there to take something.
        wait_s = REPORT_WAIT_MS / 1000 if self.connected else 0.0
        conversation.post(payload, wait_s=wait_s, latest_key=latest_key)
        if conversation.dropped > self._dropped_before:
            if self._dropped_before == 0:
                logger.warning(
                    "The driver does not take the reports of %s fast enough: the oldest are given "
                    "up from here on.",
                    self._hello.thread_name,
                )
            self._dropped_before = conversation.dropped

    def _keep_connected(self) -> None:
        try:
            self._connect_again_and_again()
        except Exception as error:
            # Without its keeper the thread would hear of no command any more.
            logger.exception("the connection of %s cannot be kept", self._hello.thread_name)
            self._give_up(f"keeping its connection failed: {type(error).__name__}: {error}")
        finally:
            self._settled.set()

    def _connect_again_and_again(self) -> None:
        while not self._closing.is_set():
            link = self._connect()
            if link is None:
                break
            self._link = link
            self._connected.set()
            self._settled.set()
            if self._closing.is_set():
                link.close()
            link.run(f"{self._hello.thread_name}-control-sender")
            self._connected.clear()
            self._link = None
            if link.refusal is not None:
                self._give_up(f"the driver turned it away: {link.refusal}")
                break
            if not self._closing.is_set():
                logger.warning(
                    "%s lost its connection to the driver; it goes on working and tries again for "
                    "%.0f s.",
                    self._hello.thread_name,
                    self._grace_s,
                )

    def _connect(self) -> ControlLink | None:
        """Try until there is a link, the channel closes, or the grace period is over."""
        deadline = time.monotonic() + self._grace_s
        backoff_s = _BACKOFF_FIRST_S
        while not self._closing.is_set():
            try:
                return self._introduce()
            except _TurnedAwayError as refusal:
                self._give_up(f"the driver turned it away: {refusal}")
                return None
            except ConnectionError as error:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    host, port = self._address
                    self._give_up(
                        f"no connection to the driver at {host}:{port} "
                        f"for {self._grace_s:.0f} s: {error}"
                    )
                    return None
                # Spread out, so that all threads do not come back in the same instant.
                self._closing.wait(min(left_s, backoff_s * random.uniform(0.5, 1.0)))
                backoff_s = min(backoff_s * 2, _BACKOFF_MOST_S)
        return None

    def _introduce(self) -> ControlLink:
        connection = wire.dial(
            self._address,
            self._authkey,
            timeout_s=_DIAL_TIMEOUT_S,
            silence_limit_s=SILENCE_LIMIT_S,
            certificate=self._certificate,
        )
        try:
            hello = encode_value((self._hello, self._conversation.received, self._code is None))
            connection.send(encode_message(What.HELLO, hello))
            what, reason, received_there = decode_message(connection.receive())
            if what is not What.WELCOME or received_there is None:
                raise _TurnedAwayError(decode_value(reason))
            if self._code is None:
                self._code = _received_code(connection)
        except (ConnectionError, _TurnedAwayError):
            connection.close()
            raise
        self._conversation.resume(received_there)
        return ControlLink(connection, self._conversation, self._on_message)

    def _on_message(self, payload: bytes) -> None:
        _, data, number = decode_message(payload)
        while self._commands.qsize() >= _MAX_COMMANDS and not self._closing.wait(0.05):
            pass
        asked = Asked(decode_value(data), number, _CLOCK.monotonic_ms())
        if self._refuses(asked):
            return
        self._commands.put(asked)
        self.on_news()

    def _refuses(self, asked: Asked) -> bool:
        if self._no_answers is None or asked.number is None:
            return False
        self.reply(asked, self._no_answers)
        return True

    def _give_up(self, reason: str) -> None:
        if not self._closing.is_set():
            logger.warning("%s stops: %s", self._hello.thread_name, reason)
        self._lost_reason = reason
        self._conversation.end()
        self.on_news()


def _received_code(connection: Connection) -> bytes:
    parts: list[bytes] = []
    while True:
        _, part, left = decode_message(connection.receive())
        parts.append(part)
        if not left:
            return b"".join(parts)


def _nobody_waits() -> None:
    """The thread's code has not begun to wait for news."""


class _TurnedAwayError(Exception):
    """The driver answered, and does not want this thread."""
