"""Calls on threads: order, bounds, errors, and calls without an owner."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.tasks.concurrent_calls import completed_calls
from support.waiting import wait_for

from millstream.operators.concurrent.concurrent_calls import Call, CompletionSignal
from millstream.operators.concurrent.thread_runner import ThreadRunner

Calls = Callable[..., list[Call]]


class GatedCalls:
    """Calls that wait until a test releases them."""

    def __init__(self) -> None:
        self.started: list[Any] = []
        self._gates: dict[Any, threading.Event] = {}
        self._lock = threading.Lock()

    def gate(self, value: Any) -> threading.Event:
        with self._lock:
            return self._gates.setdefault(value, threading.Event())

    def work(self, value: Any) -> Any:
        self.started.append(value)
        assert self.gate(value).wait(20)
        return value

    def release(self, *values: Any) -> None:
        for value in values:
            self.gate(value).set()


def value_of(call: Call) -> tuple[Any, ...]:
    return (call.batch.values[call.index],)


def test_calls_of_a_unit_run_one_after_the_other(calls: Calls) -> None:
    gated = GatedCalls()
    runner = ThreadRunner(gated.work, value_of, 50, CompletionSignal(lambda: None))
    runner.start(calls(["a1", "a2"]))
    runner.start(calls(["a3"]))
    wait_for(lambda: gated.started)
    gated.release("a2", "a3")
    assert (gated.started, runner.has_completed) == (["a1"], False)
    gated.release("a1")
    assert [call.result for call in completed_calls(runner, 3)] == ["a1", "a2", "a3"]


def test_calls_without_a_unit_run_on_any_free_thread(calls: Calls) -> None:
    """There are at most as many calls as threads, and a long call does not delay others."""
    gated = GatedCalls()
    runner = ThreadRunner(gated.work, value_of, 2, CompletionSignal(lambda: None))
    runner.start(calls(["a", "b", "c", "d"], units=False))
    runner.start(calls(["e"], units=False))
    wait_for(lambda: len(gated.started) == 2)
    assert sorted(gated.started) == ["a", "b"]
    gated.release("b", "c", "d", "e")
    assert sorted(call.result for call in completed_calls(runner, 4)) == ["b", "c", "d", "e"]
    assert not runner.has_completed
    gated.release("a")
    completed_calls(runner, 1)


def test_calls_with_and_without_a_unit_run_concurrently(calls: Calls) -> None:
    """A thread that returns to its unit lets another thread look for the other calls."""
    runner = ThreadRunner(lambda value: value, value_of, 4, CompletionSignal(lambda: None))
    for number in range(500):
        runner.start(calls([f"a{number}", f"b{number}"]))
        runner.start(calls([f"c{number}"], units=False))
    found = [call.result for call in completed_calls(runner, 1_500)]
    for unit in "ab":
        results = [result for result in found if result[0] == unit]
        assert results == [f"{unit}{number}" for number in range(500)]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), ValueError("no")])
def test_error_ends_its_call_and_not_its_thread(calls: Calls, error: BaseException) -> None:
    def work(value: Any) -> Any:
        if value == "a1":
            raise error
        return value

    runner = ThreadRunner(work, value_of, 1, CompletionSignal(lambda: None))
    runner.start(calls(["a1", "a2"]))
    first, second = completed_calls(runner, 2)
    assert (first.error, second.result) == (error, "a2")


def test_no_call_starts_or_is_reported_after_close(calls: Calls) -> None:
    gated, woken = GatedCalls(), threading.Event()
    runner = ThreadRunner(gated.work, value_of, 1, CompletionSignal(woken.set))
    before = set(threading.enumerate())
    runner.start(calls(["a1", "a2"]))
    wait_for(lambda: gated.started)
    (thread,) = set(threading.enumerate()) - before
    runner.close()
    gated.release("a1", "a2")
    thread.join(20)
    assert not thread.is_alive()
    assert (gated.started, runner.has_completed, woken.is_set()) == (["a1"], False, False)


def test_loop_is_woken_once_until_it_clears_the_signal(calls: Calls) -> None:
    woken: list[None] = []
    signal = CompletionSignal(lambda: woken.append(None))
    runner = ThreadRunner(lambda value: value, value_of, 1, signal)
    runner.start(calls(["a1", "a2", "a3"]))
    completed_calls(runner, 3)
    assert signal.wait(0)
    signal.clear()
    runner.start(calls(["a4"]))
    assert signal.wait(20_000)
    completed_calls(runner, 1)
    assert len(woken) == 2
