"""Concurrent calls as events of the simulation; they end in any order, after any time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from support.tasks.concurrent_calls import ManualCalls, ManualRunner

from millstream.operators.concurrent.concurrent_calls import Call
from simulation.clients.requests import WaitPoint
from simulation.scheduler import Process, Scheduler

#: The durations of calls: most are short, a few exceed the drain timeout.
_QUICK_US: Final = (100, 60_000)
_LONG_US: Final = (500_000, 7_000_000)
_LONG_PROBABILITY: Final = 0.01


class SimulatedCalls(ManualCalls):
    """The concurrent calls of one task. Implements `CallRunners`.

    A running call continues when its process loses the task, and ends when the process is killed.

    Args:
        scheduler: the simulation's scheduler.
        process: the task's process.
        wait_point: returns the wait point of its thread.
        wake: wakes the thread.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        process: Process | None,
        wait_point: Callable[[], WaitPoint | None],
        wake: Callable[[], None],
    ) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._process = process
        self._wait_point = wait_point
        self._wake = wake
        self._actor = scheduler.director

    def began(self, runner: ManualRunner, call: Call) -> None:
        rng = self._scheduler.random
        min_us, max_us = _LONG_US if rng.random() < _LONG_PROBABILITY else _QUICK_US
        self._scheduler.call_after(
            rng.randrange(min_us, max_us), lambda: runner.make(call), self._process
        )

    def notify(self) -> None:
        super().notify()
        self._wake()
        self._actor.wake(self)
        if (wait_point := self._wait_point()) is not None:
            wait_point.end()

    def wait(self, timeout_ms: int) -> bool:
        """Wait until a call ends or the timeout expires."""
        if not any(runner.has_completed for runner in self.created):
            self._actor = self._scheduler.current
            self._scheduler.step(max(1, timeout_ms) * 1000, self)
        return True
