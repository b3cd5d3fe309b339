"""How things are with the threads of an instance: what is decided from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from millstream.application.elastic.decisions import Look
from millstream.application.story.events import Restore
from millstream.metrics.values import Metric
from millstream.runtime.loop.thread_meters import CONSUMER_GROUP, THREAD_GROUP
from millstream.runtime.states import OwnedTask, ThreadState
from millstream.runtime.task.task_meters import TASK_GROUP

#: Thread → its state, and its tasks by id.
Threads = Mapping[str, tuple[ThreadState, Mapping[str, OwnedTask]]]

N = TypeVar("N", int, float)

_SETTLED = frozenset({"RUNNING", "STANDBY"})


@dataclass(slots=True)
class _Told:
    """What a thread has told of itself last."""

    polls: float = 1.0
    #: By task.
    processed: Counter[str] = field(default_factory=Counter)
    lags: Counter[str] = field(default_factory=Counter)
    #: By task, the part of the time with work that it took.
    shares: dict[str, float] = field(default_factory=dict)

    @property
    def busy(self) -> float:
        """The part of its time that it spends with work."""
        return 1.0 - self.polls


class Looking:
    """Makes a `Look` of what is known. Called by one thread at a time.

    Args:
        slot_patience_ms: how long a thread may wait for a slot.
        warm_lag: how many records a copy of state may be behind that counts as warm.
        alone: tells why no thread can go without its state being rebuilt elsewhere.
    """

    def __init__(
        self, slot_patience_ms: int, warm_lag: int, alone: Callable[[Iterable[str]], str]
    ) -> None:
        self._slot_patience_ms = slot_patience_ms
        self._warm_lag = warm_lag
        self._alone = alone
        self._processed: dict[tuple[str, str], int] = {}
        self._totals: Counter[str] = Counter()
        self._waiting_since_ms: dict[str, int] = {}

    def look(
        self,
        now_ms: int,
        threads: Threads,
        leaving: frozenset[str],
        metrics: Mapping[str, Iterable[Metric]],
        restores: Iterable[Restore],
        *,
        paused: bool,
    ) -> Look:
        """How things are now.

        Args:
            now_ms: of a clock that never goes back.
            threads: all of the instance.
            leaving: those that are to go.
            metrics: what each thread has told last.
            restores: copies of state that are read, or were.
            paused: whether the application is.
        """
        staying = {name: each for name, each in threads.items() if name not in leaving}
        told = {name: _told(metrics.get(name, ())) for name in staying}
        self._count(told)
        lagging = {
            name: sum(1 for lag in one.lags.values() if lag > 0) for name, one in told.items()
        }
        return Look(
            now_ms=now_ms,
            threads=len(staying),
            late=len(self.late(now_ms, staying)),
            unsettled=self._unsettled(staying, leaving & threads.keys(), restores, paused=paused),
            tasks=sum(len(_active(tasks)) for _, tasks in staying.values()),
            shares=any(
                lagging[name] and len(_active(tasks)) > 1 for name, (_, tasks) in staying.items()
            ),
            lags=_by_part(one.lags for one in told.values()),
            processed=dict(self._totals),
            busy=sum(one.busy for one in told.values()),
            fullest=max((one.busy for one in told.values()), default=0.0),
            work=_by_part(
                {task: one.busy * share for task, share in one.shares.items()}
                for one in told.values()
            ),
            alone=self._alone(staying),
        )

    def late(self, now_ms: int, threads: Threads) -> list[str]:
        """Those that have waited for a slot for too long."""
        waiting = {name for name, (state, _) in threads.items() if state is ThreadState.CREATED}
        since_ms = {name: self._waiting_since_ms.get(name, now_ms) for name in waiting}
        self._waiting_since_ms = since_ms
        return [name for name in waiting if now_ms - since_ms[name] >= self._slot_patience_ms]

    def _unsettled(
        self,
        threads: Threads,
        leaving: Iterable[str],
        restores: Iterable[Restore],
        *,
        paused: bool,
    ) -> str:
        if paused:
            return "the application is paused"
        if closing := sorted(leaving):
            return f"{len(closing)} threads close"
        states = Counter(state.name for state, _ in threads.values())
        if any(state != "RUNNING" for state in states):
            return "not all threads run: " + _counted(states)
        tasks = Counter(task.state for _, each in threads.values() for task in each.values())
        if any(state not in _SETTLED for state in tasks):
            return "not all tasks run: " + _counted(tasks)
        behind = [
            each.end - each.at
            for each in restores
            if each.kind == "standby" and each.state == "running"
        ]
        if max(behind, default=0) > self._warm_lag:
            return f"a copy of state warms up: it is {max(behind):,} records behind"
        return ""

    def _count(self, told: Mapping[str, _Told]) -> None:
        processed = {
            (name, task): total
            for name, one in told.items()
            for task, total in one.processed.items()
        }
        for key, total in processed.items():
            before = self._processed.get(key, 0)
            # A task that has come to a thread, or back to it, counts from zero.
            grown = total - before if total >= before else total
            self._totals[_part_of(key[1])] += grown
        self._processed = processed


def _told(metrics: Iterable[Metric]) -> _Told:
    told = _Told()
    for one in metrics:
        if isinstance(one.value, str) or one.value != one.value:
            continue
        if one.group == CONSUMER_GROUP and one.name == "records-lag":
            told.lags[one.labels["task-id"]] += int(one.value)
        elif one.group == TASK_GROUP and one.name == "process-total":
            told.processed[one.labels["task-id"]] += int(one.value)
        elif one.group == TASK_GROUP and one.name == "active-process-ratio":
            told.shares[one.labels["task-id"]] = float(one.value)
        elif one.group == THREAD_GROUP and one.name == "poll-ratio":
            told.polls = float(one.value)
    return told


def _by_part(numbers: Iterable[Mapping[str, N]]) -> dict[str, N]:
    """Numbers of tasks, added up by sub-topology."""
    sums: dict[str, N] = {}
    for each in numbers:
        for task, number in each.items():
            part = _part_of(task)
            sums[part] = sums[part] + number if part in sums else number
    return sums


def _part_of(task: str) -> str:
    """The number of a task's sub-topology."""
    return task.split("_")[0]


def _active(tasks: Mapping[str, OwnedTask]) -> list[str]:
    return [task_id for task_id, task in tasks.items() if not task.standby]


def _counted(states: Counter[str]) -> str:
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
