"""Reports the restoration events that the driver needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from millstream.clock import Clock
from millstream.metrics.registry import MetricsScope
from millstream.metrics.sensors import Sensor, window_share
from millstream.record import TaskId, TopicPartition
from millstream.runtime.task.task_meters import TaskMeters
from millstream.runtime.thread_control import Control, RestoreEvent, RestoreStep

#: The update interval of progress bars.
_PROGRESS_BAR_INTERVAL_MS: Final = 200
#: The update interval of the event log.
_EVENT_LOG_INTERVAL_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class RestoreReportOptions:
    """The receivers of restore events in the driver.

    The driver always receives the start and the end of a restoration.
    """

    #: Whether a listener needs every batch of active tasks and global stores.
    restore_listener: bool = False
    #: Whether a listener needs every batch of standbys.
    standby_listener: bool = False
    #: Whether a terminal shows the progress of long restorations.
    progress_bars: bool = False
    #: Whether the event log shows the progress of all stores, including standbys.
    event_log: bool = False


class RestoreReports:
    """Receives all restore events and reports those that the driver needs."""

    def __init__(self, control: Control, options: RestoreReportOptions, clock: Clock) -> None:
        self._control = control
        self._options = options
        self._clock = clock
        self._reported_ms: dict[TopicPartition, int] = {}

    def __call__(self, event: RestoreEvent) -> None:
        if self._is_needed(event):
            self._control.report(event)

    def _is_needed(self, event: RestoreEvent) -> bool:
        options = self._options
        if event.step is RestoreStep.STANDBY_BATCH:
            return options.standby_listener or (
                options.event_log and self._is_due(event, _EVENT_LOG_INTERVAL_MS)
            )
        if event.step is not RestoreStep.BATCH:
            self._reported_ms.pop(event.topic_partition, None)
            return True
        if options.restore_listener:
            return True
        if options.progress_bars:
            return self._is_due(event, _PROGRESS_BAR_INTERVAL_MS)
        return options.event_log and self._is_due(event, _EVENT_LOG_INTERVAL_MS)

    def _is_due(self, event: RestoreEvent, every_ms: int) -> bool:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._reported_ms.get(event.topic_partition, now_ms - every_ms) < every_ms:
            return False
        self._reported_ms[event.topic_partition] = now_ms
        return True


UPDATER_GROUP: Final = "stream-state-updater-metrics"

_START_STEPS: Final = frozenset({RestoreStep.START, RestoreStep.STANDBY_START})
_BATCH_STEPS: Final = frozenset({RestoreStep.BATCH, RestoreStep.STANDBY_BATCH})


class RestoreMeters:
    """Updates the restoration metrics of a thread, and forwards the events.

    In Kafka Streams, the state updater is a separate thread. Here, restoration runs on the stream
    thread between its batches, so the ratios are fractions of the thread's time: `took` contains
    the durations of restoring active tasks (False) and updating standbys (True).
    """

    def __init__(
        self,
        scope: MetricsScope,
        rounds: Sensor,
        took: Mapping[bool, Sensor],
        task: Callable[[TaskId], TaskMeters | None],
        is_paused: Callable[[], bool],
        listener: Callable[[RestoreEvent], None],
    ) -> None:
        self._rounds = rounds
        self._task = task
        self._listener = listener
        self._reading: dict[TopicPartition, tuple[TaskId, bool]] = {}
        self._records, self._calls = scope.sensor(), scope.sensor()
        self._durations = took
        self._is_paused = is_paused
        for name, standby, paused in (
            ("active-restoring-tasks", False, False),
            ("active-paused-tasks", False, True),
            ("standby-updating-tasks", True, False),
            ("standby-paused-tasks", True, True),
        ):
            scope.gauge(UPDATER_GROUP, name, partial(self._count, standby, paused))
        scope.gauge(UPDATER_GROUP, "active-restore-ratio", partial(self._ratio, False))
        scope.gauge(UPDATER_GROUP, "standby-update-ratio", partial(self._ratio, True))
        scope.gauge(UPDATER_GROUP, "idle-ratio", lambda: 1 - self._ratio(False) - self._ratio(True))
        scope.gauge(UPDATER_GROUP, "restore-records-rate", self._records.rate)
        scope.gauge(UPDATER_GROUP, "restore-call-rate", self._calls.count_rate)

    def __call__(self, event: RestoreEvent) -> None:
        self._listener(event)
        step, partition = event.step, event.topic_partition
        task = self._task(event.task_id)
        if step in _START_STEPS:
            self._reading[partition] = (event.task_id, step.is_standby)
            if task is not None and not step.is_standby:
                task.remaining[partition] = max(0, event.end_offset - event.offset)
        elif step in _BATCH_STEPS:
            self._records.record_many(event.records, event.records, 0, 0)
            self._calls.record()
            if task is not None:
                sensor = task.updated if step.is_standby else task.restored
                sensor.record_many(event.records, event.records, 0, 0)
                if not step.is_standby:
                    task.remaining[partition] = max(0, event.end_offset - event.offset - 1)
        else:
            self._reading.pop(partition, None)
            if task is not None:
                task.remaining.pop(partition, None)

    def _count(self, standby: bool, paused: bool) -> int:
        if self._is_paused() is not paused:
            return 0
        return len({task_id for task_id, of in self._reading.values() if of is standby})

    def _ratio(self, standby: bool) -> float:
        return window_share(self._durations[standby], self._rounds)
