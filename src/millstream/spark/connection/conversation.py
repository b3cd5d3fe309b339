"""What the driver and a stream thread say to each other, kept whole across broken connections.

Messages are numbered and kept until the other end has acknowledged them, so that after a reconnect
each is delivered once and in order: a blip of the network loses no state change and runs no command
twice. `Conversation` is that memory; `ControlLink` moves it over one connection while that lasts.

A frame's body is: type (1 byte), number of its first message, number of the last one received from
the other end (8 bytes each, big-endian), then messages, each after its size (4 bytes).
"""

from __future__ import annotations

import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Final

from millstream.spark.connection.wire import Connection

#: Seconds between signs of life on an idle link.
HEARTBEAT_S: Final = 3.0
#: Seconds without a sign of life after which a link counts as broken.
SILENCE_LIMIT_S: Final = 15.0

#: For how long the threads of a link leave it to who attends to it.
_ATTENDED_S: Final = 0.05
#: Who attends again so soon has only something to send.
_AGAIN_S: Final = 0.001

_HEAD: Final = struct.Struct(">BQQ")
_SIZE: Final = struct.Struct(">I")
_MESSAGE: Final = 1
_SIGN_OF_LIFE: Final = 2
_REFUSAL: Final = 3
#: Seconds that an acknowledgement may wait for a message that takes it along. Answers mostly do:
#: at a thousand questions a second that halves what goes over the wire.
ACKNOWLEDGE_WITHIN_S: Final = 0.02
#: How many messages are taken for sending under one lock, and go out in one frame: so many, or the
#: one that brings them above so many bytes, which has a frame of its own.
_BATCH: Final = 64
_BATCH_BYTES: Final = 256 * 1024


class _Entry:
    """A message that the other end has not acknowledged."""

    __slots__ = ("latest_key", "number", "payload")

    def __init__(self, number: int, payload: bytes, latest_key: Hashable) -> None:
        self.number = number
        self.payload = payload
        self.latest_key = latest_key


class Conversation:
    """The numbered messages between the driver and one attempt of a stream thread.

    Holds at most `max_messages` and `max_bytes` unacknowledged ones. At that limit `post` waits for
    as long as it was told and then, as `drop_oldest` says, gives up the oldest message (counted in
    `dropped`) or refuses the new one.

    Args:
        max_messages: most unacknowledged messages.
        max_bytes: most bytes of them together.
        drop_oldest: what to do at the limit.
    """

    def __init__(
        self, *, max_messages: int = 10_000, max_bytes: int = 128 * 1024 * 1024, drop_oldest: bool
    ) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._drop_oldest = drop_oldest
        lock = threading.Lock()
        #: There is something to send, or a reason to look.
        self._to_send = threading.Condition(lock)
        #: Something was acknowledged or given up, which makes room.
        self._made_room = threading.Condition(lock)
        self._unsent: deque[_Entry] = deque()
        self._unacknowledged: deque[_Entry] = deque()
        self._bytes = 0
        self._last_number = 0
        #: When what was received has to be acknowledged; None if it is.
        self._acknowledge_at: float | None = None
        self._ended = False
        self._is_corked = False
        #: The number of the last message received from the other end and dealt with.
        self.received = 0
        #: Messages given up because the other end did not take them in time.
        self.dropped = 0

    def post(self, payload: bytes, *, wait_s: float = 0.0, latest_key: Hashable = None) -> bool:
        """Say something; it is sent as soon as there is a link.

        Args:
            payload: the message.
            wait_s: seconds to wait for room at the limit.
            latest_key: if not None, replaces an unsent message that was posted with an equal key:
                for what is only worth knowing in its latest version.

        Returns:
            False if there was no room and the message was refused, or the conversation is over.
        """
        with self._made_room:
            if latest_key is not None and self._replace(latest_key, payload):
                return not self._ended
            if not self._has_room(payload):
                if wait_s > 0:
                    self._made_room.wait_for(lambda: self._ended or self._has_room(payload), wait_s)
                if self._drop_oldest and not self._ended:
                    self._make_room(payload)
                elif not self._has_room(payload):
                    return False
            if self._ended:
                return False
            self._last_number += 1
            self._unsent.append(_Entry(self._last_number, payload, latest_key))
            self._bytes += len(payload)
            if len(self._unsent) == 1 and not self._is_corked:
                # Who sends has heard of earlier ones, and takes all.
                self._to_send.notify_all()
            return True

    @property
    def waiting_bytes(self) -> int:
        """How many bytes the other end has not acknowledged."""
        return self._bytes

    def flush(self, timeout_s: float) -> bool:
        """Wait until the other end has acknowledged everything; False when the time is over."""
        with self._made_room:
            self._made_room.wait_for(lambda: self._ended or self._pending == 0, timeout_s)
            return self._pending == 0

    def end(self) -> None:
        """Nothing more is said: what was not delivered is given up."""
        with self._made_room:
            self._ended = True
            self._made_room.notify_all()
            self._to_send.notify_all()

    def resume(self, received_there: int) -> None:
        """A new link begins; the other end has received the messages up to this number."""
        with self._made_room:
            self._unsent.extendleft(reversed(self._unacknowledged))
            self._unacknowledged.clear()
            while self._unsent and self._unsent[0].number <= received_there:
                self._bytes -= len(self._unsent.popleft().payload)
            self._made_room.notify_all()
            self._to_send.notify_all()

    def acknowledged(self, number: int) -> None:
        """The other end has received the messages up to this number."""
        pending = self._unacknowledged
        if not pending:
            return
        with self._made_room:
            while pending and pending[0].number <= number:
                self._bytes -= len(pending.popleft().payload)
            self._made_room.notify_all()

    def wait(self, timeout_s: float, cancelled: Callable[[], bool]) -> None:
        """Wait until there is something to send: a message, or an acknowledgement that is due.

        Ends also after `timeout_s`, and when `cancelled` says so (after `wake`).
        """
        until = time.monotonic() + timeout_s
        with self._to_send:
            while not self._unsent and not cancelled():
                due = self._acknowledge_at
                left_s = (until if due is None else min(until, due)) - time.monotonic()
                if left_s <= 0:
                    break
                self._to_send.wait(left_s)

    @property
    def has_unsent(self) -> bool:
        """Whether there are messages to be sent."""
        return bool(self._unsent)

    def take(self) -> list[tuple[int, bytes]]:
        """Take the next few messages, with their numbers. They are to be sent at once, or without
        any a sign of life: whatever is sent acknowledges."""
        with self._to_send:
            self._acknowledge_at = None
            batch: list[tuple[int, bytes]] = []
            size = 0
            while self._unsent and len(batch) < _BATCH and size < _BATCH_BYTES:
                entry = self._unsent.popleft()
                self._unacknowledged.append(entry)
                batch.append((entry.number, entry.payload))
                size += len(entry.payload)
            return batch

    def cork(self, *, close: bool) -> None:
        """Let messages wait for somebody who takes them without being told, or no more."""
        with self._to_send:
            self._is_corked = close
            self._to_send.notify_all()

    def wake(self) -> None:
        """Let a `wait` look at its reasons to end."""
        with self._to_send:
            self._to_send.notify_all()

    def note_received(self, number: int, *, quietly: bool = False) -> None:
        """The message of this number from the other end has been dealt with.

        Args:
            number: of the message.
            quietly: whether the next sign of life is soon enough to acknowledge it, if nothing is
                sent before.
        """
        self.received = number
        # Where an acknowledgement is due already, whoever sends it looks at the number later.
        if quietly or self._acknowledge_at is not None:
            return
        with self._to_send:
            if self._acknowledge_at is None:
                self._acknowledge_at = time.monotonic() + ACKNOWLEDGE_WITHIN_S
                self._to_send.notify_all()

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
    """One connection that carries a conversation, for as long as it lasts.

    Args:
        connection: an authenticated connection, on which nothing else is sent any more.
        conversation: what is carried.
        on_message: called with each message, once, in order, on the thread that is in `run` or in
            `attend`.
        heartbeat_s: seconds between signs of life.
        gather_s: seconds for which further messages gather after some were sent, to be sent
            together. One that comes alone is sent at once.
    """

    def __init__(
        self,
        connection: Connection,
        conversation: Conversation,
        on_message: Callable[[bytes], None],
        *,
        heartbeat_s: float = HEARTBEAT_S,
        gather_s: float = 0.0,
    ) -> None:
        self._connection = connection
        self._conversation = conversation
        self._on_message = on_message
        self._heartbeat_s = heartbeat_s
        self._gather_s = gather_s
        self._closed = False
        self._ended = threading.Event()
        #: Held by who receives, and by who takes messages and sends them: order is kept.
        self._reading, self._writing = threading.Lock(), threading.Lock()
        #: When somebody attended to the link last, and what wakes its own threads meanwhile.
        self._attended_at = -_ATTENDED_S
        self._wake = threading.Event()
        #: Why the other end turned this one away; None if it did not.
        self.refusal: str | None = None

    def run(self, name: str) -> None:
        """Carry messages both ways until the connection is gone.

        Args:
            name: the name of the thread that sends.
        """
        writer = threading.Thread(target=self._write, name=name, daemon=True)
        try:
            writer.start()
            while not self._closed and self._read_one():
                if self._is_attended:
                    self._leave_it()
        finally:
            self.close()
            if writer.ident is not None:
                writer.join()
            # From here on nobody carries anything over this connection: another one may come.
            with self._reading, self._writing:
                self._ended.set()

    def attend(self, most: int) -> None:
        """Receive and send what there is, on the calling thread and without waiting.

        For a thread that does nothing else for long enough to be called again and again: as long as
        it does, the link's own threads leave the connection to it. To take turns at Python's lock
        costs more than a message.

        Args:
            most: how many messages may be received. None are where a frame may have more.
        """
        if not self._connection.may_go_on:
            return
        before, self._attended_at = self._attended_at, time.monotonic()
        try:
            if most >= _BATCH and self._attended_at - before > _AGAIN_S:
                self._receive_now(most // _BATCH)
            self._send_now()
        except ConnectionError:
            # As for the link's own threads; what was taken is sent again.
            self.close()

    def _leave_it(self) -> None:
        """Let who attends do it alone, who else would take turns with the link's own threads."""
        self._conversation.cork(close=True)
        while self._is_attended and not self._closed:
            self._wake.wait(_ATTENDED_S)
        self._conversation.cork(close=False)

    @property
    def _is_attended(self) -> bool:
        return time.monotonic() - self._attended_at < _ATTENDED_S

    def _receive_now(self, most: int) -> None:
        if self._reading.acquire(blocking=False):
            try:
                if not self._closed:
                    bodies = self._connection.receive_now(most)
                    if not all(self._received(body, quietly=True) for body in bodies):
                        self.close()
            finally:
                self._reading.release()

    def _send_now(self) -> None:
        conversation = self._conversation
        if not conversation.has_unsent:
            return
        if self._writing.acquire(blocking=False):
            try:
                if not self._closed and not self._connection.has_rest:
                    self._connection.send_now(*self._bodies(conversation.take()))
            finally:
                self._writing.release()
        if conversation.has_unsent or self._connection.has_rest:
            # It is for the link's own thread, which may wait.
            conversation.wake()

    def _bodies(self, batch: Sequence[tuple[int, bytes]]) -> list[bytes]:
        received = self._conversation.received
        if sum(len(payload) for _, payload in batch) > _BATCH_BYTES:
            # One of them may be as long as a frame may be.
            frames: list[Sequence[tuple[int, bytes]]] = [[each] for each in batch]
        else:
            frames = [batch] if batch else []
        return [_body(frame, received) for frame in frames]

    def close(self) -> None:
        """Cut the connection. `run` returns soon after."""
        self._closed = True
        self._wake.set()
        self._connection.close()
        self._conversation.wake()

    def refuse(self, reason: str) -> None:
        """Tell the other end that it is not wanted, and cut the connection."""
        try:
            self._connection.send(_HEAD.pack(_REFUSAL, 0, 0) + reason.encode())
        except ConnectionError:
            # It is gone already, which is what was wanted.
            pass
        finally:
            self.close()

    def wait_ended(self, timeout_s: float) -> bool:
        """Wait until `run` has returned."""
        return self._ended.wait(timeout_s)

    def _read_one(self) -> bool:
        with self._reading:
            try:
                body = self._connection.receive()
            except ConnectionError:
                return False
            return self._received(body)

    def _received(self, body: bytes, *, quietly: bool = False) -> bool:
        """Deal with a frame; whether the link goes on."""
        kind, number, acknowledged = _HEAD.unpack_from(body)
        self._conversation.acknowledged(acknowledged)
        if kind == _MESSAGE:
            self._hear(number, body, quietly=quietly)
        elif kind == _REFUSAL:
            self.refusal = body[_HEAD.size :].decode()
            return False
        return True

    def _hear(self, number: int, body: bytes, *, quietly: bool) -> None:
        conversation = self._conversation
        start = _HEAD.size
        while start < len(body):
            end = start + _SIZE.size + _SIZE.unpack_from(body, start)[0]
            # After a reconnect the other end repeats what it has seen no acknowledgement of.
            if number > conversation.received:
                self._on_message(body[start + _SIZE.size : end])
                conversation.note_received(number, quietly=quietly or end < len(body))
            start = end
            number += 1

    def _write(self) -> None:
        try:
            self._write_until_closed()
        finally:
            # However it ends: a link that only listens is none, and the reader opens another one.
            self._connection.close()

    def _write_until_closed(self) -> None:
        conversation = self._conversation
        due = time.monotonic()
        while not self._closed:
            wait_s = max(0.0, due - time.monotonic())
            conversation.wait(wait_s, lambda: self._closed or self._connection.has_rest)
            try:
                with self._writing:
                    batch = conversation.take()
                    sign_of_life = _HEAD.pack(_SIGN_OF_LIFE, 0, conversation.received)
                    self._connection.send(*(self._bodies(batch) or [sign_of_life]))
            except ConnectionError:
                # The reader sees the same and ends the link; what was taken is sent again.
                return
            if batch and self._gather_s:
                time.sleep(self._gather_s)
            due = time.monotonic() + self._heartbeat_s


def _body(batch: Sequence[tuple[int, bytes]], received: int) -> bytes:
    """A frame of messages of which each has the number that follows the last one's."""
    parts = [_HEAD.pack(_MESSAGE, batch[0][0], received)]
    for _, payload in batch:
        parts += (_SIZE.pack(len(payload)), payload)
    return b"".join(parts)
