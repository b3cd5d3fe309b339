"""Goal: what one instance answers through another is what it would answer itself; nothing that
comes over the wire does harm.

Method: the function that answers is behind a real HTTP server, or is given rubbish.
"""

from __future__ import annotations

import http.client
import pickle
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from millstream import (
    ClientState,
    FailureReason,
    HostInfo,
    InvalidStateStoreError,
    StateStoreMigratedError,
    StateStoreNotAvailableError,
    StreamsBuilder,
    StreamsConfig,
    TopicPartition,
    Topology,
)
from millstream.errors import ThreadUnavailableError
from millstream.query import peers
from millstream.query.asked import Asked
from millstream.query.peers import Instance, answering
from millstream.query.stores import KnownStores
from millstream.runtime.control import HostsChanged
from millstream.runtime.queries.questions import AskStore, NextPage, TaskAnswer
from millstream.serdes import STRING
from millstream.state.queries.reads import Read, ReadKind

_QUESTION = AskStore(
    "counts",
    Read(ReadKind.RANGE, b"a", b"z\xff", reverse=True, past_cache=True),
    "RangeQuery",
    frozenset({0, 2}),
    active_only=True,
    bound={"in": {0: 41}},
    page_bytes=1_000,
)
_ANSWERS = (
    TaskAnswer(0, "RUNNING", ((b"k", b"\x00v"),), "t/c", position={"in": {0: 42}}, took_ns=9),
    TaskAnswer(2, "STANDBY", reason=FailureReason.NOT_UP_TO_BOUND, message="is behind"),
    TaskAnswer(4, "RUNNING", reason=FailureReason.STORE_EXCEPTION, message="full", retriable=True),
)


_CONFIG = StreamsConfig(application_id="app", bootstrap_servers="nowhere:9092")


def _counting() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).group_by_key().count(store="counts")
    return builder.build()


class Own:
    """Threads that note what they are asked."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def ask(self, question: AskStore, subtopology: int | None) -> Sequence[TaskAnswer]:
        self.asked.append((question, subtopology))
        return _ANSWERS

    def next_page(self, cursor: str, page_number: int, page_bytes: int) -> NextPage:
        if cursor == "gone":
            raise StateStoreMigratedError("It has moved.")
        self.asked.append((cursor, page_number, page_bytes))
        return NextPage(((b"l", b"w"),), None)

    def close_cursor(self, cursor: str) -> None:
        self.asked.append(("close", cursor))


@contextmanager
def served(
    own: Own,
    status: int = 200,
    rubbish: bytes | None = None,
    *,
    hangs_up: bool = False,
    before_answers: Callable[[], bool] = lambda: True,
) -> Iterator[HostInfo]:
    """An instance.

    Args:
        own: its threads.
        status: of its answers.
        rubbish: what it says instead.
        hangs_up: whether it closes connections after each answer.
        before_answers: called when a question was worked on; False loses the answer.
    """
    answer = answering(own, KnownStores(_counting(), _CONFIG))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            allowed = self.headers["Authorization"] == "Bearer secret"
            data = answer(body) if rubbish is None else rubbish
            if not before_answers():
                self.close_connection = True
                return
            self.send_response(status if allowed else 401)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            # Without a word in the head of the answer.
            self.close_connection = hangs_up

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield HostInfo("127.0.0.1", server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


def test_questions_and_answers_arrive_as_they_are() -> None:
    """Every field, there and back; a next page, and the end of a cursor, too.

    The sub-topology has another number there, as in another version of the application.
    """
    own = Own()
    with served(own) as host:
        instance = Instance(host, "secret", None)
        assert tuple(instance.ask(_QUESTION, 3)) == _ANSWERS
        assert own.asked.pop() == (_QUESTION, 0)
        assert instance.ask(replace(_QUESTION, store="unheard-of"), 0) == []
        assert not own.asked
        assert instance.next_page("t/c", 3, 77) == NextPage(((b"l", b"w"),), None)
        assert own.asked.pop() == ("t/c", 3, 77)
        instance.close_cursor("t/c")
        assert own.asked.pop() == ("close", "t/c")
        with pytest.raises(StateStoreMigratedError, match="It has moved"):
            instance.next_page("gone", 1, 77)
        instance.close()


def test_who_is_not_there_answers_nothing() -> None:
    """So its partitions count as not present; the rest of an answer is gone."""
    with served(Own()) as host:
        pass
    instance = Instance(host, "secret", None)
    assert instance.ask(_QUESTION, 0) == ()
    with pytest.raises(StateStoreMigratedError, match="cannot be reached"):
        instance.next_page("t/c", 1, 1)


def test_who_cannot_be_reached_is_not_tried_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is gone costs the time to connect once, not with each question."""
    tried = []

    def connect(connection: object) -> None:
        tried.append(connection)
        raise TimeoutError("Nobody is there.")

    monkeypatch.setattr(http.client.HTTPConnection, "connect", connect)
    instance = Instance(HostInfo("gone", 1), "secret", None)
    assert [instance.ask(_QUESTION, 0) for _ in range(5)] == [()] * 5
    assert len(tried) == 1
    monkeypatch.setattr(peers, "_PAUSE_S", 0.0)
    instance = Instance(HostInfo("gone", 1), "secret", None)
    assert [instance.ask(_QUESTION, 0) for _ in range(5)] == [()] * 5
    assert len(tried) == 6


def test_a_connection_that_was_closed_meanwhile_is_opened_again() -> None:
    """An instance that was restarted at its address is asked at once."""
    own = Own()
    with served(own, hangs_up=True) as host:
        instance = Instance(host, "secret", None)
        assert instance.ask(_QUESTION, 0)
        assert instance.ask(_QUESTION, 0)
        instance.close()


def test_connections_to_who_has_left_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instances come back at other addresses: those to the old ones would add up."""
    closed = []
    close = http.client.HTTPConnection.close

    def noted(connection: http.client.HTTPConnection) -> None:
        closed.append((connection.host, connection.port))
        close(connection)

    def ask(thread: str, question: Any) -> Future[Any]:
        raise ThreadUnavailableError(thread)

    asked = Asked(_counting(), _CONFIG, dict, ask, lambda: ClientState.RUNNING)
    asked.is_reached_at("one:1", "secret", None)
    monkeypatch.setattr(http.client.HTTPConnection, "close", noted)
    with served(Own()) as host:
        here = {host: frozenset({TopicPartition("in", 0)})}
        for told in (HostsChanged(here, {}), HostsChanged({}, here)):
            asked.learn(told)
            assert asked.instances.at(host).ask(_QUESTION, 0)
        assert not closed
        asked.learn(HostsChanged({}, {}))
        assert closed == [host]
    asked.close()


def test_a_page_whose_answer_was_lost_comes_again() -> None:
    """The same question goes out anew, with the number of its page."""
    own = Own()
    fates = iter([True, False, True])
    with served(own, before_answers=lambda: next(fates)) as host:
        instance = Instance(host, "secret", None)
        assert instance.ask(_QUESTION, 0)
        assert instance.next_page("t/c", 4, 0) == NextPage(((b"l", b"w"),), None)
        assert own.asked[1:] == [("t/c", 4, 0)] * 2
        instance.close()


def test_who_takes_too_long_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The question is still worked on. Whoever gives up after its own limit is heard before."""
    config = StreamsConfig(application_id="app", bootstrap_servers="nowhere:9092")
    assert config.server_request_timeout_ms < peers.TIMEOUT_S * 1_000
    monkeypatch.setattr(peers, "TIMEOUT_S", 0.2)
    own, may_answer = Own(), threading.Event()
    may_answer.set()
    with served(own, before_answers=lambda: may_answer.wait(30)) as host:
        instance = Instance(host, "secret", None)
        assert instance.ask(_QUESTION, 0)
        may_answer.clear()
        assert instance.ask(_QUESTION, 0) == ()
        may_answer.set()
        assert len(own.asked) == 2
        instance.close()


def test_who_refuses_or_talks_rubbish_is_named() -> None:
    """A wrong token, a busy instance, another service at the address."""
    with served(Own()) as host, pytest.raises(InvalidStateStoreError, match="server_token"):
        Instance(host, "wrong", None).ask(_QUESTION, 0)
    for status in (404, 405, 500):
        told_older = pytest.raises(StateStoreNotAvailableError, match="older version")
        with served(Own(), status=status) as host, told_older:
            Instance(host, "secret", None).ask(_QUESTION, 0)
    with served(Own(), status=503) as host:
        assert Instance(host, "secret", None).ask(_QUESTION, 0) == ()
    odd = msgspec.msgpack.encode({"tasks": [{"partition": 0, "role": "RUNNING", "reason": "ODD"}]})
    for rubbish in (b"<html>", odd):
        told = pytest.raises(InvalidStateStoreError, match="another version")
        with served(Own(), rubbish=rubbish) as host, told:
            Instance(host, "secret", None).ask(_QUESTION, 0)


def test_rubbish_is_refused_and_nothing_is_unpickled() -> None:
    """Whatever comes, it is a question of the known shape or a ValueError."""
    own = Own()
    answer = answering(own, KnownStores(_counting(), _CONFIG))
    rng = random.Random(7)
    good = msgspec.msgpack.encode({"store": "counts", "page_bytes": 1 << 40})
    assert answer(good)
    asked = own.asked.pop()
    assert isinstance(asked, tuple)
    assert asked[0].page_bytes == 4 << 20
    for _ in range(500):
        document = bytearray(good)
        for _ in range(rng.randrange(1, 5)):
            document[rng.randrange(len(document))] = rng.randrange(256)
        try:
            answer(bytes(document))
        except ValueError:
            continue
    for rubbish in (b"", b"\x80\x04", pickle.dumps(_QUESTION), b"[]", b"\xc1" * 100):
        with pytest.raises(ValueError, match="no question"):
            answer(rubbish)
