"""What becomes of the tasks of a partition that is given up."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from support.tasks.subscribed_task import SubscribedTask
from support.waiting import wait_for

from millstream.operators.apart.event_loop import event_loop


class Gate:
    """A processor whose tasks begin, and end when they may.

    Args:
        is_async: whether it is a coroutine function.
    """

    def __init__(self, is_async: bool) -> None:
        self.begun: list[str] = []
        self.cancelled: list[str] = []
        self.ended: list[str] = []
        #: Those that processed a task.
        self.threads: set[threading.Thread] = set()
        self._open: dict[str, threading.Event] = {}
        self.processor: Callable[..., Any] = self._wait_async if is_async else self._wait

    def open(self, task: str) -> None:
        """Let a task end."""
        self._event(task).set()

    def _event(self, task: str) -> threading.Event:
        return self._open.setdefault(task, threading.Event())

    def _wait(self, context: object, task: str) -> None:
        self.threads.add(threading.current_thread())
        self.begun.append(task)
        assert self._event(task).wait(10)
        self.ended.append(task)

    async def _wait_async(self, context: object, task: str) -> None:
        self.begun.append(task)
        try:
            while not self._event(task).is_set():
                await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            self.cancelled.append(task)
            raise
        self.ended.append(task)


@pytest.mark.parametrize("is_async", [False, True])
def test_halted_units_begin_no_queued_task_and_settle_those_that_ran(is_async: bool) -> None:
    """Of one key, so that two wait in a queue: hunts for a queue that goes on after the halt, for a
    completion that is not committed, and for a wait for what never begins."""
    gate = Gate(is_async)
    with SubscribedTask(gate.processor, concurrency=2) as sub:
        sub.feed("one", "two", "three", key="key")
        sub.step()
        wait_for(lambda: gate.begun == ["one"], 10, "the first one runs")
        assert not sub.drain(20)
        sub.task.halt()
        assert sub.task.may_land
        assert not sub.drain(20)
        gate.open("two")
        gate.open("one")
        started = time.monotonic()
        assert not sub.drain(10_000)
        assert time.monotonic() - started < 5, "it waited for what will not begin"
        assert not sub.task.may_land
        assert gate.begun == ["one"]
        assert sub.committable == 1
        assert sub.task.in_flight == 2


@pytest.mark.parametrize("is_async", [False, True])
def test_what_is_done_when_it_is_halted_counts(is_async: bool) -> None:
    gate = Gate(is_async)
    with SubscribedTask(gate.processor, concurrency=2) as sub:
        gate.open("one")
        sub.feed("one")
        sub.step()
        wait_for(lambda: gate.ended == ["one"], 10, "it is done")
        sub.task.halt()
        assert sub.drain()
        assert sub.committable == 1


def test_scheduled_and_deferred_tasks_are_not_waited_for_after_the_halt() -> None:
    kept = []
    with SubscribedTask(lambda context, task: kept.append(context.defer_completion())) as sub:
        sub.feed("one")
        sub.step()
        assert not sub.drain(20)
        assert sub.task.may_land
        sub.task.halt()
        started = time.monotonic()
        assert not sub.drain(10_000)
        assert time.monotonic() - started < 5
        kept[0].complete()
        assert sub.drain(), "what is completed until the commit counts all the same"
        assert sub.committable == 1


@pytest.mark.parametrize("cancels", [True, False])
def test_coroutines_that_still_run_are_cancelled_by_choice(cancels: bool) -> None:
    gate = Gate(is_async=True)
    with SubscribedTask(gate.processor, concurrency=1, cancel_running=cancels) as sub:
        sub.feed("one", "two")
        sub.step()
        wait_for(lambda: gate.begun == ["one"], 10, "it runs")
    if cancels:
        wait_for(lambda: gate.cancelled == ["one"], 10, "it is cancelled")
    else:
        gate.open("one")
        wait_for(lambda: gate.ended == ["one"], 10, "it comes to its end")
        gate.open("two")
    # Whatever follows the end of the first one is done on the loop before this comes to its turn.
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), event_loop()).result(10)
    assert gate.begun == ["one"]


def test_threads_end_what_they_do_and_nobody_hears_of_it() -> None:
    gate = Gate(is_async=False)
    with SubscribedTask(gate.processor, concurrency=2) as sub:
        sub.feed("one", "two", key="key")
        sub.step()
        wait_for(lambda: gate.begun == ["one"], 10, "it runs")
    gate.open("one")
    gate.open("two")
    (thread,) = gate.threads
    thread.join(10)
    assert not thread.is_alive()
    assert (gate.begun, gate.ended) == (["one"], ["one"])
