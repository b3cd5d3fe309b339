"""The story of an application: what it has been through, as far as it fits into bounded memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from millstream.application.story.events import Failure, Rebalance, Restore, StateChange
from millstream.application.story.failures import Failures
from millstream.application.story.rebalances import Rebalances
from millstream.application.story.restores import Restores
from millstream.application.story.throughput import Throughput
from millstream.clock import Clock
from millstream.errors import StreamsError
from millstream.runtime.control import RestoreEvent
from millstream.runtime.states import ClientState, OwnedTask, ThreadState

#: Threads that do not run: not yet again, or no more.
AT_REST: Final = frozenset({ThreadState.CREATED, ThreadState.DEAD})

_MOST_STATES: Final = 200


@dataclass(frozen=True, slots=True)
class Told:
    """The story as it is at one moment; later events do not change it.

    Args:
        states: changes of the application's state, the oldest first.
        rebalances: the oldest first.
        failures: the oldest first.
        restores: those that go on, then those that have ended, the last one first.
        rates: records per second, by thread and task.
        history: records of each of the last seconds, the oldest first.
    """

    states: tuple[StateChange, ...]
    rebalances: tuple[Rebalance, ...]
    failures: tuple[Failure, ...]
    restores: tuple[Restore, ...]
    rates: Mapping[tuple[str, str], float]
    history: tuple[int, ...]


class ApplicationStory:
    """Told of everything that happens to an application instance; remembers the last of each kind.

    Whoever tells does so in the order of events. It may be read on any thread.

    Args:
        clock: dates the events.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._states: deque[StateChange] = deque(maxlen=_MOST_STATES)
        self._rebalances = Rebalances()
        self._failures = Failures()
        self._restores = Restores()
        self._throughput = Throughput()

    def state_changed(self, new: ClientState, old: ClientState, why: str) -> None:
        """The application has changed its state."""
        with self._lock:
            now_ms = self._clock.now_ms()
            self._states.append(StateChange(now_ms, old.name, new.name, why))
            if new is ClientState.REBALANCING:
                self._rebalances.began(now_ms, why)
            else:
                self._rebalances.ended(now_ms)

    def thread_is(self, thread: str, state: ThreadState, why: str) -> None:
        """A thread has changed its state."""
        with self._lock:
            now_ms = self._clock.now_ms()
            runs = state is ThreadState.RUNNING
            self._failures.step(thread, f"{state.name}: {why}", now_ms, over=runs)
            if state is ThreadState.DEAD:
                self._rebalances.tasks_are(thread, {}, now_ms)
            if state in AT_REST:
                self._restores.thread_ended(thread, now_ms)
                self._throughput.thread_ended(thread)

    def tasks_are(self, thread: str, tasks: Mapping[str, OwnedTask]) -> None:
        """A thread has told what it owns, by task id."""
        with self._lock:
            self._rebalances.tasks_are(thread, tasks, self._clock.now_ms())

    def counted(self, thread: str, tasks: Mapping[str, int]) -> None:
        """A thread has told what its tasks have processed so far."""
        with self._lock:
            self._throughput.heard(thread, tasks, self._clock.monotonic_ms())

    def restored(self, thread: str, event: RestoreEvent) -> None:
        """A thread has told how far it is with a store."""
        with self._lock:
            self._restores.heard(thread, event, self._clock.now_ms())

    def failed(self, thread: str | None, error: StreamsError, answer: str) -> None:
        """A thread has died of an error, or a listener has raised one; what is done about it."""
        with self._lock:
            self._failures.heard(thread, error, answer, self._clock.now_ms())

    def step(self, thread: str, text: str) -> None:
        """Something that belongs to the story of a thread that has failed."""
        with self._lock:
            self._failures.step(thread, text, self._clock.now_ms())

    def told(self) -> Told:
        """All of it, as it is now."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            return Told(
                tuple(self._states),
                tuple(self._rebalances.all()),
                tuple(self._failures.all()),
                tuple(self._restores.all()),
                self._throughput.rates(now_ms),
                tuple(self._throughput.history(now_ms)),
            )
