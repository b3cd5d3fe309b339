"""Samples the load of an instance from the reports of its threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from millstream.application.autoscaling.policy import LoadSample
from millstream.application.event_log.event_types import RestoreProgress
from millstream.metrics.values import Metric
from millstream.runtime.loop.thread_meters import CONSUMER_GROUP, THREAD_GROUP
from millstream.runtime.states.thread_states import OwnedTask, ThreadState
from millstream.runtime.task.task_meters import TASK_GROUP

#: The state of each thread, and its tasks by id.
ThreadSnapshot = Mapping[str, tuple[ThreadState, Mapping[str, OwnedTask]]]

N = TypeVar("N", int, float)

_SETTLED = frozenset({"RUNNING", "STANDBY"})


@dataclass(slots=True)
class _ThreadLoad:
    """The load of a thread according to its latest report."""

    poll_ratio: float = 1.0
    #: The number of processed records by task.
    processed: Counter[str] = field(default_factory=Counter)
    #: The number of waiting records by task.
    lags: Counter[str] = field(default_factory=Counter)
    #: The share of each task in the thread's busy time.
    shares: dict[str, float] = field(default_factory=dict)

    @property
    def busy(self) -> float:
        return 1.0 - self.poll_ratio


class LoadSampler:
    """Creates samples from states and metrics. Not thread-safe.

    Args:
        warm_lag: the maximum lag of a standby that counts as caught up.
        removal_obstacle: see `LoadSample`.
    """

    def __init__(
        self, slot_timeout_ms: int, warm_lag: int, removal_obstacle: Callable[[Iterable[str]], str]
    ) -> None:
        self._slot_timeout_ms = slot_timeout_ms
        self._warm_lag = warm_lag
        self._removal_obstacle = removal_obstacle
        self._processed: dict[tuple[str, str], int] = {}
        self._totals: Counter[str] = Counter()
        self._waiting_since_ms: dict[str, int] = {}

    def sample(
        self,
        now_ms: int,
        threads: ThreadSnapshot,
        leaving: frozenset[str],
        metrics: Mapping[str, Iterable[Metric]],
        restores: Iterable[RestoreProgress],
        *,
        paused: bool,
    ) -> LoadSample:
        """Return the current load. `now_ms` is monotonic."""
        staying = {name: each for name, each in threads.items() if name not in leaving}
        loads = {name: _thread_load(metrics.get(name, ())) for name in staying}
        self._add_processed(loads)
        lagging = {
            name: sum(1 for lag in one.lags.values() if lag > 0) for name, one in loads.items()
        }
        return LoadSample(
            now_ms=now_ms,
            threads=len(staying),
            overdue=len(self.overdue(now_ms, staying)),
            blocked_by=self._blocked_by(staying, leaving & threads.keys(), restores, paused=paused),
            tasks=sum(len(_active(tasks)) for _, tasks in staying.values()),
            shares=any(
                lagging[name] and len(_active(tasks)) > 1 for name, (_, tasks) in staying.items()
            ),
            lags=_by_subtopology(one.lags for one in loads.values()),
            processed=dict(self._totals),
            busy=sum(one.busy for one in loads.values()),
            max_busy=max((one.busy for one in loads.values()), default=0.0),
            work=_by_subtopology(
                {task: one.busy * share for task, share in one.shares.items()}
                for one in loads.values()
            ),
            removal_obstacle=self._removal_obstacle(staying),
        )

    def overdue(self, now_ms: int, threads: ThreadSnapshot) -> list[str]:
        """Return the threads that have waited too long for a slot."""
        waiting = {name for name, (state, _) in threads.items() if state is ThreadState.CREATED}
        since_ms = {name: self._waiting_since_ms.get(name, now_ms) for name in waiting}
        self._waiting_since_ms = since_ms
        return [name for name in waiting if now_ms - since_ms[name] >= self._slot_timeout_ms]

    def _blocked_by(
        self,
        threads: ThreadSnapshot,
        leaving: Iterable[str],
        restores: Iterable[RestoreProgress],
        *,
        paused: bool,
    ) -> str:
        if paused:
            return "the application is paused"
        if closing := sorted(leaving):
            return f"{len(closing)} threads are closing"
        states = Counter(state.name for state, _ in threads.values())
        if any(state != "RUNNING" for state in states):
            return "not all threads are running: " + _format_counts(states)
        tasks = Counter(task.state for _, each in threads.values() for task in each.values())
        if any(state not in _SETTLED for state in tasks):
            return "not all tasks are running: " + _format_counts(tasks)
        behind = [
            each.end - each.at
            for each in restores
            if each.kind == "standby" and each.state == "running"
        ]
        if max(behind, default=0) > self._warm_lag:
            return f"a standby is catching up: it is {max(behind):,} records behind"
        return ""

    def _add_processed(self, loads: Mapping[str, _ThreadLoad]) -> None:
        processed = {
            (name, task): total
            for name, one in loads.items()
            for task, total in one.processed.items()
        }
        for key, total in processed.items():
            before = self._processed.get(key, 0)
            # The total of a task that was moved to a thread, or back to it, starts at zero.
            increase = total - before if total >= before else total
            self._totals[_subtopology_of(key[1])] += increase
        self._processed = processed


def _thread_load(metrics: Iterable[Metric]) -> _ThreadLoad:
    loads = _ThreadLoad()
    for one in metrics:
        if isinstance(one.value, str) or one.value != one.value:
            continue
        if one.group == CONSUMER_GROUP and one.name == "records-lag":
            loads.lags[one.labels["task-id"]] += int(one.value)
        elif one.group == TASK_GROUP and one.name == "process-total":
            loads.processed[one.labels["task-id"]] += int(one.value)
        elif one.group == TASK_GROUP and one.name == "active-process-ratio":
            loads.shares[one.labels["task-id"]] = float(one.value)
        elif one.group == THREAD_GROUP and one.name == "poll-ratio":
            loads.poll_ratio = float(one.value)
    return loads


def _by_subtopology(numbers: Iterable[Mapping[str, N]]) -> dict[str, N]:
    sums: dict[str, N] = {}
    for each in numbers:
        for task, number in each.items():
            subtopology = _subtopology_of(task)
            sums[subtopology] = sums[subtopology] + number if subtopology in sums else number
    return sums


def _subtopology_of(task: str) -> str:
    return task.split("_")[0]


def _active(tasks: Mapping[str, OwnedTask]) -> list[str]:
    return [task_id for task_id, task in tasks.items() if not task.standby]


def _format_counts(states: Counter[str]) -> str:
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
