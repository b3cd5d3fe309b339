"""Simulated time: runs one actor at a time, chosen by a seed.

An actor is blocking code, such as a stream thread, with an OS thread of its own. Only the actor
that holds the baton runs. When it waits, it processes the next events itself: it makes due calls (a
request arrives at a broker, a timer of a member expires) on its own OS thread, and hands the baton
over if the event is the turn of another actor. So nothing happens concurrently, and nothing depends
on the scheduling of OS threads.
"""

from __future__ import annotations

import heapq
import random
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

#: Wall-clock time when a history begins, in milliseconds since the epoch.
EPOCH_MS: Final = 1_700_000_000_000


class Crashed(BaseException):
    """The process of the running actor was killed; unwinds the actor's code."""


class StuckError(AssertionError):
    """There are no more events, or too many."""


@dataclass(eq=False)
class Process:
    """A process, which is killed, paused or disconnected as a whole.

    Args:
        name: for the trace.
        instance: the name of its instance.
        alive: whether it was not killed.
        frozen_until_us: the end of a pause (SIGSTOP, a long garbage collection).
        cut_off: whether the network drops all of its packets, in both directions.
        crash_after_calls: the number of calls to clients until it is killed; None without such a
            plan.
        slow_us: the additional duration of each batch.
    """

    name: str
    instance: str = ""
    alive: bool = True
    frozen_until_us: int = 0
    cut_off: bool = False
    crash_after_calls: int | None = None
    slow_us: int = 0


class Actor:
    """Code on an OS thread of its own that runs only while it holds the baton."""

    def __init__(self, scheduler: Scheduler, process: Process | None, name: str) -> None:
        self._scheduler = scheduler
        self.process = process
        self.name = name
        #: Incremented whenever the actor continues, so that late wake-ups are detected.
        self.turn = 0
        self.done = False
        #: The object whose `wake` ends the current wait early.
        self.waits_for: object = None
        self.baton = threading.Lock()
        self.baton.acquire()

    @property
    def dead(self) -> bool:
        """Whether its process was killed."""
        return self.process is not None and not self.process.alive

    def wake(self, why: object, delay_us: int = 0) -> None:
        """Continue the actor if it waits for this object."""
        if self.waits_for is why:
            self._scheduler.push(delay_us, self.process, self, self.turn)


class Scheduler:
    """Runs events in the order of their time.

    Args:
        seed: determines all random choices.
        trace: called with each line of the trace.
    """

    def __init__(self, seed: int, trace: Callable[[str], None]) -> None:
        self.random = random.Random(seed)
        self.now_us = 0
        self.events = 0
        self.max_events = 3_000_000
        #: The first error in a call or an actor.
        self.failure: BaseException | None = None
        #: Called with a process when its planned crash is due.
        self.on_planned_crash: Callable[[Process], None] = lambda process: None
        #: Called with a killed process when the last of its actors has ended.
        self.on_end: Callable[[Process], None] = lambda process: None
        self._trace = trace
        self._sequence = 0
        self._heap: list[tuple[int, int, Process | None, Any, int]] = []
        self.director = Actor(self, None, "director")
        self.current = self.director
        self.in_call = False
        self.actors: list[Actor] = []

    # --- events --------------------------------------------------------------------------------

    def push(self, delay_us: int, process: Process | None, what: Any, turn: int = 0) -> None:
        """Add an event after a delay."""
        self._sequence += 1
        at_us = self.now_us + delay_us
        heapq.heappush(self._heap, (at_us, self._sequence, process, what, turn))

    def call_after(
        self, delay_us: int, call: Callable[[], None], process: Process | None = None
    ) -> None:
        """Make a call after a delay, unless its process is dead by then. The call must not wait."""
        self.push(delay_us, process, call)

    def log(self, text: str) -> None:
        """Write a line to the trace."""
        self._trace(f"{self.now_us / 1000:.3f} {text}")

    # --- actors --------------------------------------------------------------------------------

    def start(
        self, process: Process | None, name: str, run: Callable[[], None], delay_us: int = 0
    ) -> Actor:
        """Create an actor that starts after a delay."""
        actor = Actor(self, process, name)
        self.actors.append(actor)

        def main() -> None:
            actor.baton.acquire()
            try:
                if not actor.dead:
                    run()
            except Crashed:
                pass
            except BaseException as error:
                self.failed(error)
            actor.done = True
            try:
                self._ended(actor)
            except BaseException as error:
                self.failed(error)
            self._hand_over()

        threading.Thread(target=main, name=name, daemon=True).start()
        self.push(delay_us, process, actor, actor.turn)
        return actor

    def sleep(self, delay_us: int, waits_for: object = None) -> None:
        """Suspend the running actor for a time, or until it is woken.

        Raises:
            Crashed: its process was killed in the meantime.
        """
        me = self.current
        assert not self.in_call, "a call of the scheduler must not wait"
        if me.dead:
            raise Crashed
        me.turn += 1
        me.waits_for = waits_for
        self.push(delay_us, me.process, me, me.turn)
        target = self._next_actor()
        if target is not me:
            self.current = target
            target.baton.release()
            me.baton.acquire()
        me.turn += 1
        me.waits_for = None
        if me.dead:
            raise Crashed

    def kill(self, process: Process) -> None:
        """Kill a process. Its actors unwind immediately, at their next turns."""
        process.alive = False
        process.frozen_until_us = 0
        # A call runs on the OS thread of a waiting actor, which is not running itself.
        running = None if self.in_call else self.current
        for actor in self.actors:
            if actor.process is process and not actor.done and actor is not running:
                actor.turn += 1
                self.push(0, None, actor, actor.turn)
        self.actors = [actor for actor in self.actors if not actor.done]

    def step(self, delay_us: int, waits_for: object = None) -> None:
        """Simulate an external call of the running actor: time passes, other actors run, and a
        planned crash may happen.

        Raises:
            Crashed: the process was killed.
        """
        me = self.current
        process = me.process
        if process is not None and process.crash_after_calls is not None:
            process.crash_after_calls -= 1
            if process.crash_after_calls < 0:
                process.crash_after_calls = None
                self.on_planned_crash(process)
        if me.dead:
            raise Crashed
        self.sleep(delay_us, waits_for)

    def _ended(self, actor: Actor) -> None:
        process = actor.process
        if process is None or process.alive:
            return
        if all(other.done for other in self.actors if other.process is process):
            self.on_end(process)

    def failed(self, error: BaseException) -> None:
        """Store an error for the director, which ends the history with it."""
        if self.failure is None:
            self.failure = error
            self.log(f"FAILED {''.join(traceback.format_exception(error))}")
            self.push(0, None, self.director, self.director.turn)

    def _hand_over(self) -> None:
        target = self._next_actor()
        self.current = target
        target.baton.release()

    def _next_actor(self) -> Actor:
        """Make due calls until the next turn of an actor."""
        heap = self._heap
        while heap:
            at_us, _, process, what, turn = heapq.heappop(heap)
            self.now_us = max(self.now_us, at_us)
            if process is not None:
                if not process.alive:
                    continue
                if process.frozen_until_us > self.now_us:
                    self.push(process.frozen_until_us - self.now_us, process, what, turn)
                    continue
            if isinstance(what, Actor):
                if what.turn == turn and not what.done:
                    return what
                continue
            self.events += 1
            if self.events > self.max_events:
                self.failed(StuckError(f"no end after {self.events} events"))
                return self.director
            self.in_call = True
            try:
                what()
            except BaseException as error:
                self.failed(error)
            finally:
                self.in_call = False
        self.failed(StuckError("there are no more events"))
        return self.director


class SimulatedClock:
    """Simulated time for the engine. Reading the clock may stall the thread.

    Args:
        scheduler: provides the time.
        stalls: the probability that a reading is followed by a pause of some milliseconds.
    """

    def __init__(self, scheduler: Scheduler, stalls: float = 0.0) -> None:
        self._scheduler = scheduler
        self._stalls = stalls

    def now_ms(self) -> int:
        return EPOCH_MS + self._scheduler.now_us // 1000

    def monotonic_ms(self) -> int:
        scheduler = self._scheduler
        if self._stalls and not scheduler.in_call and not scheduler.current.dead:
            rng = scheduler.random
            if rng.random() < self._stalls:
                scheduler.step(rng.randrange(1_000, 40_000))
        return scheduler.now_us // 1000

    def sleep_ms(self, milliseconds: int) -> None:
        self._scheduler.step(max(1, milliseconds) * 1000)
