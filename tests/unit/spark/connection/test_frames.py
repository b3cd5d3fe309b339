"""Frames of the control connection: several messages in one, and messages without pickles."""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.waiting import wait_for

from millstream.runtime.queries.query_messages import (
    CloseCursor,
    CompactMessage,
    FetchNextPage,
    GetStoreOffsets,
    NextPage,
    QueryStore,
    StoreRequest,
    TaskQueryResult,
    ThreadQueryResult,
)
from millstream.runtime.thread_control import Close
from millstream.spark.connection.control_protocol import ControlConnection
from millstream.spark.connection.messages import UndeliverableObject, decode_value, encode_value
from millstream.spark.connection.reliable_channel import ControlLink, ReliableChannel
from millstream.state.queries.read_requests import ReadKind, ReadRequest
from millstream.state.queries.requests.query_results import FailureReason

_COMPACT = [
    QueryStore(
        "counts",
        ReadRequest(ReadKind.GET, b"\x00key", skip_cache=True),
        "KeyQuery",
        frozenset({0, 7}),
        active_only=True,
        bound={"words": {0: 12, 1: 1 << 40}},
        with_position=False,
        page_bytes=1,
        timeout_ms=17,
    ),
    QueryStore("counts", None, "RangeQuery"),
    QueryStore(
        "m", ReadRequest(ReadKind.VERSIONS, b"", first=-(1 << 62), last=1 << 62, reverse=True), "V"
    ),
    FetchNextPage("c1", 3, 0),
    CloseCursor("c1", timeout_ms=1),
    GetStoreOffsets(),
    ThreadQueryResult(),
    ThreadQueryResult(
        (
            TaskQueryResult(
                0, "RUNNING", ((b"k", b"\xff" * 300), (b"", b"")), "c1", took_ns=1 << 33
            ),
            TaskQueryResult(
                -1, "GLOBAL", (), None, FailureReason.NOT_ACTIVE, "ä", {"t": {3: 4}}, 0, True
            ),
        )
    ),
    NextPage(((b"k", b"v"),), None),
    NextPage((), "c2"),
]


@pytest.mark.parametrize("value", _COMPACT, ids=lambda value: type(value).__name__)
def test_queries_and_answers_are_encoded_without_pickle(value: Any) -> None:
    """Goal: messages with a compact encoding survive the round trip, including the types of
    their parts."""
    data = encode_value(value)
    with pytest.raises(pickle.UnpicklingError):
        pickle.loads(data)
    assert decode_value(data) == value
    assert type(decode_value(data)) is type(value)


def test_all_compact_messages_are_tested() -> None:
    kinds = set(CompactMessage.__subclasses__()) | set(StoreRequest.__subclasses__())
    assert {type(value) for value in _COMPACT} == kinds - {StoreRequest}


def test_other_commands_are_pickled() -> None:
    close = Close(commit_timeout_ms=3)
    assert pickle.loads(encode_value(close)) == close
    assert decode_value(encode_value(close)) == close


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x91\xa4Rude", b"\x80"])
def test_invalid_bytes_arrive_as_a_description(data: bytes) -> None:
    assert isinstance(decode_value(data), UndeliverableObject)


class _Counting(ControlConnection):
    """Counts sent frames, and polls for received ones."""

    frames = 0
    polls = 0

    def send(self, *bodies: bytes) -> None:
        super().send(*bodies)
        self.frames += len(bodies)

    def receive_nowait(self, most: int) -> list[bytes]:
        self.polls += 1
        return super().receive_nowait(most)


@contextmanager
def _linked(
    sender: ReliableChannel, receiver: ReliableChannel, on_message: Callable[[bytes], None]
) -> Iterator[tuple[_Counting, _Counting, ControlLink]]:
    """The sender, the receiver, and the receiver's link; only the sender has threads."""
    here, there = socket.socketpair()
    sending = _Counting(here, b"k" * 32, sends=b"a", receives=b"b", idle_timeout_s=10)
    receiving = _Counting(there, b"k" * 32, sends=b"b", receives=b"a", idle_timeout_s=10)
    link = ControlLink(sending, sender, _no_message, heartbeat_s=60)
    running = threading.Thread(target=link.run, args=("sender",))
    running.start()
    other = ControlLink(receiving, receiver, on_message)
    try:
        yield sending, receiving, other
    finally:
        link.close()
        other.close()
        running.join()


def _no_message(message: bytes) -> None:
    raise AssertionError(message)


def test_pending_messages_are_sent_in_one_frame_and_received_one_by_one() -> None:
    sender, receiver = ReliableChannel(drop_oldest=False), ReliableChannel(drop_oldest=False)
    messages = [b"", b"one", b"x" * 1_000, b"last"]
    for message in messages:
        sender.post(message)
    messages_received: list[bytes] = []
    with _linked(sender, receiver, messages_received.append) as (sending, _, link):
        wait_for(lambda: not sender.has_unsent and sending.frames == 1, 10)
        link.process_io(1_000)
        assert messages_received == messages
        assert receiver.received == len(messages)


def test_only_new_messages_of_a_repeated_frame_are_received() -> None:
    """Goal: no message is duplicated or lost.

    After a reconnect a sender repeats unacknowledged messages in different frames.
    """
    sender, receiver = ReliableChannel(drop_oldest=False), ReliableChannel(drop_oldest=False)
    for number in range(1, 5):
        sender.post(b"%d" % number)
    receiver.mark_received(2)
    messages_received: list[bytes] = []
    with _linked(sender, receiver, messages_received.append) as (sending, _, link):
        wait_for(lambda: sending.frames == 1, 10)
        link.process_io(1_000)
        assert messages_received == [b"3", b"4"]
        assert receiver.received == 4


def test_large_messages_have_their_own_frames() -> None:
    """Goal: no frame exceeds its limit because of messages that are sent with it."""
    sender, receiver = ReliableChannel(drop_oldest=False), ReliableChannel(drop_oldest=False)
    messages = [b"small", b"x" * 300_000, b"y" * 300_000, b"small again"]
    for message in messages:
        sender.post(message)
    messages_received: list[bytes] = []
    with _linked(sender, receiver, messages_received.append) as (sending, _, link):
        running = threading.Thread(target=link.run, args=("hearer",))
        running.start()
        wait_for(lambda: len(messages_received) == len(messages), 10)
        link.close()
        running.join()
        assert messages_received == messages
        assert sending.frames >= 3


def test_a_receiver_without_room_reads_no_frame() -> None:
    """Goal: a loop never waits for room that only the loop itself can make."""
    sender, receiver = ReliableChannel(drop_oldest=False), ReliableChannel(drop_oldest=False)
    sender.post(b"one")
    messages_received: list[bytes] = []
    with _linked(sender, receiver, messages_received.append) as (sending, receiving, link):
        wait_for(lambda: sending.frames == 1, 10)
        link.process_io(5)
        assert messages_received == []
        # Frames read from the kernel would not be bounded by any limit.
        assert receiving.polls == 0

        def has_message() -> bool:
            link.process_io(64)
            return messages_received == [b"one"]

        wait_for(has_message, 10)
