"""Simulated time, and who may run: one actor at a time, chosen by a seed.

An actor is code that blocks, such as a stream thread, and has an OS thread of its own. Exactly one
of them holds the baton. When it waits, it takes the next event of the world itself: a call that is
due (a request arrives at a broker, a timer of a member) is made at once, on whatever thread; where
the event is another actor's turn, the baton is handed over. So nothing ever happens at the same
time, and nothing depends on how the machine schedules threads.
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
    """The process of the running actor was killed: its code ends here."""


class StuckError(AssertionError):
    """Nothing will ever happen again, or far too much has."""


@dataclass(eq=False)
class Process:
    """What is killed, paused or cut off as a whole.

    Args:
        name: for the trace.
        instance: the name of the instance that it belongs to.
        alive: whether it was not killed.
        frozen_until_us: paused until then (SIGSTOP, a long collection of garbage).
        cut_off: its packets go nowhere, and none reach it.
        crash_after_calls: how many more calls to clients it makes before it is killed; None for no
            such plan.
        slow_us: how much longer each of its batches takes.
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
        #: Changes whenever it goes on, so that a wake-up that comes too late is known.
        self.turn = 0
        self.done = False
        #: What its wait may be ended for before its time is over.
        self.waits_for: object = None
        self.baton = threading.Lock()
        self.baton.acquire()

    @property
    def dead(self) -> bool:
        """Whether its process was killed."""
        return self.process is not None and not self.process.alive

    def wake(self, why: object, delay_us: int = 0) -> None:
        """Let it go on, should it wait for that."""
        if self.waits_for is why:
            self._scheduler.push(delay_us, self.process, self, self.turn)


class Scheduler:
    """The events to come, in the order of their time.

    Args:
        seed: decides every chance there is.
        trace: called with each line of the story.
    """

    def __init__(self, seed: int, trace: Callable[[str], None]) -> None:
        self.random = random.Random(seed)
        self.now_us = 0
        self.events = 0
        self.most_events = 3_000_000
        #: What went wrong in code that nobody waits for.
        self.failure: BaseException | None = None
        #: Told of a process that ends itself by its plan.
        self.on_planned_crash: Callable[[Process], None] = lambda process: None
        #: Told of a process that was killed when the last of its actors has ended.
        self.on_end: Callable[[Process], None] = lambda process: None
        self._trace = trace
        self._sequence = 0
        self._heap: list[tuple[int, int, Process | None, Any, int]] = []
        self.director = Actor(self, None, "director")
        self.current = self.director
        self.in_call = False
        self.actors: list[Actor] = []

    # --- what happens when ---------------------------------------------------------------------

    def push(self, delay_us: int, process: Process | None, what: Any, turn: int = 0) -> None:
        """Let something happen after a while."""
        self._sequence += 1
        at_us = self.now_us + delay_us
        heapq.heappush(self._heap, (at_us, self._sequence, process, what, turn))

    def call_after(
        self, delay_us: int, call: Callable[[], None], process: Process | None = None
    ) -> None:
        """Make a call after a while, unless its process is dead by then. It must not wait."""
        self.push(delay_us, process, call)

    def tell(self, text: str) -> None:
        """A line of the story."""
        self._trace(f"{self.now_us / 1000:.3f} {text}")

    # --- actors --------------------------------------------------------------------------------

    def start(
        self, process: Process | None, name: str, run: Callable[[], None], delay_us: int = 0
    ) -> Actor:
        """Make an actor, which begins after a while."""
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
        """Let the running actor wait: for a time, or until it is woken for what it waits for.

        Raises:
            Crashed: its process was killed meanwhile.
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
        """Kill a process. Its actors unwind when their turn comes, now."""
        process.alive = False
        process.frozen_until_us = 0
        # A call is made on the thread of whoever waits: that one does not run.
        running = None if self.in_call else self.current
        for actor in self.actors:
            if actor.process is process and not actor.done and actor is not running:
                actor.turn += 1
                self.push(0, None, actor, actor.turn)
        self.actors = [actor for actor in self.actors if not actor.done]

    def step(self, delay_us: int, waits_for: object = None) -> None:
        """A call to the outside by the running actor: time passes, others may run, and its process
        may be killed here.

        Raises:
            Crashed: it was.
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
        """Keep an error for the director, who ends the history with it."""
        if self.failure is None:
            self.failure = error
            self.tell(f"FAILED {''.join(traceback.format_exception(error))}")
            self.push(0, None, self.director, self.director.turn)

    def _hand_over(self) -> None:
        target = self._next_actor()
        self.current = target
        target.baton.release()

    def _next_actor(self) -> Actor:
        """Make the calls that are due until it is an actor's turn."""
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
            if self.events > self.most_events:
                self.failed(StuckError(f"{self.events} events and no end"))
                return self.director
            self.in_call = True
            try:
                what()
            except BaseException as error:
                self.failed(error)
            finally:
                self.in_call = False
        self.failed(StuckError("nothing will happen any more"))
        return self.director


class SimulatedClock:
    """Simulated time as the engine asks for it. Reading it may take long, as anything may.

    Args:
        scheduler: has the time.
        stalls: how likely a reading is to be followed by a pause of some milliseconds.
    """

    def __init__(self, scheduler: Scheduler, stalls: float = 0.0) -> None:
        self._scheduler = scheduler
        self._stalls = stalls

    def now_ms(self) -> int:
        return EPOCH_MS + self._scheduler.now_us // 1000

    def monotonic_ms(self) -> int:
        scheduler = self._scheduler
        if self._stalls and not scheduler.in_call and not scheduler.current.dead:
            chance = scheduler.random
            if chance.random() < self._stalls:
                scheduler.step(chance.randrange(1_000, 40_000))
        return scheduler.now_us // 1000

    def sleep_ms(self, milliseconds: int) -> None:
        self._scheduler.step(max(1, milliseconds) * 1000)
