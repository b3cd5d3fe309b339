"""What goes over the control connection together, and in bytes of its own."""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.waiting import wait_for

from millstream.query.requests.answers import FailureReason
from millstream.runtime.control import Close
from millstream.runtime.queries.questions import (
    AskNextPage,
    AskOffsets,
    AskStore,
    CloseCursor,
    Compact,
    NextPage,
    StoreQuestion,
    TaskAnswer,
    ThreadAnswer,
)
from millstream.spark.connection.conversation import ControlLink, Conversation
from millstream.spark.connection.messages import Undeliverable, decode_value, encode_value
from millstream.spark.connection.wire import Connection
from millstream.state.queries.reads import Read, ReadKind

_COMPACT = [
    AskStore(
        "counts",
        Read(ReadKind.GET, b"\x00key", past_cache=True),
        "KeyQuery",
        frozenset({0, 7}),
        active_only=True,
        bound={"words": {0: 12, 1: 1 << 40}},
        with_position=False,
        page_bytes=1,
        within_ms=17,
    ),
    AskStore("counts", None, "RangeQuery"),
    AskStore("m", Read(ReadKind.VERSIONS, b"", first=-(1 << 62), last=1 << 62, reverse=True), "V"),
    AskNextPage("c1", 3, 0),
    CloseCursor("c1", within_ms=1),
    AskOffsets(),
    ThreadAnswer(),
    ThreadAnswer(
        (
            TaskAnswer(0, "RUNNING", ((b"k", b"\xff" * 300), (b"", b"")), "c1", took_ns=1 << 33),
            TaskAnswer(
                -1, "GLOBAL", (), None, FailureReason.NOT_ACTIVE, "ä", {"t": {3: 4}}, 0, True
            ),
        )
    ),
    NextPage(((b"k", b"v"),), None),
    NextPage((), "c2"),
]


@pytest.mark.parametrize("value", _COMPACT, ids=lambda value: type(value).__name__)
def test_questions_and_answers_travel_without_a_pickle(value: Any) -> None:
    """Goal: what goes through bytes is the same afterwards, types of its parts included."""
    data = encode_value(value)
    with pytest.raises(pickle.UnpicklingError):
        pickle.loads(data)
    assert decode_value(data) == value
    assert type(decode_value(data)) is type(value)


def test_all_that_travels_so_is_tried_here() -> None:
    kinds = set(Compact.__subclasses__()) | set(StoreQuestion.__subclasses__())
    assert {type(value) for value in _COMPACT} == kinds - {StoreQuestion}


def test_other_commands_are_pickled() -> None:
    close = Close(commit_timeout_ms=3)
    assert pickle.loads(encode_value(close)) == close
    assert decode_value(encode_value(close)) == close


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x91\xa4Rude", b"\x80"])
def test_bytes_that_are_neither_arrive_as_a_description(data: bytes) -> None:
    assert isinstance(decode_value(data), Undeliverable)


class _Counting(Connection):
    """Counts the frames that it has sent, and its looks for those that have come."""

    frames = 0
    looks = 0

    def send(self, *bodies: bytes) -> None:
        super().send(*bodies)
        self.frames += len(bodies)

    def receive_now(self, most: int) -> list[bytes]:
        self.looks += 1
        return super().receive_now(most)


@contextmanager
def _linked(
    says: Conversation, hears: Conversation, on_message: Callable[[bytes], None]
) -> Iterator[tuple[_Counting, _Counting, ControlLink]]:
    """Who says, who hears, and the link of the latter; only the former has threads."""
    here, there = socket.socketpair()
    saying = _Counting(here, b"k" * 32, sends=b"a", receives=b"b", silence_limit_s=10)
    hearing = _Counting(there, b"k" * 32, sends=b"b", receives=b"a", silence_limit_s=10)
    link = ControlLink(saying, says, _nothing_is_said, heartbeat_s=60)
    running = threading.Thread(target=link.run, args=("sender",))
    running.start()
    other = ControlLink(hearing, hears, on_message)
    try:
        yield saying, hearing, other
    finally:
        link.close()
        other.close()
        running.join()


def _nothing_is_said(message: bytes) -> None:
    raise AssertionError(message)


def test_what_is_said_at_once_goes_in_one_frame_and_is_heard_one_by_one() -> None:
    says, hears = Conversation(drop_oldest=False), Conversation(drop_oldest=False)
    messages = [b"", b"one", b"x" * 1_000, b"last"]
    for message in messages:
        says.post(message)
    heard: list[bytes] = []
    with _linked(says, hears, heard.append) as (saying, _, link):
        wait_for(lambda: not says.has_unsent and saying.frames == 1, 10)
        link.attend(1_000)
        assert heard == messages
        assert hears.received == len(messages)


def test_of_a_frame_that_is_repeated_only_what_is_new_is_heard() -> None:
    """Goal: none twice and none lost. After a reconnect who has spoken repeats what he has seen no
    acknowledgement of, cut into frames anew."""
    says, hears = Conversation(drop_oldest=False), Conversation(drop_oldest=False)
    for number in range(1, 5):
        says.post(b"%d" % number)
    hears.note_received(2)
    heard: list[bytes] = []
    with _linked(says, hears, heard.append) as (saying, _, link):
        wait_for(lambda: saying.frames == 1, 10)
        link.attend(1_000)
        assert heard == [b"3", b"4"]
        assert hears.received == 4


def test_large_messages_have_frames_of_their_own() -> None:
    """Goal: no frame grows above its limit by what goes out with it."""
    says, hears = Conversation(drop_oldest=False), Conversation(drop_oldest=False)
    messages = [b"small", b"x" * 300_000, b"y" * 300_000, b"small again"]
    for message in messages:
        says.post(message)
    heard: list[bytes] = []
    with _linked(says, hears, heard.append) as (saying, _, link):
        running = threading.Thread(target=link.run, args=("hearer",))
        running.start()
        wait_for(lambda: len(heard) == len(messages), 10)
        link.close()
        running.join()
        assert heard == messages
        assert saying.frames >= 3


def test_who_has_no_room_for_a_frame_hears_none() -> None:
    """Goal: nobody who attends has to wait for room that only he can make."""
    says, hears = Conversation(drop_oldest=False), Conversation(drop_oldest=False)
    says.post(b"one")
    heard: list[bytes] = []
    with _linked(says, hears, heard.append) as (saying, hearing, link):
        wait_for(lambda: saying.frames == 1, 10)
        link.attend(5)
        assert heard == []
        # What it took from the kernel meanwhile would be held by nobody's limit.
        assert hearing.looks == 0

        def hears_it() -> bool:
            link.attend(64)
            return heard == [b"one"]

        wait_for(hears_it, 10)
