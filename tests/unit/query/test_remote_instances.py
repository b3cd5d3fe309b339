"""Goal: an instance gets the same answer through another instance as directly; invalid documents do
no harm.

Method: the function that answers is behind a real HTTP server, or receives random bytes.
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
from millstream.query import remote_instances
from millstream.query.query_client import QueryClient
from millstream.query.remote_instances import RemoteInstance, query_responder
from millstream.query.store_catalog import StoreCatalog
from millstream.runtime.queries.query_messages import NextPage, QueryStore, TaskQueryResult
from millstream.runtime.thread_control import HostsChanged
from millstream.serdes import STRING
from millstream.state.queries.read_requests import ReadKind, ReadRequest

_QUESTION = QueryStore(
    "counts",
    ReadRequest(ReadKind.RANGE, b"a", b"z\xff", reverse=True, skip_cache=True),
    "RangeQuery",
    frozenset({0, 2}),
    active_only=True,
    bound={"in": {0: 41}},
    page_bytes=1_000,
)
_ANSWERS = (
    TaskQueryResult(0, "RUNNING", ((b"k", b"\x00v"),), "t/c", position={"in": {0: 42}}, took_ns=9),
    TaskQueryResult(2, "STANDBY", reason=FailureReason.NOT_UP_TO_BOUND, message="is behind"),
    TaskQueryResult(
        4, "RUNNING", reason=FailureReason.STORE_EXCEPTION, message="full", retriable=True
    ),
)


_CONFIG = StreamsConfig(application_id="app", bootstrap_servers="nowhere:9092")


def _counting() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).group_by_key().count(store="counts")
    return builder.build()


class Own:
    """Threads that record their queries."""

    def __init__(self) -> None:
        self.received: list[object] = []

    def query(self, question: QueryStore, subtopology: int | None) -> Sequence[TaskQueryResult]:
        self.received.append((question, subtopology))
        return _ANSWERS

    def next_page(self, cursor: str, page_number: int, page_bytes: int) -> NextPage:
        if cursor == "gone":
            raise StateStoreMigratedError("It has moved.")
        self.received.append((cursor, page_number, page_bytes))
        return NextPage(((b"l", b"w"),), None)

    def close_cursor(self, cursor: str) -> None:
        self.received.append(("close", cursor))


@contextmanager
def served(
    own: Own,
    status: int = 200,
    garbage: bytes | None = None,
    *,
    hangs_up: bool = False,
    before_answers: Callable[[], bool] = lambda: True,
) -> Iterator[HostInfo]:
    """Serve an instance.

    Args:
        own: its threads.
        status: of its responses.
        garbage: replaces its responses.
        hangs_up: whether it closes connections after each response.
        before_answers: called after each query; False drops the response.
    """
    answer = query_responder(own, StoreCatalog(_counting(), _CONFIG))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            allowed = self.headers["Authorization"] == "Bearer secret"
            data = answer(body) if garbage is None else garbage
            if not before_answers():
                self.close_connection = True
                return
            self.send_response(status if allowed else 401)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            # Without a header in the response.
            self.close_connection = hangs_up

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield HostInfo("127.0.0.1", server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


def test_queries_and_answers_arrive_unchanged() -> None:
    """Every field in both directions; next pages and closed cursors, too.

    The sub-topology has a different number on the other instance, as in a different version of the
    application.
    """
    own = Own()
    with served(own) as host:
        instance = RemoteInstance(host, "secret", None)
        assert tuple(instance.query(_QUESTION, 3)) == _ANSWERS
        assert own.received.pop() == (_QUESTION, 0)
        assert instance.query(replace(_QUESTION, store="unheard-of"), 0) == []
        assert not own.received
        assert instance.next_page("t/c", 3, 77) == NextPage(((b"l", b"w"),), None)
        assert own.received.pop() == ("t/c", 3, 77)
        instance.close_cursor("t/c")
        assert own.received.pop() == ("close", "t/c")
        with pytest.raises(StateStoreMigratedError, match="It has moved"):
            instance.next_page("gone", 1, 77)
        instance.close()


def test_an_unreachable_instance_answers_nothing() -> None:
    """Its partitions are not present; further pages are gone."""
    with served(Own()) as host:
        pass
    instance = RemoteInstance(host, "secret", None)
    assert instance.query(_QUESTION, 0) == ()
    with pytest.raises(StateStoreMigratedError, match="cannot be reached"):
        instance.next_page("t/c", 1, 1)


def test_an_unreachable_instance_is_not_retried_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An unreachable machine costs a connection timeout once, not with each query."""
    tried = []

    def connect(connection: object) -> None:
        tried.append(connection)
        raise TimeoutError("timed out")

    monkeypatch.setattr(http.client.HTTPConnection, "connect", connect)
    instance = RemoteInstance(HostInfo("gone", 1), "secret", None)
    assert [instance.query(_QUESTION, 0) for _ in range(5)] == [()] * 5
    assert len(tried) == 1
    monkeypatch.setattr(remote_instances, "_UNREACHABLE_BACKOFF_S", 0.0)
    instance = RemoteInstance(HostInfo("gone", 1), "secret", None)
    assert [instance.query(_QUESTION, 0) for _ in range(5)] == [()] * 5
    assert len(tried) == 6


def test_a_closed_connection_is_reopened() -> None:
    """An instance that was restarted at its address is queried immediately."""
    own = Own()
    with served(own, hangs_up=True) as host:
        instance = RemoteInstance(host, "secret", None)
        assert instance.query(_QUESTION, 0)
        assert instance.query(_QUESTION, 0)
        instance.close()


def test_connections_to_former_instances_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instances return at other addresses; connections to old addresses would accumulate."""
    closed = []
    close = http.client.HTTPConnection.close

    def record_close(connection: http.client.HTTPConnection) -> None:
        closed.append((connection.host, connection.port))
        close(connection)

    def send(thread: str, question: Any) -> Future[Any]:
        raise ThreadUnavailableError(thread)

    client = QueryClient(_counting(), _CONFIG, dict, send, lambda: ClientState.RUNNING)
    client.set_own_address("one:1", "secret", None)
    monkeypatch.setattr(http.client.HTTPConnection, "close", record_close)
    with served(Own()) as host:
        here = {host: frozenset({TopicPartition("in", 0)})}
        for assignment in (HostsChanged(here, {}), HostsChanged({}, here)):
            client.apply_assignment(assignment)
            assert client.instances.get(host).query(_QUESTION, 0)
        assert not closed
        client.apply_assignment(HostsChanged({}, {}))
        assert closed == [host]
    client.close()


def test_a_lost_page_is_requested_again() -> None:
    """The same request is sent again, with the number of its page."""
    own = Own()
    outcomes = iter([True, False, True])
    with served(own, before_answers=lambda: next(outcomes)) as host:
        instance = RemoteInstance(host, "secret", None)
        assert instance.query(_QUESTION, 0)
        assert instance.next_page("t/c", 4, 0) == NextPage(((b"l", b"w"),), None)
        assert own.received[1:] == [("t/c", 4, 0)] * 2
        instance.close()


def test_a_timed_out_query_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The query may still be running. A server-side timeout is reported earlier."""
    config = StreamsConfig(application_id="app", bootstrap_servers="nowhere:9092")
    assert config.server_request_timeout_ms < remote_instances.TIMEOUT_S * 1_000
    monkeypatch.setattr(remote_instances, "TIMEOUT_S", 0.2)
    own, may_answer = Own(), threading.Event()
    may_answer.set()
    with served(own, before_answers=lambda: may_answer.wait(30)) as host:
        instance = RemoteInstance(host, "secret", None)
        assert instance.query(_QUESTION, 0)
        may_answer.clear()
        assert instance.query(_QUESTION, 0) == ()
        may_answer.set()
        assert len(own.received) == 2
        instance.close()


def test_rejections_and_invalid_responses_name_the_cause() -> None:
    """A wrong token, a busy instance, another service at the address."""
    with served(Own()) as host, pytest.raises(InvalidStateStoreError, match="server_token"):
        RemoteInstance(host, "wrong", None).query(_QUESTION, 0)
    for status in (404, 405, 500):
        reports_older = pytest.raises(StateStoreNotAvailableError, match="older version")
        with served(Own(), status=status) as host, reports_older:
            RemoteInstance(host, "secret", None).query(_QUESTION, 0)
    with served(Own(), status=503) as host:
        assert RemoteInstance(host, "secret", None).query(_QUESTION, 0) == ()
    unknown_reason = msgspec.msgpack.encode(
        {"tasks": [{"partition": 0, "role": "RUNNING", "reason": "ODD"}]}
    )
    for garbage in (b"<html>", unknown_reason):
        reports_version = pytest.raises(InvalidStateStoreError, match="another version")
        with served(Own(), garbage=garbage) as host, reports_version:
            RemoteInstance(host, "secret", None).query(_QUESTION, 0)


def test_garbage_is_rejected_and_never_unpickled() -> None:
    """Random bytes are a request of the known format, or raise a ValueError."""
    own = Own()
    answer = query_responder(own, StoreCatalog(_counting(), _CONFIG))
    rng = random.Random(7)
    good = msgspec.msgpack.encode({"store": "counts", "page_bytes": 1 << 40})
    assert answer(good)
    received = own.received.pop()
    assert isinstance(received, tuple)
    assert received[0].page_bytes == 4 << 20
    for _ in range(500):
        document = bytearray(good)
        for _ in range(rng.randrange(1, 5)):
            document[rng.randrange(len(document))] = rng.randrange(256)
        try:
            answer(bytes(document))
        except ValueError:
            continue
    for garbage in (b"", b"\x80\x04", pickle.dumps(_QUESTION), b"[]", b"\xc1" * 100):
        with pytest.raises(ValueError, match="not a request"):
            answer(garbage)
