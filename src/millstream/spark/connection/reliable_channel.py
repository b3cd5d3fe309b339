"""Reliable, ordered delivery of messages between driver and stream thread.

Messages are numbered and buffered until the peer has acknowledged them, so that each message is
delivered exactly once and in order, even after a reconnect. A network failure neither loses a state
change nor runs a command twice. `ReliableChannel` buffers the messages; `ControlLink` transports
them over one connection.

The body of a frame consists of its type (1 byte), the number of its first message and the number of
the last message received from the peer (8 bytes each, big-endian), and the messages, each preceded
by its size (4 bytes).
"""

from __future__ import annotations

import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.spark.connection.control_protocol import ControlConnection

#: Seconds between heartbeats on an idle link.
HEARTBEAT_S: Final = 3.0
#: Seconds without received data after which a link is considered broken.
IDLE_TIMEOUT_S: Final = 15.0

#: How long the link's own threads stay idle after a call of `process_io` by another thread.
_EXTERNAL_IO_S: Final = 0.05
#: A call of `process_io` within this time after the previous one only sends.
_SEND_ONLY_S: Final = 0.001

_HEAD: Final = struct.Struct(">BQQ")
_SIZE: Final = struct.Struct(">I")
_MESSAGE: Final = 1
_HEARTBEAT: Final = 2
_REJECTION: Final = 3
#: Seconds that an acknowledgment may wait for a message to piggyback on. Usually, a reply follows.
#: At 1,000 queries per second, this halves the traffic.
ACKNOWLEDGE_WITHIN_S: Final = 0.02
#: The limits of a batch of messages, which is taken under one lock and sent in one frame. The last
#: message may exceed the limit of bytes; then, each message has its own frame.
_MAX_BATCH_MESSAGES: Final = 64
_MAX_BATCH_BYTES: Final = 256 * 1024


@dataclass(slots=True)
class _PendingMessage:
    number: int
    payload: bytes
    latest_key: Hashable


class ReliableChannel:
    """Buffers the numbered messages between the driver and a thread's attempt.

    If there are too many unacknowledged messages or bytes, `post` either drops the oldest messages
    and counts them in `dropped` (with `drop_oldest`), or rejects the new message.
    """

    def __init__(
        self, *, max_messages: int = 10_000, max_bytes: int = 128 * 1024 * 1024, drop_oldest: bool
    ) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._drop_oldest = drop_oldest
        lock = threading.Lock()
        #: Notified when data is ready to send, or when a waiter has to check its condition.
        self._send_condition = threading.Condition(lock)
        #: Notified when messages have been acknowledged or the channel has ended.
        self._room_condition = threading.Condition(lock)
        self._unsent: deque[_PendingMessage] = deque()
        self._unacknowledged: deque[_PendingMessage] = deque()
        self._bytes = 0
        self._last_number = 0
        #: The deadline for acknowledging received messages; None if all are acknowledged.
        self._acknowledge_at: float | None = None
        self._ended = False
        self._is_corked = False
        #: The number of the last message that was received from the peer and processed.
        self.received = 0
        #: The number of messages that were dropped because the peer did not receive them in time.
        self.dropped = 0

    def post(self, payload: bytes, *, wait_s: float = 0.0, latest_key: Hashable = None) -> bool:
        """Enqueue a message, which is sent as soon as a link exists.

        If the buffer is full, wait for space for up to `wait_s`. A message with a
        `latest_key` replaces an unsent message with an equal key; use a key if only the latest
        value matters. Returns False if the buffer remained full or the channel has ended.
        """
        with self._room_condition:
            if latest_key is not None and self._replace(latest_key, payload):
                return not self._ended
            if not self._has_room(payload):
                if wait_s > 0:
                    self._room_condition.wait_for(
                        lambda: self._ended or self._has_room(payload), wait_s
                    )
                if self._drop_oldest and not self._ended:
                    self._make_room(payload)
                elif not self._has_room(payload):
                    return False
            if self._ended:
                return False
            self._last_number += 1
            self._unsent.append(_PendingMessage(self._last_number, payload, latest_key))
            self._bytes += len(payload)
            if len(self._unsent) == 1 and not self._is_corked:
                # With earlier unsent messages, the sender has been notified and takes all messages.
                self._send_condition.notify_all()
            return True

    @property
    def pending_bytes(self) -> int:
        return self._bytes

    def flush(self, timeout_s: float) -> bool:
        """Wait until the peer has acknowledged all messages; return False on a timeout."""
        with self._room_condition:
            self._room_condition.wait_for(lambda: self._ended or self._pending == 0, timeout_s)
            return self._pending == 0

    def end(self) -> None:
        """End the channel and drop undelivered messages."""
        with self._room_condition:
            self._ended = True
            self._room_condition.notify_all()
            self._send_condition.notify_all()

    def resume(self, last_received: int) -> None:
        """Prepare for a new link.

        The peer has received the messages up to `last_received`.
        """
        with self._room_condition:
            self._unsent.extendleft(reversed(self._unacknowledged))
            self._unacknowledged.clear()
            while self._unsent and self._unsent[0].number <= last_received:
                self._bytes -= len(self._unsent.popleft().payload)
            self._room_condition.notify_all()
            self._send_condition.notify_all()

    def acknowledged(self, number: int) -> None:
        """Remove the messages up to `number`, which the peer has received."""
        pending = self._unacknowledged
        if not pending:
            return
        with self._room_condition:
            while pending and pending[0].number <= number:
                self._bytes -= len(pending.popleft().payload)
            self._room_condition.notify_all()

    def wait(self, timeout_s: float, cancelled: Callable[[], bool]) -> None:
        """Wait until a message is pending or an acknowledgment is due.

        Also returns after `timeout_s`, or if `cancelled` returns True, which is checked after each
        `wake`.
        """
        until = time.monotonic() + timeout_s
        with self._send_condition:
            while not self._unsent and not cancelled():
                due = self._acknowledge_at
                left_s = (until if due is None else min(until, due)) - time.monotonic()
                if left_s <= 0:
                    break
                self._send_condition.wait(left_s)

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def take(self) -> list[tuple[int, bytes]]:
        """Take the next batch of messages, with their numbers.

        The caller must send the batch immediately, or a heartbeat if the batch is empty, because
        each frame contains an acknowledgment.
        """
        with self._send_condition:
            self._acknowledge_at = None
            batch: list[tuple[int, bytes]] = []
            size = 0
            while self._unsent and len(batch) < _MAX_BATCH_MESSAGES and size < _MAX_BATCH_BYTES:
                entry = self._unsent.popleft()
                self._unacknowledged.append(entry)
                batch.append((entry.number, entry.payload))
                size += len(entry.payload)
            return batch

    def cork(self, *, close: bool) -> None:
        """Disable notifications of new messages, or re-enable them if `close` is False.

        While notifications are disabled, new messages must be polled.
        """
        with self._send_condition:
            self._is_corked = close
            self._send_condition.notify_all()

    def wake(self) -> None:
        """Make a running `wait` check its conditions."""
        with self._send_condition:
            self._send_condition.notify_all()

    def mark_received(self, number: int, *, lazy_ack: bool = False) -> None:
        """Record that a message from the peer has been processed.

        With `lazy_ack`, the message is acknowledged with the next message or heartbeat, without a
        deadline.
        """
        self.received = number
        # A pending acknowledgment will include this number.
        if lazy_ack or self._acknowledge_at is not None:
            return
        with self._send_condition:
            if self._acknowledge_at is None:
                self._acknowledge_at = time.monotonic() + ACKNOWLEDGE_WITHIN_S
                self._send_condition.notify_all()

    @property
    def _pending(self) -> int:
        return len(self._unsent) + len(self._unacknowledged)

    def _has_room(self, payload: bytes) -> bool:
        if self._pending == 0:
            return True
        return self._pending < self._max_messages and self._bytes + len(payload) <= self._max_bytes

    def _make_room(self, payload: bytes) -> None:
        while not self._has_room(payload):
            oldest = (self._unacknowledged or self._unsent).popleft()
            self._bytes -= len(oldest.payload)
            self.dropped += 1

    def _replace(self, latest_key: Hashable, payload: bytes) -> bool:
        for entry in self._unsent:
            if entry.latest_key == latest_key:
                self._bytes += len(payload) - len(entry.payload)
                entry.payload = payload
                return True
        return False


class ControlLink:
    """Transports the messages of a channel over one connection.

    The link calls `on_message` with each message exactly once, in order, on the thread that is in
    `run` or `process_io`. After it has sent a batch, it collects messages for `linger_s` before it
    sends the next batch.
    """

    def __init__(
        self,
        connection: ControlConnection,
        reliable_channel: ReliableChannel,
        on_message: Callable[[bytes], None],
        *,
        heartbeat_s: float = HEARTBEAT_S,
        linger_s: float = 0.0,
    ) -> None:
        self._connection = connection
        self._reliable_channel = reliable_channel
        self._on_message = on_message
        self._heartbeat_s = heartbeat_s
        self._linger_s = linger_s
        self._closed = False
        self._ended = threading.Event()
        #: Held while receiving, and while taking and sending messages, to preserve the order.
        self._reading, self._writing = threading.Lock(), threading.Lock()
        #: The time of the latest call of `process_io`.
        self._external_io_at = -_EXTERNAL_IO_S
        #: Wakes the link's own thread before `_EXTERNAL_IO_S` has passed.
        self._wake = threading.Event()
        #: Why the peer rejected this end; None if it did not.
        self.rejection: str | None = None

    def run(self, name: str) -> None:
        """Transport messages in both directions until the connection ends.

        `name` is the name of the sender thread.
        """
        writer = threading.Thread(target=self._write, name=name, daemon=True)
        try:
            writer.start()
            while not self._closed and self._read_one():
                if self._has_external_io:
                    self._wait_for_external_io()
        finally:
            self.close()
            if writer.ident is not None:
                writer.join()
            # With both locks, no other thread uses this connection, so a new link may start.
            with self._reading, self._writing:
                self._ended.set()

    def process_io(self, max_messages: int) -> None:
        """Receive up to `max_messages`, and send pending messages, without blocking.

        This method is meant for a loop that calls it repeatedly. Meanwhile, the link's own threads
        stay idle, because switching threads with Python's global interpreter lock costs more than a
        message. If a single frame may contain more than `max_messages`, nothing is received.
        """
        if not self._connection.supports_nonblocking:
            return
        before, self._external_io_at = self._external_io_at, time.monotonic()
        try:
            if max_messages >= _MAX_BATCH_MESSAGES and self._external_io_at - before > _SEND_ONLY_S:
                self._receive_nowait(max_messages // _MAX_BATCH_MESSAGES)
            self._send_nowait()
        except ConnectionError:
            # The link's own threads do the same. Messages that were taken from the channel are sent
            # again after a reconnect.
            self.close()

    def _wait_for_external_io(self) -> None:
        """Wait while another thread calls `process_io` repeatedly."""
        self._reliable_channel.cork(close=True)
        while self._has_external_io and not self._closed:
            self._wake.wait(_EXTERNAL_IO_S)
        self._reliable_channel.cork(close=False)

    @property
    def _has_external_io(self) -> bool:
        return time.monotonic() - self._external_io_at < _EXTERNAL_IO_S

    def _receive_nowait(self, max_frames: int) -> None:
        if self._reading.acquire(blocking=False):
            try:
                if not self._closed:
                    bodies = self._connection.receive_nowait(max_frames)
                    if not all(self._process_frame(body, lazy_ack=True) for body in bodies):
                        self.close()
            finally:
                self._reading.release()

    def _send_nowait(self) -> None:
        reliable_channel = self._reliable_channel
        if not reliable_channel.has_unsent:
            return
        if self._writing.acquire(blocking=False):
            try:
                if not self._closed and not self._connection.has_partial_send:
                    self._connection.send_nowait(*self._bodies(reliable_channel.take()))
            finally:
                self._writing.release()
        if reliable_channel.has_unsent or self._connection.has_partial_send:
            # The link's own thread sends the rest, because it may block.
            reliable_channel.wake()

    def _bodies(self, batch: Sequence[tuple[int, bytes]]) -> list[bytes]:
        received = self._reliable_channel.received
        if sum(len(payload) for _, payload in batch) > _MAX_BATCH_BYTES:
            # A single message may reach the maximum size of a frame.
            frames: list[Sequence[tuple[int, bytes]]] = [[each] for each in batch]
        else:
            frames = [batch] if batch else []
        return [_body(frame, received) for frame in frames]

    def close(self) -> None:
        """Close the connection. `run` returns soon after."""
        self._closed = True
        self._wake.set()
        self._connection.close()
        self._reliable_channel.wake()

    def reject(self, reason: str) -> None:
        """Send a rejection to the peer, and close the connection."""
        try:
            self._connection.send(_HEAD.pack(_REJECTION, 0, 0) + reason.encode())
        except ConnectionError:
            # The peer is already gone.
            pass
        finally:
            self.close()

    def wait_ended(self, timeout_s: float) -> bool:
        return self._ended.wait(timeout_s)

    def _read_one(self) -> bool:
        with self._reading:
            try:
                body = self._connection.receive()
            except ConnectionError:
                return False
            return self._process_frame(body)

    def _process_frame(self, body: bytes, *, lazy_ack: bool = False) -> bool:
        """Process a frame; return False if the peer rejected this end."""
        kind, number, acknowledged = _HEAD.unpack_from(body)
        self._reliable_channel.acknowledged(acknowledged)
        if kind == _MESSAGE:
            self._deliver_messages(number, body, lazy_ack=lazy_ack)
        elif kind == _REJECTION:
            self.rejection = body[_HEAD.size :].decode()
            return False
        return True

    def _deliver_messages(self, number: int, body: bytes, *, lazy_ack: bool) -> None:
        reliable_channel = self._reliable_channel
        start = _HEAD.size
        while start < len(body):
            end = start + _SIZE.size + _SIZE.unpack_from(body, start)[0]
            # After a reconnect, the peer repeats messages whose acknowledgment it did not receive.
            if number > reliable_channel.received:
                self._on_message(body[start + _SIZE.size : end])
                reliable_channel.mark_received(number, lazy_ack=lazy_ack or end < len(body))
            start = end
            number += 1

    def _write(self) -> None:
        try:
            self._write_until_closed()
        finally:
            # A link without a writer is useless, so make the reader end the link.
            self._connection.close()

    def _write_until_closed(self) -> None:
        reliable_channel = self._reliable_channel
        due = time.monotonic()
        while not self._closed:
            wait_s = max(0.0, due - time.monotonic())
            reliable_channel.wait(wait_s, lambda: self._closed or self._connection.has_partial_send)
            try:
                with self._writing:
                    batch = reliable_channel.take()
                    heartbeat = _HEAD.pack(_HEARTBEAT, 0, reliable_channel.received)
                    self._connection.send(*(self._bodies(batch) or [heartbeat]))
            except ConnectionError:
                # The reader gets the same error and ends the link. Messages that were taken from
                # the channel are sent again after a reconnect.
                return
            if batch and self._linger_s:
                time.sleep(self._linger_s)
            due = time.monotonic() + self._heartbeat_s


def _body(batch: Sequence[tuple[int, bytes]], received: int) -> bytes:
    """Encode messages with consecutive numbers as the body of one frame."""
    parts = [_HEAD.pack(_MESSAGE, batch[0][0], received)]
    for _, payload in batch:
        parts += (_SIZE.pack(len(payload)), payload)
    return b"".join(parts)
