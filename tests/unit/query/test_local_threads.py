"""Goal: threads that hang, close, fail or lag do not delay the answers of others."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import pytest
from support.owned_tasks import owned
from support.waiting import hang_guard

from millstream import StateStoreMigratedError
from millstream.errors import SparkError, ThreadUnavailableError
from millstream.query.local_threads import LocalThreads
from millstream.runtime.queries.query_messages import (
    NextPage,
    QueryStore,
    TaskQueryResult,
    ThreadQueryResult,
)
from millstream.runtime.states.thread_states import OwnedTask, ThreadState
from millstream.state.queries.read_requests import ReadKind, ReadRequest
from millstream.state.queries.requests.query_results import FailureReason

QUESTION = QueryStore("s", ReadRequest(ReadKind.RANGE), "RangeQuery")
#: Never answers.
HANGS = object()


class Threads:
    """Stream threads and their answers; each has one task with its number, unless tasks are
    given."""

    def __init__(
        self,
        answers: Mapping[str, Any],
        tasks: Mapping[str, Mapping[str, str]] | None = None,
        attempt_timeout_ms: int = 50,
        **states: ThreadState,
    ) -> None:
        self.answers, self.queried = answers, list[str]()
        self.partitions_queried: list[frozenset[int] | None] = []
        self._tasks = tasks or {}
        self.open: list[Future[Any]] = []
        self.local = LocalThreads(
            self._threads, self._send, timeout_ms=200, attempt_timeout_ms=attempt_timeout_ms
        )
        self._states = states

    def _threads(self) -> Mapping[str, tuple[ThreadState, Mapping[str, OwnedTask]]]:
        return {
            name: (
                self._states.get(name, ThreadState.RUNNING),
                owned(self._tasks.get(name, {f"0_{number}": "RUNNING"})),
            )
            for number, name in enumerate(self.answers)
        }

    def _send(self, name: str, question: Any) -> Future[Any]:
        self.queried.append(name)
        self.partitions_queried.append(getattr(question, "partitions", None))
        answer = self.answers[name]
        if isinstance(answer, ThreadUnavailableError):
            raise answer
        reply: Future[Any] = Future()
        if answer is HANGS:
            self.open.append(reply)
        elif isinstance(answer, Exception):
            reply.set_exception(answer)
        else:
            reply.set_result(answer)
        return reply


def has(partition: int, role: str = "RUNNING") -> ThreadQueryResult:
    return ThreadQueryResult((TaskQueryResult(partition, role, ((b"k", b"v"),), "c"),))


def test_hung_threads_are_waited_for_in_parallel() -> None:
    """Concurrent queries of the other threads are not delayed, and each hung thread is waited
    for once."""
    hanging = Threads(
        {f"t{number}": HANGS for number in range(400)} | {"good": has(400)}, attempt_timeout_ms=200
    )
    queriers = [threading.Thread(target=hanging.local.query, args=(QUESTION, 0)) for _ in range(20)]
    # Waiting for one thread after another would take 80 s.
    with hang_guard("the queries"):
        for querier in queriers:
            querier.start()
        (answer,) = hanging.local.query(QUESTION, 0)
        for querier in queriers:
            querier.join()
    assert (answer.partition, answer.cursor) == (400, "good/c")
    assert all(reply.cancelled() for reply in hanging.open)


def test_a_closing_thread_is_not_queried() -> None:
    threads = Threads({"t0": HANGS, "t1": has(1)}, t0=ThreadState.PENDING_SHUTDOWN)
    assert [answer.partition for answer in threads.local.query(QUESTION, 0)] == [1]
    assert threads.queried == ["t1"]
    threads = Threads({"t0": ThreadUnavailableError("It closes."), "t1": has(1)})
    assert [answer.partition for answer in threads.local.query(QUESTION, 0)] == [1]


#: Two threads on two hosts, each with a standby of the other's task.
MIRRORED = {
    "t0": {"0_0": "RUNNING", "0_1": "STANDBY"},
    "t1": {"0_1": "RUNNING", "0_0": "STANDBY"},
}


def test_a_standby_is_not_queried_if_its_active_task_answers() -> None:
    threads = Threads({"t0": has(0), "t1": has(1)}, MIRRORED)
    assert [answer.partition for answer in threads.local.query(QUESTION, 0)] == [0, 1]
    assert (threads.queried, threads.partitions_queried) == (
        ["t0", "t1"],
        [frozenset({0}), frozenset({1})],
    )


@pytest.mark.parametrize(
    "failure",
    [HANGS, SparkError("Too large."), ThreadUnavailableError("It closes."), ThreadQueryResult()],
)
def test_a_standby_answers_if_the_active_task_does_not(failure: Any) -> None:
    """The standby's answer is returned in addition to the failure, and takes precedence."""
    threads = Threads({"t0": failure, "t1": has(1)}, MIRRORED)
    threads.local.query(QUESTION, 0)
    assert threads.queried == ["t0", "t1", "t1"]
    assert threads.partitions_queried == [frozenset({0}), frozenset({1}), frozenset({0})]


def test_a_standby_is_queried_immediately_during_a_restoration() -> None:
    tasks = {"t0": {"0_0": "RESTORING"}, "t1": {"0_0": "STANDBY"}}
    threads = Threads({"t0": has(0, "RESTORING"), "t1": has(0, "STANDBY")}, tasks)
    roles = {answer.role for answer in threads.local.query(QUESTION, 0)}
    assert roles == {"RESTORING", "STANDBY"}


def test_a_failed_thread_reports_errors_only_for_its_own_tasks() -> None:
    """Including answers that could not be sent."""
    threads = Threads({"t0": SparkError("Too large."), "t1": has(1)})
    failed, good = threads.local.query(QUESTION, 0)
    assert (failed.partition, failed.reason) == (0, FailureReason.STORE_EXCEPTION)
    assert "Too large" in failed.message
    assert (good.partition, good.reason) == (1, None)


def test_a_global_store_is_queried_until_a_thread_answers() -> None:
    """Running threads come first, in turn; a thread that hangs, fails or lags is skipped."""
    answers = {
        "starting": has(-1, "old"),
        "hangs": HANGS,
        "fails": SparkError("broken"),
        "behind": ThreadQueryResult(),
        "gone": ThreadUnavailableError("It is gone."),
        "good": has(-1, "GLOBAL"),
    }
    threads = Threads(answers, starting=ThreadState.STARTING)
    for _ in range(6):
        (answer,) = threads.local.query(QUESTION, None)
        assert (answer.role, answer.cursor) == ("GLOBAL", "good/c")
    assert "starting" not in threads.queried
    good = Threads({"a": has(-1), "b": has(-1)})
    for _ in range(10):
        good.local.query(QUESTION, None)
    assert (good.queried.count("a"), good.queried.count("b")) == (5, 5)
    (answer,) = Threads({"t": SparkError("broken")}).local.query(QUESTION, None)
    assert answer.reason is FailureReason.STORE_EXCEPTION
    assert Threads({"t": ThreadQueryResult()}).local.query(QUESTION, None) == ()


def test_further_pages_come_from_the_same_thread() -> None:
    threads = Threads({"t": NextPage((), "c"), "hangs": HANGS, "gone": ThreadUnavailableError("")})
    assert threads.local.next_page("t/c", 1, 9) == NextPage((), "t/c")
    for name in ("hangs", "gone"):
        with pytest.raises(StateStoreMigratedError, match=f"stream thread {name}"):
            threads.local.next_page(f"{name}/c", 1, 9)
    threads.local.close_cursor("gone/c")
    threads.local.close_cursor("hangs/c")
    # A reply is cancelled when the wait for it times out.
    reading, closing = threads.open
    assert (reading.cancelled(), closing.cancelled()) == (True, False)
