"""Calls on the event loop: order, bounds, timeouts, and what ends for nobody."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.tasks.gathered_calls import gathered
from support.waiting import wait_for

from millstream.operators.apart.calls import Call
from millstream.operators.apart.coroutines import Coroutines
from millstream.operators.apart.event_loop import event_loop
from millstream.operators.apart.landing import Landing

Calls = Callable[..., list[Call]]


class Board:
    """What happens to calls that wait until a test lets them go."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.cancelled: list[Any] = []
        self._gates: dict[Any, asyncio.Event] = {}

    def gate(self, value: Any) -> asyncio.Event:
        return self._gates.setdefault(value, asyncio.Event())

    async def work(self, value: Any) -> Any:
        self.begun.append(value)
        try:
            await self.gate(value).wait()
        except asyncio.CancelledError:
            self.cancelled.append(value)
            raise
        return value

    def let_go(self, *values: Any) -> None:
        for value in values:
            event_loop().call_soon_threadsafe(self.gate(value).set)


def settled() -> None:
    """All that the event loop had to do before this is done."""
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), event_loop()).result(20)
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), event_loop()).result(20)


def value_of(call: Call) -> tuple[Any, ...]:
    return (call.batch.values[call.index],)


def units_of(
    function: Callable[..., Any],
    most: int = 10,
    timeout_ms: int | None = None,
    wake: Callable[[], None] = lambda: None,
) -> Coroutines:
    return Coroutines(function, value_of, most, timeout_ms, Landing(wake))


def test_calls_of_a_unit_are_made_one_after_the_other(calls: Calls) -> None:
    """The second begins when the first has ended, and others meanwhile."""
    board = Board()
    units = units_of(board.work)
    units.start(calls(["a1", "a2", "b1"]))
    wait_for(lambda: len(board.begun) == 2)
    settled()
    assert board.begun == ["a1", "b1"]
    board.let_go("b1")
    assert [call.result for call in gathered(units, 1)] == ["b1"]
    assert "a2" not in board.begun
    board.let_go("a1", "a2")
    assert [call.result for call in gathered(units, 2)] == ["a1", "a2"]


def test_calls_without_a_unit_wait_for_none(calls: Calls) -> None:
    board = Board()
    units = units_of(board.work)
    units.start(calls(["a1", "a2", "a3"], units=False))
    wait_for(lambda: len(board.begun) == 3)
    board.let_go("a3", "a2", "a1")
    assert sorted(call.result for call in gathered(units, 3)) == ["a1", "a2", "a3"]


def test_no_more_run_than_allowed(calls: Calls) -> None:
    """Also of those that come later, and each that ends makes room for one."""
    board = Board()
    units = units_of(board.work, most=2)
    units.start(calls(["a", "b", "c"]))
    units.start(calls(["d"]))
    wait_for(lambda: len(board.begun) == 2)
    settled()
    assert board.begun == ["a", "b"]
    board.let_go("b")
    wait_for(lambda: len(board.begun) == 3)
    settled()
    assert board.begun == ["a", "b", "c"]
    board.let_go("a", "c", "d")
    gathered(units, 4)


def test_a_call_that_takes_too_long_is_cancelled(calls: Calls) -> None:
    """It ends with a TimeoutError, and the next of its unit is made."""
    board = Board()
    units = units_of(board.work, timeout_ms=20)
    board.let_go("a2")
    settled()
    units.start(calls(["a1", "a2"]))
    first, second = gathered(units, 2)
    assert isinstance(first.error, TimeoutError)
    assert (board.cancelled, second.result) == (["a1"], "a2")


def test_a_timeout_says_whose_it_was(calls: Calls) -> None:
    """That of the user's own client is not told as that of the operation."""

    async def work(value: Any) -> Any:
        async with asyncio.timeout(0.01 if value == "mine" else None):
            await asyncio.Event().wait()

    told = []
    for value, timeout_ms in (("mine", 20_000), ("yours", 20)):
        units = units_of(work, timeout_ms=timeout_ms)
        units.start(calls([value]))
        (call,) = gathered(units, 1)
        assert isinstance(call.error, TimeoutError)
        told.append(str(call.error))
    assert told == ["", "no result within 20 ms"]


def test_what_is_no_coroutine_is_an_error(calls: Calls) -> None:
    units = units_of(lambda value: value)
    units.start(calls(["a"]))
    (call,) = gathered(units, 1)
    assert isinstance(call.error, TypeError)
    assert "not awaitable" in str(call.error)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), ValueError("no")])
def test_an_error_ends_a_call_and_not_the_loop(calls: Calls, error: BaseException) -> None:
    """Whatever it is, its owner hears of it, and other calls go on."""

    async def work(value: Any) -> Any:
        if value == "a1":
            raise error
        return value

    units = units_of(work)
    units.start(calls(["a1", "a2"]))
    first, second = gathered(units, 2)
    assert (first.error, second.result) == (error, "a2")


def test_a_call_that_was_cancelled_from_within_is_an_ordinary_failure(calls: Calls) -> None:
    """Something that it awaited was: a CancelledError would go past every handler."""

    async def work(value: Any) -> Any:
        raise asyncio.CancelledError

    units = units_of(work)
    units.start(calls(["a"]))
    (call,) = gathered(units, 1)
    assert isinstance(call.error, RuntimeError)
    assert isinstance(call.error.__cause__, asyncio.CancelledError)


def test_close_cancels_what_runs_and_begins_no_more(calls: Calls) -> None:
    """And nobody hears of it."""
    board, woken = Board(), threading.Event()
    units = units_of(board.work, wake=woken.set)
    units.start(calls(["a1", "a2", "b1"]))
    wait_for(lambda: len(board.begun) == 2)
    units.close()
    wait_for(lambda: len(board.cancelled) == 2)
    units.start(calls(["c1"]))
    settled()
    assert sorted(board.begun) == ["a1", "b1"]
    assert not units.have_ended
    assert not woken.is_set()


def test_a_function_that_does_not_let_itself_be_cancelled_ends_for_nobody(calls: Calls) -> None:
    """It returns, though its owner is gone: no error, and its unit goes no further."""
    begun, ended, woken = threading.Event(), threading.Event(), threading.Event()
    made: list[Any] = []

    async def work(value: Any) -> Any:
        made.append(value)
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.set()
            return value

    told: list[Any] = []
    event_loop().call_soon_threadsafe(
        event_loop().set_exception_handler, lambda loop, context: told.append(context)
    )
    units = units_of(work, wake=woken.set)
    units.start(calls(["a1", "a2"]))
    assert begun.wait(20)
    units.close()
    assert ended.wait(20)
    settled()
    event_loop().call_soon_threadsafe(event_loop().set_exception_handler, None)
    assert (made, told, units.have_ended, woken.is_set()) == (["a1"], [], False, False)


@pytest.mark.parametrize("most", [1, 3])
def test_calls_that_come_while_the_last_one_ends_are_made(calls: Calls, most: int) -> None:
    """Whoever ends must not count any more for those who come."""
    more = [calls([f"{unit}2"]) for unit in "abc"[:most]]

    async def work(value: str) -> str:
        if value.endswith("1"):
            # Queued before anything that the end of this call queues.
            units.start(more.pop())
        return value

    units = units_of(work, most)
    units.start(calls([f"{unit}1" for unit in "abc"[:most]]))
    assert len(gathered(units, 2 * most)) == 2 * most
