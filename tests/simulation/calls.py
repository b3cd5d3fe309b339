"""Calls beside a task, as events of the simulated world: they end in any order, after any time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from support.tasks.held_calls import HeldCalls, HeldUnits

from millstream.operators.apart.calls import Call
from simulation.clients.requests import Waits
from simulation.scheduler import Process, Scheduler

#: How long calls take: most of them little, a few longer than a drain waits for them.
_QUICK_US: Final = (100, 60_000)
_LONG_US: Final = (500_000, 7_000_000)
_LONG: Final = 0.01


class SimulatedCalls(HeldCalls):
    """Those of one task. It is `Apart`.

    What a process has begun goes on after it has lost the task, and ends with it if it is killed.

    Args:
        scheduler: the world.
        process: what the task lives in.
        waits: where its thread waits.
        wake: ends that.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        process: Process | None,
        waits: Callable[[], Waits | None],
        wake: Callable[[], None],
    ) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._process = process
        self._waits = waits
        self._wake = wake
        self._actor = scheduler.director

    def began(self, units: HeldUnits, call: Call) -> None:
        chance = self._scheduler.random
        least_us, most_us = _LONG_US if chance.random() < _LONG else _QUICK_US
        self._scheduler.call_after(
            chance.randrange(least_us, most_us), lambda: units.make(call), self._process
        )

    def tell(self) -> None:
        super().tell()
        self._wake()
        self._actor.wake(self)
        if (waits := self._waits()) is not None:
            waits.end()

    def wait(self, timeout_ms: int) -> bool:
        """Until one ends, or the time is over."""
        if not any(units.have_ended for units in self.made):
            self._actor = self._scheduler.current
            self._scheduler.step(max(1, timeout_ms) * 1000, self)
        return True
