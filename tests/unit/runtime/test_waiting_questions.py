"""Goal: questions do not keep a stream thread from its work, and none is answered for nobody."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from millstream.clock import ManualClock
from millstream.errors import ThreadUnavailableError
from millstream.runtime.control import Asked, AskMetrics, Pause, Resume
from millstream.runtime.queries.pace import Pace
from millstream.runtime.queries.questions import ANSWER_MS, AskOffsets, CloseCursor
from millstream.runtime.queries.waiting import ROUND_MS, WaitingQuestions


class Answering:
    """Answers that take a while."""

    def __init__(self, took_ms: int) -> None:
        self.clock = ManualClock()
        self.told: list[tuple[int | None, Any]] = []
        self._took_ms = took_ms
        self.control = Mock(reply=self._reply)
        self.pace = Pace(1_000, self.clock)
        self.questions = WaitingQuestions(self._answer, self.control, self.clock, self.pace)

    def _answer(self, question: Any) -> Any:
        self.clock.advance(self._took_ms)
        return type(question).__name__

    def _reply(self, asked: Asked, answer: Any) -> None:
        self.told.append((asked.number, answer))

    def ask(self, number: int, question: Any, arrived_ms: int | None = None) -> None:
        self.questions.add(Asked(question, number, arrived_ms), question)


def test_a_crowd_is_answered_a_few_at_a_time_in_its_order() -> None:
    """Each round takes its time and hardly more, and answers one question at least."""
    bench = Answering(took_ms=4)
    for number in range(100):
        bench.ask(number, AskOffsets())
    rounds = 0
    while bench.questions.are_left:
        began_ms, before = bench.clock.monotonic_ms(), len(bench.told)
        bench.questions.answer_some()
        assert bench.clock.monotonic_ms() - began_ms < ROUND_MS + 4 + 1
        assert len(bench.told) > before
        rounds += 1
    assert rounds > 20
    assert bench.told == [(number, "AskOffsets") for number in range(100)]
    bench.questions.answer_some()
    assert len(bench.told) == 100


def test_what_nobody_waits_for_any_more_is_not_answered() -> None:
    """Also if it waited where the thread did not look for long."""
    bench = Answering(took_ms=0)
    bench.ask(1, AskOffsets())
    bench.clock.advance(ANSWER_MS - 50)
    bench.ask(2, AskOffsets(), arrived_ms=0)
    bench.ask(3, CloseCursor("c"), arrived_ms=5_000)
    bench.ask(4, CloseCursor("c", within_ms=10), arrived_ms=5_000)
    bench.clock.advance(51)
    bench.questions.answer_some()
    assert bench.told == [(3, "CloseCursor")]
    assert not bench.questions.are_left


def test_a_thread_that_closes_lets_nobody_wait() -> None:
    bench = Answering(took_ms=0)
    bench.ask(1, AskOffsets())
    bench.ask(2, AskOffsets())
    bench.questions.end("t")
    assert [number for number, _ in bench.told] == [1, 2]
    assert all(isinstance(answer, ThreadUnavailableError) for _, answer in bench.told)
    (refused,) = bench.control.refuse_questions.call_args.args
    assert "Stream thread t closes" in refused.message
    assert not bench.questions.are_left


def test_commands_wait_while_only_questions_are_looked_for() -> None:
    """In the middle of a commit nobody may be told to resize a cache. Nothing is lost by that."""
    bench = Answering(took_ms=0)
    assert not bench.pace.is_asked
    told = [Asked(Pause()), Asked(AskOffsets(), 1), Asked(AskMetrics(), 2), Asked(Resume())]
    bench.control.commands.return_value = told[:3]
    bench.questions.hear()
    bench.questions.answer_some()
    assert bench.told == [(1, "AskOffsets")]
    bench.control.commands.return_value = told[3:]
    assert [each.command for each in bench.questions.commands()] == [
        Pause(),
        AskMetrics(),
        Resume(),
    ]
    bench.control.commands.return_value = []
    assert bench.questions.commands() == []
    assert bench.pace.is_asked


def test_a_thread_that_fails_in_the_middle_refuses_what_it_has_put_off() -> None:
    bench = Answering(took_ms=0)
    bench.control.commands.return_value = [Asked(AskMetrics(), 7)]
    bench.questions.hear()
    bench.questions.end("t")
    ((number, answer),) = bench.told
    assert number == 7
    assert isinstance(answer, ThreadUnavailableError)
