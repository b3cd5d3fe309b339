"""What is measured of one task, by Kafka Streams' names."""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple, Protocol

from millstream.clock import Clock
from millstream.metrics.registry import Labels, Recording, RecordingLevel, Scope
from millstream.metrics.sensors import Sensor, part_of
from millstream.metrics.user import ContextMetrics
from millstream.record import TaskId, TopicPartition
from millstream.state.task_stores import TaskStores

TASK_GROUP: Final = "stream-task-metrics"
_DEBUG: Final = RecordingLevel.DEBUG


class ThreadSensors(NamedTuple):
    """Sensors of the thread that its tasks tell as well.

    Args:
        processing: for how long tasks processed, in milliseconds.
        punctuated: how long calls by time took.
    """

    processing: Sensor
    punctuated: Sensor


class Watched(Protocol):
    """A task, of which some things are looked up when somebody asks."""

    @property
    def buffered(self) -> int:
        """How many records wait."""
        ...

    @property
    def stores(self) -> TaskStores:
        """Its stores."""
        ...


class TaskMeters:
    """The sensors of a task, and the scope that its nodes and stores add theirs to.

    Follows `TaskMetrics` of Kafka Streams, but that `process-rate` and `process-total` are there
    without asking: they are counted by batch.

    Args:
        task_id: the task.
        clock: time.
        recording: how metrics are recorded.
        labels: of the thread.
        thread: its sensors; None where there is no thread.

    Attributes:
        scope: all metrics of the task.
        view: the same, as user code has them.
        dropped: records that were left out on purpose.
        lateness: by how much records come after the stream time, in milliseconds.
        restored: records restored.
        updated: records with which it was kept up to date as a standby.
        remaining: of each changelog that is restored how many records are left.
    """

    def __init__(
        self,
        task_id: TaskId,
        clock: Clock,
        recording: Recording | None = None,
        labels: Labels = (),
        thread: ThreadSensors | None = None,
    ) -> None:
        scope = Scope(clock, recording, (*labels, ("task-id", str(task_id))))
        self.scope = scope
        self.view = ContextMetrics(scope)
        self.dropped = scope.rate_and_total(TASK_GROUP, "dropped-records")
        self._thread = thread
        # Of records how many milliseconds they took.
        self._processing = scope.sensor()
        scope.gauge(TASK_GROUP, "process-rate", self._processing.count_rate)
        scope.gauge(TASK_GROUP, "process-total", lambda: self._processing.count)
        if thread is not None:
            ratio = partial(part_of, self._processing, thread.processing)
            scope.gauge(TASK_GROUP, "active-process-ratio", ratio)
        if scope.records(_DEBUG):
            scope.add(TASK_GROUP, "process-latency-avg", self._processing.average)
            scope.add(TASK_GROUP, "process-latency-max", self._processing.highest)

        self._punctuated = scope.average_and_highest(TASK_GROUP, "punctuate-latency", _DEBUG)
        scope.gauge(TASK_GROUP, "punctuate-rate", self._punctuated.count_rate, _DEBUG)
        scope.gauge(TASK_GROUP, "punctuate-total", lambda: self._punctuated.count, _DEBUG)
        self.lateness = scope.average_and_highest(TASK_GROUP, "record-lateness", _DEBUG)
        self.restored = scope.rate_and_total(TASK_GROUP, "restore", _DEBUG)
        self.updated = scope.rate_and_total(TASK_GROUP, "update", _DEBUG)
        self.remaining: dict[TopicPartition, int] = {}
        scope.gauge(
            TASK_GROUP, "restore-remaining-records-total", lambda: sum(self.remaining.values())
        )

    def watch(self, task: Watched) -> None:
        """Look up what is not told: what waits, and what caches hold."""
        self.scope.gauge(TASK_GROUP, "active-buffer-count", lambda: task.buffered, _DEBUG)
        self.scope.gauge(
            TASK_GROUP,
            "cache-size-bytes-total",
            lambda: sum(cache.size_bytes for cache in task.stores.caches().values()),
            _DEBUG,
        )

    def punctuated(self, took_ms: int) -> None:
        """A processor was called by time."""
        self._punctuated.record(took_ms)
        if self._thread is not None:
            self._thread.punctuated.record(took_ms)

    def processed(self, now_ms: int, count: int, took_ms: int) -> None:
        """A batch was processed.

        Args:
            now_ms: when that was done, by the clock that never goes back.
            count: how many records it was.
            took_ms: how long it took.
        """
        self._processing.record_shared(now_ms, count, took_ms)
