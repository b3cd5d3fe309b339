"""Queries do not delay a stream thread, and expired queries are not answered."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from millstream.clock import ManualClock
from millstream.errors import ThreadUnavailableError
from millstream.runtime.queries.pending_queries import ROUND_MS, BatchLimiter, PendingQueries
from millstream.runtime.queries.query_messages import (
    ANSWER_TIMEOUT_MS,
    CloseCursor,
    GetStoreOffsets,
)
from millstream.runtime.thread_control import GetMetrics, Pause, ReceivedCommand, Resume


class QueryBench:
    """Answers queries, which takes a while."""

    def __init__(self, took_ms: int) -> None:
        self.clock = ManualClock()
        self.replies: list[tuple[int | None, Any]] = []
        self._took_ms = took_ms
        self.control = Mock(reply=self._reply)
        self.pace = BatchLimiter(1_000, self.clock)
        self.queries = PendingQueries(self._answer, self.control, self.clock, self.pace)

    def _answer(self, query: Any) -> Any:
        self.clock.advance(self._took_ms)
        return type(query).__name__

    def _reply(self, command: ReceivedCommand, answer: Any) -> None:
        self.replies.append((command.number, answer))

    def send(self, number: int, query: Any, arrived_ms: int | None = None) -> None:
        self.queries.add(ReceivedCommand(query, number, arrived_ms), query)


def test_many_queries_are_answered_a_few_at_a_time_in_order() -> None:
    """Each round takes hardly longer than its time, and answers at least one query."""
    bench = QueryBench(took_ms=4)
    for number in range(100):
        bench.send(number, GetStoreOffsets())
    rounds = 0
    while bench.queries.has_pending:
        began_ms, before = bench.clock.monotonic_ms(), len(bench.replies)
        bench.queries.answer_some()
        assert bench.clock.monotonic_ms() - began_ms < ROUND_MS + 4 + 1
        assert len(bench.replies) > before
        rounds += 1
    assert rounds > 20
    assert bench.replies == [(number, "GetStoreOffsets") for number in range(100)]
    bench.queries.answer_some()
    assert len(bench.replies) == 100


def test_expired_queries_are_not_answered() -> None:
    """Also if a query expired before the thread received it."""
    bench = QueryBench(took_ms=0)
    bench.send(1, GetStoreOffsets())
    bench.clock.advance(ANSWER_TIMEOUT_MS - 50)
    bench.send(2, GetStoreOffsets(), arrived_ms=0)
    bench.send(3, CloseCursor("c"), arrived_ms=5_000)
    bench.send(4, CloseCursor("c", timeout_ms=10), arrived_ms=5_000)
    bench.clock.advance(51)
    bench.queries.answer_some()
    assert bench.replies == [(3, "CloseCursor")]
    assert not bench.queries.has_pending


def test_closing_thread_rejects_pending_queries() -> None:
    bench = QueryBench(took_ms=0)
    bench.send(1, GetStoreOffsets())
    bench.send(2, GetStoreOffsets())
    bench.queries.end("t")
    assert [number for number, _ in bench.replies] == [1, 2]
    assert all(isinstance(answer, ThreadUnavailableError) for _, answer in bench.replies)
    (error,) = bench.control.reject_requests.call_args.args
    assert "Stream thread t is closing" in error.message
    assert not bench.queries.has_pending


def test_commands_are_deferred_while_only_queries_are_received() -> None:
    """For example, no cache may be resized during a commit. No command is lost."""
    bench = QueryBench(took_ms=0)
    assert not bench.pace.has_recent_query
    received = [
        ReceivedCommand(Pause()),
        ReceivedCommand(GetStoreOffsets(), 1),
        ReceivedCommand(GetMetrics(), 2),
        ReceivedCommand(Resume()),
    ]
    bench.control.commands.return_value = received[:3]
    bench.queries.receive()
    bench.queries.answer_some()
    assert bench.replies == [(1, "GetStoreOffsets")]
    bench.control.commands.return_value = received[3:]
    assert [each.command for each in bench.queries.commands()] == [
        Pause(),
        GetMetrics(),
        Resume(),
    ]
    bench.control.commands.return_value = []
    assert bench.queries.commands() == []
    assert bench.pace.has_recent_query


def test_failing_thread_rejects_deferred_requests() -> None:
    bench = QueryBench(took_ms=0)
    bench.control.commands.return_value = [ReceivedCommand(GetMetrics(), 7)]
    bench.queries.receive()
    bench.queries.end("t")
    ((number, answer),) = bench.replies
    assert number == 7
    assert isinstance(answer, ThreadUnavailableError)
