"""The stream thread's end of the control connection.

The thread's process opens the connection, because executors can reach the driver, but not vice
versa. After the loss of a connection, the thread tries to reconnect for a grace period. After that,
the thread counts as lost and stops gracefully. The driver's end is in `control_server`.
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
from millstream.runtime.thread_control import Close, ReceivedCommand, Report
from millstream.spark.connection import control_protocol
from millstream.spark.connection.control_protocol import ControlConnection
from millstream.spark.connection.messages import (
    Hello,
    MessageType,
    decode_message,
    decode_value,
    encode_message,
    encode_value,
)
from millstream.spark.connection.reliable_channel import (
    IDLE_TIMEOUT_S,
    ControlLink,
    ReliableChannel,
)

logger = logging.getLogger(__name__)

#: The default grace period: how long a thread continues to run while it tries to reconnect.
GRACE_MS: Final = 30_000
#: How long `report` blocks while the buffer is full of unacknowledged reports.
REPORT_WAIT_MS: Final = 100

#: The number of unacknowledged bytes above which replies are replaced by an error, so that the
#: buffer has space for reports.
MAX_REPLY_BYTES: Final = 32 * 1024 * 1024

_CONNECT_TIMEOUT_S: Final = 5.0
#: The maximum number of queued commands. Further commands wait in the driver, which has its own
#: limit.
_MAX_COMMANDS: Final = 1_000
_INITIAL_BACKOFF_S: Final = 0.1
_MAX_BACKOFF_S: Final = 2.0
_CLOCK: Final = SystemClock()


class ControlChannel:
    """A stream thread's connection to its driver.

    No method blocks the processing loop longer than documented. Thread-safe, except that only one
    thread at a time may call `commands` and `wait`.

    If there are more than `max_reports` unacknowledged reports, the oldest are dropped, counted and
    logged. `certificate` is the driver's certificate in DER, or empty if the connection is not
    encrypted.
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
        self._reliable_channel = ReliableChannel(max_messages=max_reports, drop_oldest=True)
        # A SimpleQueue, because its `put` is safe in a signal handler. `_on_message` bounds it.
        self._commands: queue.SimpleQueue[ReceivedCommand] = queue.SimpleQueue()
        self._peeked: list[ReceivedCommand] = []
        #: None until the code has been received.
        self._code: bytes | None = None
        self._link: ControlLink | None = None
        self._connected = threading.Event()
        self._has_tried = threading.Event()
        self._closing = threading.Event()
        self._connector = threading.Thread(
            target=self._keep_connected, name=f"{hello.thread_name}-control", daemon=True
        )
        #: Why the thread is lost; None if it is not lost.
        self.lost_reason: str | None = None
        #: The name of the signal that stopped the thread, if any.
        self.stop_signal: str | None = None
        self._reported_drops = 0
        self._request_error: StreamsError | None = None
        #: Called when a command has arrived or the driver is lost, on any thread or in a signal
        #: handler. Set by the thread's code.
        self.on_event: Callable[[], None] = lambda: None

    def open(self) -> bool:
        """Connect and register with the driver; return False if the driver is lost."""
        self._connector.start()
        self._has_tried.wait()
        return not self.lost

    def close(self, flush_ms: int = 2_000) -> None:
        """Deliver pending reports, disconnect, and join the threads.

        Reports are delivered for up to `flush_ms`.
        """
        if not self.lost and self._connector.is_alive():
            self._reliable_channel.flush(flush_ms / 1000)
        self._closing.set()
        self._reliable_channel.end()
        link = self._link
        if link is not None:
            link.close()
        if self._connector.is_alive():
            # Wait longer than any blocking call of that thread takes.
            self._connector.join(_CONNECT_TIMEOUT_S + 1)

    def take_code(self) -> bytes:
        """Return the thread's code, a pickled `ThreadMain`. Later calls return b""."""
        code, self._code = self._code or b"", b""
        return code

    @property
    def lost(self) -> bool:
        """Whether the driver is gone or has rejected this thread, which must then stop."""
        return self.lost_reason is not None

    @property
    def connected(self) -> bool:
        return self._connected.is_set()

    def report(self, report: Report, *, latest_only: bool = False) -> None:
        """Send a report to the driver, exactly once and in order, even across reconnects.

        Blocks for at most `REPORT_WAIT_MS` if the driver is connected but does not acknowledge
        messages. An unpicklable report arrives as an `UndeliverableObject`. With `latest_only`, the
        report replaces an unsent report of the same type.
        """
        self._post(
            encode_message(MessageType.REPORT, encode_value(report)),
            latest_key=type(report).__qualname__ if latest_only else None,
        )

    def reply(self, command: ReceivedCommand, answer: Any) -> None:
        """Reply to a request. If `answer` is an exception, the driver raises it.

        Does nothing for a command that needs no reply. If too many replies are unacknowledged, the
        method sends an error instead, so that replies do not displace reports.
        """
        if command.number is None:
            return
        data = encode_value(answer)
        waiting = self._reliable_channel.pending_bytes
        if waiting and waiting + len(data) > MAX_REPLY_BYTES:
            data = encode_value(
                ThreadUnavailableError(
                    f"The reply of {self._hello.thread_name} has {len(data)} bytes, and {waiting} "
                    "bytes of earlier messages have not been delivered to the driver yet, because "
                    "there are too many concurrent requests. Retry later."
                )
            )
        self._post(encode_message(MessageType.REPLY, data, command.number))

    def reject_requests(self, error: StreamsError) -> None:
        """Reply to all pending and future requests with an error.

        A closing thread may not process commands for minutes, and callers must not have to wait
        that long.
        """
        self._request_error = error
        self._peeked = [command for command in self.commands() if not self._reject_request(command)]

    def process_io(self) -> None:
        """Receive commands and send replies on the calling thread, without blocking.

        See `ControlLink.process_io`.
        """
        link = self._link
        if link is not None:
            link.process_io(_MAX_COMMANDS - self._commands.qsize())

    def commands(self) -> list[ReceivedCommand]:
        """Return the commands that arrived since the last call, oldest first.

        This method does not block.
        """
        arrived = self._commands
        # Called in each iteration of the processing loop. There are rarely any commands.
        if not self._peeked and arrived.empty():
            return []
        found, self._peeked = self._peeked, []
        while not arrived.empty():
            found.append(arrived.get_nowait())
        return found

    def wait(self, timeout_ms: int) -> bool:
        """Wait for a command; return whether `commands` will return one."""
        if not self._peeked:
            try:
                self._peeked = [self._commands.get(timeout=timeout_ms / 1000)]
            except queue.Empty:
                return False
        return True

    def stop_by_signal(self, signal_name: str, commit_timeout_ms: int) -> None:
        """Enqueue a close command. Takes no lock, so it is safe in a signal handler."""
        self.stop_signal = signal_name
        self._commands.put(ReceivedCommand(Close(commit_timeout_ms=commit_timeout_ms)))
        self.on_event()

    def _post(self, payload: bytes, latest_key: Hashable = None) -> None:
        reliable_channel = self._reliable_channel
        # Only acknowledgments of a connected driver free space in the buffer.
        wait_s = REPORT_WAIT_MS / 1000 if self.connected else 0.0
        reliable_channel.post(payload, wait_s=wait_s, latest_key=latest_key)
        if reliable_channel.dropped > self._reported_drops:
            if self._reported_drops == 0:
                logger.warning(
                    "The driver does not receive the reports of %s fast enough. From now on, the "
                    "oldest reports are dropped.",
                    self._hello.thread_name,
                )
            self._reported_drops = reliable_channel.dropped

    def _keep_connected(self) -> None:
        try:
            self._reconnect_loop()
        except Exception as error:
            # Without the connector thread, no more commands arrive.
            logger.exception(
                "The control connection of %s failed unexpectedly", self._hello.thread_name
            )
            self._mark_lost(f"its control connection failed: {type(error).__name__}: {error}")
        finally:
            self._has_tried.set()

    def _reconnect_loop(self) -> None:
        while not self._closing.is_set():
            link = self._connect()
            if link is None:
                break
            self._link = link
            self._connected.set()
            self._has_tried.set()
            if self._closing.is_set():
                link.close()
            link.run(f"{self._hello.thread_name}-control-sender")
            self._connected.clear()
            self._link = None
            if link.rejection is not None:
                self._mark_lost(f"the driver rejected this thread: {link.rejection}")
                break
            if not self._closing.is_set():
                logger.warning(
                    "%s lost its connection to the driver. It continues to work, and tries to "
                    "reconnect for %.0f s.",
                    self._hello.thread_name,
                    self._grace_s,
                )

    def _connect(self) -> ControlLink | None:
        """Connect to the driver, with retries.

        Retries end when a link is established, the channel is closed, or the grace period is over.
        """
        deadline = time.monotonic() + self._grace_s
        backoff_s = _INITIAL_BACKOFF_S
        while not self._closing.is_set():
            try:
                return self._register()
            except _RejectedError as rejection:
                self._mark_lost(f"the driver rejected this thread: {rejection}")
                return None
            except ConnectionError as error:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    host, port = self._address
                    self._mark_lost(
                        f"no connection to the driver at {host}:{port} "
                        f"for {self._grace_s:.0f} s: {error}"
                    )
                    return None
                # With jitter, so that the threads do not all reconnect at the same time.
                self._closing.wait(min(left_s, backoff_s * random.uniform(0.5, 1.0)))
                backoff_s = min(backoff_s * 2, _MAX_BACKOFF_S)
        return None

    def _register(self) -> ControlLink:
        connection = control_protocol.connect_to_driver(
            self._address,
            self._authkey,
            timeout_s=_CONNECT_TIMEOUT_S,
            idle_timeout_s=IDLE_TIMEOUT_S,
            certificate=self._certificate,
        )
        try:
            hello = encode_value((self._hello, self._reliable_channel.received, self._code is None))
            connection.send(encode_message(MessageType.HELLO, hello))
            message_type, reason, last_received = decode_message(connection.receive())
            if message_type is not MessageType.WELCOME or last_received is None:
                raise _RejectedError(decode_value(reason))
            if self._code is None:
                self._code = _received_code(connection)
        except (ConnectionError, _RejectedError):
            connection.close()
            raise
        self._reliable_channel.resume(last_received)
        return ControlLink(connection, self._reliable_channel, self._on_message)

    def _on_message(self, payload: bytes) -> None:
        _, data, number = decode_message(payload)
        while self._commands.qsize() >= _MAX_COMMANDS and not self._closing.wait(0.05):
            pass
        command = ReceivedCommand(decode_value(data), number, _CLOCK.monotonic_ms())
        if self._reject_request(command):
            return
        self._commands.put(command)
        self.on_event()

    def _reject_request(self, command: ReceivedCommand) -> bool:
        if self._request_error is None or command.number is None:
            return False
        self.reply(command, self._request_error)
        return True

    def _mark_lost(self, reason: str) -> None:
        if not self._closing.is_set():
            logger.warning("%s stops: %s", self._hello.thread_name, reason)
        self.lost_reason = reason
        self._reliable_channel.end()
        self.on_event()


def _received_code(connection: ControlConnection) -> bytes:
    parts: list[bytes] = []
    while True:
        _, part, left = decode_message(connection.receive())
        parts.append(part)
        if not left:
            return b"".join(parts)


class _RejectedError(Exception):
    """The driver rejected this thread."""
