"""Calls on the event loop: order, bounds, timeouts, and calls without an owner."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.tasks.concurrent_calls import completed_calls
from support.waiting import wait_for

from millstream.operators.concurrent.concurrent_calls import Call, CompletionSignal
from millstream.operators.concurrent.coroutine_runner import CoroutineRunner
from millstream.operators.concurrent.event_loop import event_loop

Calls = Callable[..., list[Call]]


class GatedCalls:
    """Calls that wait until a test releases them, with a log of their starts and cancellations."""

    def __init__(self) -> None:
        self.started: list[Any] = []
        self.cancelled: list[Any] = []
        self._gates: dict[Any, asyncio.Event] = {}

    def gate(self, value: Any) -> asyncio.Event:
        return self._gates.setdefault(value, asyncio.Event())

    async def work(self, value: Any) -> Any:
        self.started.append(value)
        try:
            await self.gate(value).wait()
        except asyncio.CancelledError:
            self.cancelled.append(value)
            raise
        return value

    def release(self, *values: Any) -> None:
        for value in values:
            event_loop().call_soon_threadsafe(self.gate(value).set)


def run_pending_callbacks() -> None:
    """Wait until the event loop has run all pending callbacks."""
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), event_loop()).result(20)
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), event_loop()).result(20)


def value_of(call: Call) -> tuple[Any, ...]:
    return (call.batch.values[call.index],)


def make_runner(
    function: Callable[..., Any],
    limit: int = 10,
    timeout_ms: int | None = None,
    wake: Callable[[], None] = lambda: None,
) -> CoroutineRunner:
    return CoroutineRunner(function, value_of, limit, timeout_ms, CompletionSignal(wake))


def test_calls_of_a_unit_run_one_after_the_other(calls: Calls) -> None:
    """The second call starts when the first has ended; calls of other units run meanwhile."""
    gated = GatedCalls()
    runner = make_runner(gated.work)
    runner.start(calls(["a1", "a2", "b1"]))
    wait_for(lambda: len(gated.started) == 2)
    run_pending_callbacks()
    assert gated.started == ["a1", "b1"]
    gated.release("b1")
    assert [call.result for call in completed_calls(runner, 1)] == ["b1"]
    assert "a2" not in gated.started
    gated.release("a1", "a2")
    assert [call.result for call in completed_calls(runner, 2)] == ["a1", "a2"]


def test_calls_without_a_unit_do_not_wait(calls: Calls) -> None:
    gated = GatedCalls()
    runner = make_runner(gated.work)
    runner.start(calls(["a1", "a2", "a3"], units=False))
    wait_for(lambda: len(gated.started) == 3)
    gated.release("a3", "a2", "a1")
    assert sorted(call.result for call in completed_calls(runner, 3)) == ["a1", "a2", "a3"]


def test_number_of_running_calls_is_limited(calls: Calls) -> None:
    """Also for later calls. Each finished call makes room for another one."""
    gated = GatedCalls()
    runner = make_runner(gated.work, limit=2)
    runner.start(calls(["a", "b", "c"]))
    runner.start(calls(["d"]))
    wait_for(lambda: len(gated.started) == 2)
    run_pending_callbacks()
    assert gated.started == ["a", "b"]
    gated.release("b")
    wait_for(lambda: len(gated.started) == 3)
    run_pending_callbacks()
    assert gated.started == ["a", "b", "c"]
    gated.release("a", "c", "d")
    completed_calls(runner, 4)


def test_call_that_exceeds_its_timeout_is_cancelled(calls: Calls) -> None:
    """It ends with a TimeoutError, and the next call of its unit starts."""
    gated = GatedCalls()
    runner = make_runner(gated.work, timeout_ms=20)
    gated.release("a2")
    run_pending_callbacks()
    runner.start(calls(["a1", "a2"]))
    first, second = completed_calls(runner, 2)
    assert isinstance(first.error, TimeoutError)
    assert (gated.cancelled, second.result) == (["a1"], "a2")


def test_timeouts_of_the_operation_and_of_user_code_differ(calls: Calls) -> None:
    """A timeout of the user's own client is not reported as that of the operation."""

    async def work(value: Any) -> Any:
        async with asyncio.timeout(0.01 if value == "mine" else None):
            await asyncio.Event().wait()

    reported = []
    for value, timeout_ms in (("mine", 20_000), ("yours", 20)):
        runner = make_runner(work, timeout_ms=timeout_ms)
        runner.start(calls([value]))
        (call,) = completed_calls(runner, 1)
        assert isinstance(call.error, TimeoutError)
        reported.append(str(call.error))
    assert reported == ["", "no result within 20 ms"]


def test_result_that_is_not_awaitable_is_an_error(calls: Calls) -> None:
    runner = make_runner(lambda value: value)
    runner.start(calls(["a"]))
    (call,) = completed_calls(runner, 1)
    assert isinstance(call.error, TypeError)
    assert "not awaitable" in str(call.error)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), ValueError("no")])
def test_error_ends_its_call_and_not_the_loop(calls: Calls, error: BaseException) -> None:
    """Every exception is passed to the owner of the call, and other calls continue."""

    async def work(value: Any) -> Any:
        if value == "a1":
            raise error
        return value

    runner = make_runner(work)
    runner.start(calls(["a1", "a2"]))
    first, second = completed_calls(runner, 2)
    assert (first.error, second.result) == (error, "a2")


def test_call_that_was_cancelled_from_within_is_an_ordinary_failure(calls: Calls) -> None:
    """For example by an awaited task: a CancelledError would bypass every handler."""

    async def work(value: Any) -> Any:
        raise asyncio.CancelledError

    runner = make_runner(work)
    runner.start(calls(["a"]))
    (call,) = completed_calls(runner, 1)
    assert isinstance(call.error, RuntimeError)
    assert isinstance(call.error.__cause__, asyncio.CancelledError)


def test_close_cancels_running_calls_and_starts_no_others(calls: Calls) -> None:
    """There is no notification."""
    gated, woken = GatedCalls(), threading.Event()
    runner = make_runner(gated.work, wake=woken.set)
    runner.start(calls(["a1", "a2", "b1"]))
    wait_for(lambda: len(gated.started) == 2)
    runner.close()
    wait_for(lambda: len(gated.cancelled) == 2)
    runner.start(calls(["c1"]))
    run_pending_callbacks()
    assert sorted(gated.started) == ["a1", "b1"]
    assert not runner.has_completed
    assert not woken.is_set()


def test_call_that_ignores_its_cancellation_has_no_effect(calls: Calls) -> None:
    """It returns after its owner was closed: there is no error, and its unit does not continue."""
    started, ended, woken = threading.Event(), threading.Event(), threading.Event()
    started_values: list[Any] = []

    async def work(value: Any) -> Any:
        started_values.append(value)
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.set()
            return value

    reported: list[Any] = []
    event_loop().call_soon_threadsafe(
        event_loop().set_exception_handler, lambda loop, context: reported.append(context)
    )
    runner = make_runner(work, wake=woken.set)
    runner.start(calls(["a1", "a2"]))
    assert started.wait(20)
    runner.close()
    assert ended.wait(20)
    run_pending_callbacks()
    event_loop().call_soon_threadsafe(event_loop().set_exception_handler, None)
    assert (started_values, reported, runner.has_completed, woken.is_set()) == (
        ["a1"],
        [],
        False,
        False,
    )


@pytest.mark.parametrize("limit", [1, 3])
def test_calls_that_are_added_while_the_last_one_ends_are_run(calls: Calls, limit: int) -> None:
    """A call that is ending must not count towards the limit for later calls."""
    more = [calls([f"{unit}2"]) for unit in "abc"[:limit]]

    async def work(value: str) -> str:
        if value.endswith("1"):
            # The new call is queued before the callbacks at the end of this one run.
            runner.start(more.pop())
        return value

    runner = make_runner(work, limit)
    runner.start(calls([f"{unit}1" for unit in "abc"[:limit]]))
    assert len(completed_calls(runner, 2 * limit)) == 2 * limit
