"""The tasks of a partition that is released."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.tasks.subscribed_task import SubscribedTask
from support.waiting import NEVER_S, hang_guard, wait_for

from millstream.operators.concurrent.event_loop import event_loop


class Gate:
    """A processor of tasks that start at once, and end when the test allows.

    Args:
        is_async: whether it is a coroutine function.
    """

    def __init__(self, is_async: bool) -> None:
        self.started: list[str] = []
        self.cancelled: list[str] = []
        self.ended: list[str] = []
        #: The threads that processed a task.
        self.threads: set[threading.Thread] = set()
        self._open: dict[str, threading.Event] = {}
        self.processor: Callable[..., Any] = self._wait_async if is_async else self._wait

    def open(self, task: str) -> None:
        """Allow a task to end."""
        self._event(task).set()

    def _event(self, task: str) -> threading.Event:
        return self._open.setdefault(task, threading.Event())

    def _wait(self, context: object, task: str) -> None:
        self.threads.add(threading.current_thread())
        self.started.append(task)
        assert self._event(task).wait(10)
        self.ended.append(task)

    async def _wait_async(self, context: object, task: str) -> None:
        self.started.append(task)
        try:
            while not self._event(task).is_set():
                await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            self.cancelled.append(task)
            raise
        self.ended.append(task)


@pytest.mark.parametrize("is_async", [False, True])
def test_halted_units_start_no_queued_task_and_complete_running_tasks(is_async: bool) -> None:
    """The tasks have one key, so two wait in a queue. Detects a queue that continues after the
    halt, a completion that is not committed, and a wait for queued tasks."""
    gate = Gate(is_async)
    with SubscribedTask(gate.processor, concurrency=2) as sub:
        sub.feed("one", "two", "three", key="key")
        sub.step()
        wait_for(lambda: gate.started == ["one"], 10, "the first one runs")
        assert not sub.drain(20)
        sub.task.halt()
        assert sub.task.can_finish
        assert not sub.drain(20)
        gate.open("two")
        gate.open("one")
        with hang_guard("the drain, which must not wait for queued tasks,"):
            assert not sub.drain(int(NEVER_S * 1_000))
        assert not sub.task.can_finish
        assert gate.started == ["one"]
        assert sub.committable == 1
        assert sub.task.in_flight == 2


@pytest.mark.parametrize("is_async", [False, True])
def test_completed_task_counts_after_a_halt(is_async: bool) -> None:
    gate = Gate(is_async)
    with SubscribedTask(gate.processor, concurrency=2) as sub:
        gate.open("one")
        sub.feed("one")
        sub.step()
        wait_for(lambda: gate.ended == ["one"], 10, "it is done")
        sub.task.halt()
        assert sub.drain()
        assert sub.committable == 1


def test_deferred_tasks_are_not_awaited_after_a_halt() -> None:
    pending = []
    with SubscribedTask(lambda context, task: pending.append(context.defer_completion())) as sub:
        sub.feed("one")
        sub.step()
        assert not sub.drain(20)
        assert sub.task.can_finish
        sub.task.halt()
        with hang_guard("the drain"):
            assert not sub.drain(int(NEVER_S * 1_000))
        pending[0].complete()
        assert sub.drain(), "completions count until the commit"
        assert sub.committable == 1


@pytest.mark.parametrize("cancels", [True, False])
def test_running_coroutines_are_cancelled_on_request(cancels: bool) -> None:
    gate = Gate(is_async=True)
    with SubscribedTask(gate.processor, concurrency=1, cancel_running=cancels) as sub:
        sub.feed("one", "two")
        sub.step()
        wait_for(lambda: gate.started == ["one"], 10, "it runs")
    if cancels:
        wait_for(lambda: gate.cancelled == ["one"], 10, "it is cancelled")
    else:
        gate.open("one")
        wait_for(lambda: gate.ended == ["one"], 10, "it ends")
        gate.open("two")
    # Callbacks at the end of the first task run on the loop before this one.
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), event_loop()).result(10)
    assert gate.started == ["one"]


def test_threads_finish_their_tasks_without_effects() -> None:
    gate = Gate(is_async=False)
    with SubscribedTask(gate.processor, concurrency=2) as sub:
        sub.feed("one", "two", key="key")
        sub.step()
        wait_for(lambda: gate.started == ["one"], 10, "it runs")
    gate.open("one")
    gate.open("two")
    (thread,) = gate.threads
    thread.join(10)
    assert not thread.is_alive()
    assert (gate.started, gate.ended) == (["one"], ["one"])
