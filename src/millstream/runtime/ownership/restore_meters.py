"""What is measured of restoring, by the names of Kafka Streams' state updater and tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from millstream.metrics.registry import Scope
from millstream.metrics.sensors import Sensor, part_of
from millstream.record import TaskId, TopicPartition
from millstream.runtime.control import RestoreEvent, RestoreStep
from millstream.runtime.task.task_meters import TaskMeters

UPDATER_GROUP: Final = "stream-state-updater-metrics"

_BEGINS: Final = frozenset({RestoreStep.START, RestoreStep.STANDBY_START})
_GOES_ON: Final = frozenset({RestoreStep.BATCH, RestoreStep.STANDBY_BATCH})


class RestoreMeters:
    """Follows the restorations of a thread, and hands on what it was told of them.

    What a thread of its own does in Kafka Streams, its state updater, the stream thread does here
    between its batches: the ratios are parts of the thread's time.

    Args:
        scope: of the thread.
        rounds: how long the rounds of the thread's loop took.
        took: for how long active tasks were restored, and standbys (True) kept up to date.
        task: the meters of a task, if the thread owns it.
        is_paused: whether the thread is paused.
        then: is told of each event as well.
    """

    def __init__(
        self,
        scope: Scope,
        rounds: Sensor,
        took: Mapping[bool, Sensor],
        task: Callable[[TaskId], TaskMeters | None],
        is_paused: Callable[[], bool],
        then: Callable[[RestoreEvent], None],
    ) -> None:
        self._rounds = rounds
        self._task = task
        self._then = then
        self._reading: dict[TopicPartition, tuple[TaskId, bool]] = {}
        self._records, self._calls = scope.sensor(), scope.sensor()
        self._took = took
        for name, standby, paused in (
            ("active-restoring-tasks", False, False),
            ("active-paused-tasks", False, True),
            ("standby-updating-tasks", True, False),
            ("standby-paused-tasks", True, True),
        ):
            count = partial(self._count, standby)
            read = partial(_if_so, is_paused, paused, count)
            scope.gauge(UPDATER_GROUP, name, read)
        scope.gauge(UPDATER_GROUP, "active-restore-ratio", partial(self._ratio, False))
        scope.gauge(UPDATER_GROUP, "standby-update-ratio", partial(self._ratio, True))
        scope.gauge(UPDATER_GROUP, "idle-ratio", lambda: 1 - self._ratio(False) - self._ratio(True))
        scope.gauge(UPDATER_GROUP, "restore-records-rate", self._records.rate)
        scope.gauge(UPDATER_GROUP, "restore-call-rate", self._calls.count_rate)

    def __call__(self, event: RestoreEvent) -> None:
        """Something was restored."""
        self._then(event)
        step, place = event.step, event.place
        task = self._task(event.task_id)
        if step in _BEGINS:
            self._reading[place] = (event.task_id, step.is_of_standby)
            if task is not None and not step.is_of_standby:
                task.remaining[place] = max(0, event.end_offset - event.offset)
        elif step in _GOES_ON:
            self._records.record_many(event.records, event.records, 0, 0)
            self._calls.record()
            if task is not None:
                sensor = task.updated if step.is_of_standby else task.restored
                sensor.record_many(event.records, event.records, 0, 0)
                if not step.is_of_standby:
                    task.remaining[place] = max(0, event.end_offset - event.offset - 1)
        else:
            self._reading.pop(place, None)
            if task is not None:
                task.remaining.pop(place, None)

    def _count(self, standby: bool) -> int:
        return len({task_id for task_id, of in self._reading.values() if of is standby})

    def _ratio(self, standby: bool) -> float:
        return part_of(self._took[standby], self._rounds)


def _if_so(is_paused: Callable[[], bool], paused: bool, count: Callable[[], int]) -> int:
    return count() if is_paused() is paused else 0
