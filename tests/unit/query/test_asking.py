"""Goal: threads that hang, close, fail or are not far enough hold up no answer of the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import pytest
from support.owned_tasks import owned

from millstream import StateStoreMigratedError
from millstream.errors import SparkError, ThreadUnavailableError
from millstream.query.asking import OwnThreads
from millstream.query.requests.answers import FailureReason
from millstream.runtime.queries.questions import AskStore, NextPage, TaskAnswer, ThreadAnswer
from millstream.runtime.states import OwnedTask, ThreadState
from millstream.state.queries.reads import Read, ReadKind

QUESTION = AskStore("s", Read(ReadKind.RANGE), "RangeQuery")
#: Does not answer.
HANGS = object()


class Threads:
    """Stream threads, each with one task of its number unless others are given, and what they
    answer."""

    def __init__(
        self,
        answers: Mapping[str, Any],
        tasks: Mapping[str, Mapping[str, str]] | None = None,
        **states: ThreadState,
    ) -> None:
        self.answers, self.asked = answers, list[str]()
        self.wanted: list[frozenset[int] | None] = []
        self._tasks = tasks or {}
        self.open: list[Future[Any]] = []
        self.own = OwnThreads(self._threads, self._ask, answer_ms=200, try_ms=50)
        self._states = states

    def _threads(self) -> Mapping[str, tuple[ThreadState, Mapping[str, OwnedTask]]]:
        return {
            name: (
                self._states.get(name, ThreadState.RUNNING),
                owned(self._tasks.get(name, {f"0_{number}": "RUNNING"})),
            )
            for number, name in enumerate(self.answers)
        }

    def _ask(self, name: str, question: Any) -> Future[Any]:
        self.asked.append(name)
        self.wanted.append(getattr(question, "partitions", None))
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


def has(partition: int, role: str = "RUNNING") -> ThreadAnswer:
    return ThreadAnswer((TaskAnswer(partition, role, ((b"k", b"v"),), "c"),))


def test_many_that_hang_are_waited_for_at_the_same_time() -> None:
    """Who asks the others meanwhile is not held up, and nobody is waited for twice."""
    hanging = Threads({f"t{number}": HANGS for number in range(40)} | {"good": has(40)})
    began = time.monotonic()
    askers = [threading.Thread(target=hanging.own.ask, args=(QUESTION, 0)) for _ in range(20)]
    for asker in askers:
        asker.start()
    (answer,) = hanging.own.ask(QUESTION, 0)
    for asker in askers:
        asker.join()
    assert time.monotonic() - began < 2
    assert (answer.partition, answer.cursor) == (40, "good/c")
    assert all(reply.cancelled() for reply in hanging.open)


def test_a_thread_that_closes_is_not_asked() -> None:
    threads = Threads({"t0": HANGS, "t1": has(1)}, t0=ThreadState.PENDING_SHUTDOWN)
    assert [answer.partition for answer in threads.own.ask(QUESTION, 0)] == [1]
    assert threads.asked == ["t1"]
    threads = Threads({"t0": ThreadUnavailableError("It closes."), "t1": has(1)})
    assert [answer.partition for answer in threads.own.ask(QUESTION, 0)] == [1]


#: Two threads on two hosts, each with a copy of what the other one runs.
MIRRORED = {
    "t0": {"0_0": "RUNNING", "0_1": "STANDBY"},
    "t1": {"0_1": "RUNNING", "0_0": "STANDBY"},
}


def test_a_copy_is_not_asked_beside_its_task() -> None:
    threads = Threads({"t0": has(0), "t1": has(1)}, MIRRORED)
    assert [answer.partition for answer in threads.own.ask(QUESTION, 0)] == [0, 1]
    assert (threads.asked, threads.wanted) == (["t0", "t1"], [frozenset({0}), frozenset({1})])


@pytest.mark.parametrize(
    "bad", [HANGS, SparkError("Too large."), ThreadUnavailableError("It closes."), ThreadAnswer()]
)
def test_a_copy_answers_where_the_one_who_runs_the_task_does_not(bad: Any) -> None:
    """What it says stands beside the failure, and is the better answer."""
    threads = Threads({"t0": bad, "t1": has(1)}, MIRRORED)
    threads.own.ask(QUESTION, 0)
    assert threads.asked == ["t0", "t1", "t1"]
    assert threads.wanted == [frozenset({0}), frozenset({1}), frozenset({0})]


def test_a_copy_is_asked_at_once_while_its_task_restores() -> None:
    tasks = {"t0": {"0_0": "RESTORING"}, "t1": {"0_0": "STANDBY"}}
    threads = Threads({"t0": has(0, "RESTORING"), "t1": has(0, "STANDBY")}, tasks)
    roles = {answer.role for answer in threads.own.ask(QUESTION, 0)}
    assert roles == {"RESTORING", "STANDBY"}


def test_a_thread_that_fails_answers_so_for_its_own_tasks_only() -> None:
    """Also where the answer could not be sent."""
    threads = Threads({"t0": SparkError("Too large."), "t1": has(1)})
    failed, good = threads.own.ask(QUESTION, 0)
    assert (failed.partition, failed.reason) == (0, FailureReason.STORE_EXCEPTION)
    assert "Too large" in failed.message
    assert (good.partition, good.reason) == (1, None)


def test_a_global_store_is_looked_for_until_a_thread_has_it() -> None:
    """Those that run come first, in turn; one that hangs, fails or has not caught up is passed."""
    answers = {
        "starting": has(-1, "old"),
        "hangs": HANGS,
        "fails": SparkError("broken"),
        "behind": ThreadAnswer(),
        "gone": ThreadUnavailableError("It is gone."),
        "good": has(-1, "GLOBAL"),
    }
    threads = Threads(answers, starting=ThreadState.STARTING)
    for _ in range(6):
        (answer,) = threads.own.ask(QUESTION, None)
        assert (answer.role, answer.cursor) == ("GLOBAL", "good/c")
    assert "starting" not in threads.asked
    good = Threads({"a": has(-1), "b": has(-1)})
    for _ in range(10):
        good.own.ask(QUESTION, None)
    assert (good.asked.count("a"), good.asked.count("b")) == (5, 5)
    (answer,) = Threads({"t": SparkError("broken")}).own.ask(QUESTION, None)
    assert answer.reason is FailureReason.STORE_EXCEPTION
    assert Threads({"t": ThreadAnswer()}).own.ask(QUESTION, None) == ()


def test_the_rest_of_an_answer_comes_from_its_thread() -> None:
    threads = Threads({"t": NextPage((), "c"), "hangs": HANGS, "gone": ThreadUnavailableError("")})
    assert threads.own.next_page("t/c", 1, 9) == NextPage((), "t/c")
    for name in ("hangs", "gone"):
        with pytest.raises(StateStoreMigratedError, match=f"stream thread {name}"):
            threads.own.next_page(f"{name}/c", 1, 9)
    threads.own.close_cursor("gone/c")
    threads.own.close_cursor("hangs/c")
    # A reply is cancelled when the wait for it times out.
    reading, closing = threads.open
    assert (reading.cancelled(), closing.cancelled()) == (True, False)
