"""The event log of an application instance, within bounded memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from millstream.application.event_log.event_types import (
    FailureEvent,
    FailureStep,
    OwnedTasks,
    RebalanceEvent,
    RestoreKind,
    RestoreProgress,
    RestoreState,
    StateChange,
)
from millstream.clock import Clock
from millstream.errors import StreamsError, traceback_of
from millstream.runtime.states.thread_states import ClientState, OwnedTask, ThreadState
from millstream.runtime.thread_control import RestoreEvent, RestoreStep

#: The window of a rate, and the maximum number of totals in it.
_RATE_WINDOW_MS: Final = 5_000
_MAX_TOTALS: Final = 32
#: The length of the history, with one number per second.
_HISTORY_S: Final = 300
_MAX_REBALANCES: Final = 100
#: Task changes within this time after a rebalance still belong to the rebalance.
_SETTLING_MS: Final = 2_000
_MAX_FAILURES: Final = 100
_MAX_STEPS: Final = 40
_MAX_STACK_LINES: Final = 60
_MAX_STACK_CHARACTERS: Final = 12_000
_MAX_MESSAGE_CHARACTERS: Final = 4_000
#: The maximum number of ended restorations in the log.
_MAX_ENDED: Final = 200
_STARTS: Final = frozenset({RestoreStep.START, RestoreStep.STANDBY_START})
_BATCHES: Final = frozenset({RestoreStep.BATCH, RestoreStep.STANDBY_BATCH})
#: The states of threads that are not running yet, or no longer.
INACTIVE_STATES: Final = frozenset({ThreadState.CREATED, ThreadState.DEAD})
_MAX_STATES: Final = 200


class Throughput:
    """The rate of each task over the last 5 s, and of all tasks over the last 5 min.

    Totals count from zero in each thread, so they are tracked by thread and task. Times are
    monotonic.
    """

    def __init__(self) -> None:
        self._totals: dict[tuple[str, str], deque[tuple[int, int]]] = {}
        self._seconds: deque[tuple[int, int]] = deque(maxlen=_HISTORY_S)

    def update(self, thread: str, tasks: Mapping[str, int], now_ms: int) -> None:
        for key in [key for key in self._totals if key[0] == thread and key[1] not in tasks]:
            del self._totals[key]
        increase = 0
        for task, total in tasks.items():
            totals = self._totals.get((thread, task))
            if totals is None or total < totals[-1][1]:
                # The first total of a new or restarted task gives no rate yet.
                totals = self._totals[thread, task] = deque(maxlen=_MAX_TOTALS)
            else:
                increase += total - totals[-1][1]
            totals.append((now_ms, total))
        second = now_ms // 1_000
        if self._seconds and self._seconds[-1][0] == second:
            increase += self._seconds.pop()[1]
        self._seconds.append((second, increase))

    def thread_ended(self, thread: str) -> None:
        for key in [key for key in self._totals if key[0] == thread]:
            del self._totals[key]

    def rates(self, now_ms: int) -> dict[tuple[str, str], float]:
        return {key: _rate(totals, now_ms) for key, totals in self._totals.items()}

    def history(self, now_ms: int) -> list[int]:
        """Return the records per second, oldest first, up to the last complete second."""
        if not self._seconds:
            return []
        found = dict(self._seconds)
        last = now_ms // 1_000 - 1
        first = max(self._seconds[0][0], last - _HISTORY_S + 1)
        return [found.get(second, 0) for second in range(first, last + 1)]


def _rate(totals: deque[tuple[int, int]], now_ms: int) -> float:
    recent = [each for each in totals if now_ms - each[0] <= _RATE_WINDOW_MS]
    if len(recent) < 2 or recent[-1][0] == recent[0][0]:
        return 0.0
    return (recent[-1][1] - recent[0][1]) * 1_000 / (recent[-1][0] - recent[0][0])


class RebalanceLog:
    """Tracks the tasks of all threads and the last 100 rebalances.

    A rebalance lasts as long as the state of the application is REBALANCING.
    """

    def __init__(self) -> None:
        self._owned: dict[str, OwnedTasks] = {}
        #: Oldest first.
        self.entries: deque[RebalanceEvent] = deque(maxlen=_MAX_REBALANCES)
        self._count = 0

    def began(self, now_ms: int, why: str) -> None:
        """Record the start of a rebalance, when the first thread has stopped."""
        if self.entries and self.entries[-1].ended_ms is None:
            return
        self._count += 1
        owned = dict(self._owned)
        self.entries.append(RebalanceEvent(self._count, now_ms, None, why, owned, owned))

    def ended(self, now_ms: int) -> None:
        """Record the end: all threads are running again, or the application is closing."""
        if self.entries and self.entries[-1].ended_ms is None:
            self.entries[-1] = replace(self.entries[-1], ended_ms=now_ms, after=dict(self._owned))

    def tasks_changed(self, thread: str, tasks: Mapping[str, OwnedTask], now_ms: int) -> None:
        """Record the tasks that a thread owns, by task id; empty if it has ended."""
        owned = _owned_tasks(tasks)
        if owned == self._owned.get(thread, OwnedTasks()):
            return
        if owned == OwnedTasks():
            self._owned.pop(thread, None)
        else:
            self._owned[thread] = owned
        last = self.entries[-1] if self.entries else None
        if last and (last.ended_ms is None or now_ms - last.ended_ms <= _SETTLING_MS):
            self.entries[-1] = replace(last, after=dict(self._owned))


def _owned_tasks(tasks: Mapping[str, OwnedTask]) -> OwnedTasks:
    ids = sorted(tasks, key=lambda task: tuple(map(int, task.split("_"))))
    return OwnedTasks(
        tuple(each for each in ids if not tasks[each].standby),
        tuple(each for each in ids if tasks[each].standby),
    )


class FailureLog:
    """Records errors, and the steps of each failed thread until it is running again.

    Keeps the last 100 failures, each with the last 40 steps and the last 60 lines of its traceback.
    """

    def __init__(self) -> None:
        self._entries: deque[FailureEvent] = deque(maxlen=_MAX_FAILURES)
        self._count = 0

    def add(self, thread: str | None, error: StreamsError, answer: str, now_ms: int) -> None:
        self._count += 1
        stack = traceback_of(error)[-_MAX_STACK_CHARACTERS:]
        self._entries.append(
            FailureEvent(
                number=self._count,
                at_ms=now_ms,
                thread=thread,
                error=type(error).__name__,
                message=error.message[:_MAX_MESSAGE_CHARACTERS],
                place=error.place(),
                answer=answer,
                stack=tuple(stack.rstrip().split("\n")[-_MAX_STACK_LINES:]),
                task=None if error.task_id is None else str(error.task_id),
                node=error.node,
                topic=error.topic,
                partition=error.partition,
                offset=error.offset,
                declared_at=error.declared_at,
            )
        )

    def add_step(self, thread: str, text: str, now_ms: int, *, over: bool = False) -> None:
        """Record a step of a thread; ignored if the thread has not failed."""
        for failure in reversed(self._entries):
            if failure.thread == thread:
                if not failure.over:
                    failure.steps.append(FailureStep(now_ms, text))
                    del failure.steps[:-_MAX_STEPS]
                    failure.over = over
                return

    def all(self) -> list[FailureEvent]:
        """Return copies of the failures, oldest first."""
        return [replace(each, steps=list(each.steps)) for each in self._entries]


class RestoreLog:
    """Tracks restorations in progress, and the last 200 that ended."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str, int, bool], RestoreProgress] = {}
        self._ended: list[RestoreProgress] = []

    def update(self, thread: str, event: RestoreEvent, now_ms: int) -> None:
        standby = event.step.is_standby
        key = (thread, event.topic_partition.topic, event.topic_partition.partition, standby)
        if event.step in _STARTS:
            self._end(key, "suspended", now_ms)
            self._open[key] = _new_entry(thread, event, now_ms)
            return
        found = self._open.get(key)
        if found is None:
            return
        found.told_ms = now_ms
        if event.step in _BATCHES:
            found.at = event.offset + 1
            found.end = max(event.end_offset, found.at)
            found.records += event.records
        elif event.step is RestoreStep.END:
            found.at = found.end = max(found.end, event.end_offset)
            found.records = event.records
            self._end(key, "done", now_ms)
        else:
            is_promoted = event.step is RestoreStep.STANDBY_PROMOTED
            self._end(key, "done" if is_promoted else "suspended", now_ms)

    def thread_ended(self, thread: str, now_ms: int) -> None:
        for key in [key for key in self._open if key[0] == thread]:
            self._end(key, "suspended", now_ms)

    def all(self) -> list[RestoreProgress]:
        """Return copies of all entries: those in progress, then ended ones, newest first."""
        return [replace(each) for each in (*self._open.values(), *reversed(self._ended))]

    def _end(self, key: tuple[str, str, int, bool], how: RestoreState, now_ms: int) -> None:
        found = self._open.pop(key, None)
        if found is None:
            return
        found.state = how
        found.told_ms = now_ms
        self._ended.append(found)
        del self._ended[:-_MAX_ENDED]


def _new_entry(thread: str, event: RestoreEvent, now_ms: int) -> RestoreProgress:
    start = max(event.offset, 0)
    kind: RestoreKind = "standby" if event.step.is_standby else "active"
    if event.task_id.subtopology < 0:
        kind = "global"
    return RestoreProgress(
        store=event.store,
        topic=event.topic_partition.topic,
        partition=event.topic_partition.partition,
        task=str(event.task_id),
        thread=thread,
        kind=kind,
        start=start,
        at=start,
        end=max(event.end_offset, start),
        records=0,
        state="running",
        began_ms=now_ms,
        told_ms=now_ms,
    )


@dataclass(frozen=True, slots=True)
class EventLogSnapshot:
    """An immutable snapshot of the event log. Most entries are ordered oldest first.

    `restores` contains the restorations in progress, followed by the ended ones, newest first.
    `history` contains the records per second over the last 5 minutes.
    """

    states: tuple[StateChange, ...]
    rebalances: tuple[RebalanceEvent, ...]
    failures: tuple[FailureEvent, ...]
    restores: tuple[RestoreProgress, ...]
    rates: Mapping[tuple[str, str], float]
    history: tuple[int, ...]


class EventLog:
    """Records the latest events of each kind in an application instance.

    Events must be added in order. Thread-safe.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._states: deque[StateChange] = deque(maxlen=_MAX_STATES)
        self._rebalances = RebalanceLog()
        self._failures = FailureLog()
        self._restores = RestoreLog()
        self._throughput = Throughput()

    def state_changed(self, new: ClientState, old: ClientState, why: str) -> None:
        with self._lock:
            now_ms = self._clock.now_ms()
            self._states.append(StateChange(now_ms, old.name, new.name, why))
            if new is ClientState.REBALANCING:
                self._rebalances.began(now_ms, why)
            else:
                self._rebalances.ended(now_ms)

    def thread_state_changed(self, thread: str, state: ThreadState, why: str) -> None:
        with self._lock:
            now_ms = self._clock.now_ms()
            runs = state is ThreadState.RUNNING
            self._failures.add_step(thread, f"{state.name}: {why}", now_ms, over=runs)
            if state is ThreadState.DEAD:
                self._rebalances.tasks_changed(thread, {}, now_ms)
            if state in INACTIVE_STATES:
                self._restores.thread_ended(thread, now_ms)
                self._throughput.thread_ended(thread)

    def tasks_changed(self, thread: str, tasks: Mapping[str, OwnedTask]) -> None:
        with self._lock:
            self._rebalances.tasks_changed(thread, tasks, self._clock.now_ms())

    def records_processed(self, thread: str, tasks: Mapping[str, int]) -> None:
        """Record how many records the tasks of a thread have processed in total."""
        with self._lock:
            self._throughput.update(thread, tasks, self._clock.monotonic_ms())

    def restore_progressed(self, thread: str, event: RestoreEvent) -> None:
        with self._lock:
            self._restores.update(thread, event, self._clock.now_ms())

    def add_failure(self, thread: str | None, error: StreamsError, answer: str) -> None:
        """Record an error of a thread or listener, and the response."""
        with self._lock:
            self._failures.add(thread, error, answer, self._clock.now_ms())

    def add_step(self, thread: str, text: str) -> None:
        """Record a step of a thread; ignored if the thread has not failed."""
        with self._lock:
            self._failures.add_step(thread, text, self._clock.now_ms())

    def snapshot(self) -> EventLogSnapshot:
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            return EventLogSnapshot(
                tuple(self._states),
                tuple(self._rebalances.entries),
                tuple(self._failures.all()),
                tuple(self._restores.all()),
                self._throughput.rates(now_ms),
                tuple(self._throughput.history(now_ms)),
            )
