"""Calls on threads: order, bounds, errors, and what ends for nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.tasks.gathered_calls import gathered
from support.waiting import wait_for

from millstream.operators.apart.calls import Call
from millstream.operators.apart.landing import Landing
from millstream.operators.apart.threads import Threads

Calls = Callable[..., list[Call]]


class Board:
    """Calls that wait until a test lets them go."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self._gates: dict[Any, threading.Event] = {}
        self._lock = threading.Lock()

    def gate(self, value: Any) -> threading.Event:
        with self._lock:
            return self._gates.setdefault(value, threading.Event())

    def work(self, value: Any) -> Any:
        self.begun.append(value)
        assert self.gate(value).wait(20)
        return value

    def let_go(self, *values: Any) -> None:
        for value in values:
            self.gate(value).set()


def value_of(call: Call) -> tuple[Any, ...]:
    return (call.batch.values[call.index],)


def test_calls_of_a_unit_are_made_one_after_the_other(calls: Calls) -> None:
    board = Board()
    units = Threads(board.work, value_of, 50, Landing(lambda: None))
    units.start(calls(["a1", "a2"]))
    units.start(calls(["a3"]))
    wait_for(lambda: board.begun)
    board.let_go("a2", "a3")
    assert (board.begun, units.have_ended) == (["a1"], False)
    board.let_go("a1")
    assert [call.result for call in gathered(units, 3)] == ["a1", "a2", "a3"]


def test_calls_without_a_unit_are_made_by_whoever_has_time(calls: Calls) -> None:
    """No more at a time than there are threads, and a long one holds nobody up."""
    board = Board()
    units = Threads(board.work, value_of, 2, Landing(lambda: None))
    units.start(calls(["a", "b", "c", "d"], units=False))
    units.start(calls(["e"], units=False))
    wait_for(lambda: len(board.begun) == 2)
    assert sorted(board.begun) == ["a", "b"]
    board.let_go("b", "c", "d", "e")
    assert sorted(call.result for call in gathered(units, 4)) == ["b", "c", "d", "e"]
    assert not units.have_ended
    board.let_go("a")
    gathered(units, 1)


def test_calls_with_and_without_a_unit_beside_each_other(calls: Calls) -> None:
    """Whoever goes back to a unit of his own lets somebody else look for the rest."""
    units = Threads(lambda value: value, value_of, 4, Landing(lambda: None))
    for number in range(500):
        units.start(calls([f"a{number}", f"b{number}"]))
        units.start(calls([f"c{number}"], units=False))
    found = [call.result for call in gathered(units, 1_500)]
    for unit in "ab":
        mine = [result for result in found if result[0] == unit]
        assert mine == [f"{unit}{number}" for number in range(500)]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), ValueError("no")])
def test_an_error_ends_a_call_and_not_its_thread(calls: Calls, error: BaseException) -> None:
    def work(value: Any) -> Any:
        if value == "a1":
            raise error
        return value

    units = Threads(work, value_of, 1, Landing(lambda: None))
    units.start(calls(["a1", "a2"]))
    first, second = gathered(units, 2)
    assert (first.error, second.result) == (error, "a2")


def test_nothing_begins_after_close_and_nobody_hears_of_what_ends(calls: Calls) -> None:
    board, woken = Board(), threading.Event()
    units = Threads(board.work, value_of, 1, Landing(woken.set))
    before = set(threading.enumerate())
    units.start(calls(["a1", "a2"]))
    wait_for(lambda: board.begun)
    (thread,) = set(threading.enumerate()) - before
    units.close()
    board.let_go("a1", "a2")
    thread.join(20)
    assert not thread.is_alive()
    assert (board.begun, units.have_ended, woken.is_set()) == (["a1"], False, False)


def test_the_loop_is_woken_once_until_it_hears(calls: Calls) -> None:
    woken: list[None] = []
    landing = Landing(lambda: woken.append(None))
    units = Threads(lambda value: value, value_of, 1, landing)
    units.start(calls(["a1", "a2", "a3"]))
    gathered(units, 3)
    assert landing.wait(0)
    landing.hear()
    units.start(calls(["a4"]))
    assert landing.wait(20_000)
    gathered(units, 1)
    assert len(woken) == 2
