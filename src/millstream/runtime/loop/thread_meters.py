"""What is measured of one stream thread, by Kafka Streams' names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from millstream.clock import Clock
from millstream.kafka.data.record_columns import RecordColumns
from millstream.metrics.registry import Labels, Recording, Scope
from millstream.metrics.sensors import Sensor, part_of
from millstream.record import TaskId, TopicPartition
from millstream.runtime.loop.rebalances import OwnershipChange
from millstream.runtime.states import ThreadState
from millstream.runtime.task.task_meters import TaskMeters, ThreadSensors
from millstream.runtime.work import Work
from millstream.subscriptions.metrics import LabelledValue

THREAD_GROUP: Final = "stream-thread-metrics"
#: What Kafka Streams has no name for.
OWN_GROUP: Final = "millstream-thread-metrics"
#: Kafka's own of its consumers, of which one is there: how far they lag.
CONSUMER_GROUP: Final = "consumer-fetch-manager-metrics"
#: What subscriptions count, by Decaton's names.
SUBSCRIPTION_GROUP: Final = "subscription-metrics"

#: Follows the order of Kafka Streams' `StreamThread.State`, which is what its metric tells.
THREAD_ORDINALS: Final = {
    ThreadState.CREATED: 0,
    ThreadState.STARTING: 1,
    ThreadState.PARTITIONS_REVOKED: 2,
    ThreadState.PARTITIONS_ASSIGNED: 3,
    ThreadState.RUNNING: 4,
    ThreadState.PENDING_SHUTDOWN: 5,
    ThreadState.DEAD: 6,
}


class ThreadMeters:
    """The sensors of a stream thread, and the metrics of all that it owns.

    Follows `ThreadMetrics` of Kafka Streams. Told of each once a batch, a poll or a commit. What it
    has is read on the thread's loop.

    Args:
        name: the thread's name.
        clock: time.
        recording: how metrics are recorded.

    Attributes:
        scope: all metrics of the thread.
        committed: how long commits took, in milliseconds.
    """

    def __init__(self, name: str, clock: Clock, recording: Recording | None = None) -> None:
        scope = Scope(clock, recording, (("thread-id", name),))
        self.scope = scope
        self._clock = clock
        #: Whether the thread is paused.
        self.paused = False
        self._state = ThreadState.CREATED
        self._rounds = scope.sensor()
        self._round_ms = clock.monotonic_ms()
        self._polled = self._timed("poll")
        self._poll_records = scope.average_and_highest(THREAD_GROUP, "poll-records")
        # Of batches how many records they were, and of records how many milliseconds they took.
        self._batches = scope.average_and_highest(THREAD_GROUP, "process-records")
        scope.gauge(THREAD_GROUP, "process-rate", self._batches.rate)
        scope.gauge(THREAD_GROUP, "process-total", lambda: self._batches.total)
        self._processing = scope.average_and_highest(THREAD_GROUP, "process-latency")
        self._add_ratio("process", self._processing)
        self._punctuated = self._timed("punctuate")
        self.committed = self._timed("commit")
        self._created = scope.rate_and_total(THREAD_GROUP, "task-created")
        self._closed = scope.rate_and_total(THREAD_GROUP, "task-closed")
        started_ms = clock.now_ms()
        scope.gauge(THREAD_GROUP, "thread-start-time", lambda: started_ms)
        scope.gauge(THREAD_GROUP, "state", lambda: self._state.name)
        scope.gauge(THREAD_GROUP, "thread-state", lambda: THREAD_ORDINALS[self._state])
        self._rebalanced = {
            what: scope.average_and_highest(THREAD_GROUP, f"tasks-{what}-latency")
            for what in ("revoked", "assigned", "lost")
        }
        self._tasks = scope.part()
        self._by_id: dict[TaskId, TaskMeters] = {}
        self._known: set[int] = set()
        self._subscription = scope.part()
        self._inputs = scope.part()
        self._lags: dict[Labels, int] = {}
        scope.gauge(OWN_GROUP, "paused", lambda: float(self.paused))
        #: For how long active tasks were restored, and standbys (True) kept up to date.
        self.restoring: dict[bool, Sensor] = {False: scope.sensor(), True: scope.sensor()}
        self._counted: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}

    def _timed(self, what: str) -> Sensor:
        """Of something that the loop does: how often, how long, and for which part of its time."""
        sensor = self.scope.average_and_highest(THREAD_GROUP, f"{what}-latency")
        self.scope.gauge(THREAD_GROUP, f"{what}-rate", sensor.count_rate)
        self.scope.gauge(THREAD_GROUP, f"{what}-total", lambda: sensor.count)
        self._add_ratio(what, sensor)
        return sensor

    def _add_ratio(self, what: str, sensor: Sensor) -> None:
        self.scope.gauge(THREAD_GROUP, f"{what}-ratio", partial(part_of, sensor, self._rounds))

    def state_is(self, state: ThreadState) -> None:
        """The thread has changed its state."""
        self._state = state

    def round_begins(self) -> None:
        """The loop has come round."""
        now_ms = self._clock.monotonic_ms()
        took_ms = now_ms - self._round_ms
        self._rounds.record_at(now_ms, 1, took_ms, took_ms, took_ms)
        self._round_ms = now_ms

    def polled(self, records: Mapping[TopicPartition, RecordColumns], since_ms: int) -> None:
        """Records were asked for.

        Args:
            records: what came.
            since_ms: when that began.
        """
        now_ms = self._clock.monotonic_ms()
        took_ms = now_ms - since_ms
        self._polled.record_at(now_ms, 1, took_ms, took_ms, took_ms)
        count = 0
        for columns in records.values():
            count += len(columns.offsets)
        self._poll_records.record_at(now_ms, 1, count, count, count)

    def processed(self, task: Work, count: int, since_ms: int) -> None:
        """A task has taken a batch.

        Args:
            task: which one.
            count: how many records it was.
            since_ms: when it began.
        """
        now_ms = self._clock.monotonic_ms()
        took_ms = now_ms - since_ms
        self._processing.record_shared(now_ms, count, took_ms)
        if count:
            self._batches.record_at(now_ms, 1, count, count, count)
        task.meters.processed(now_ms, count, took_ms)

    @property
    def of_tasks(self) -> ThreadSensors:
        """What tasks tell."""
        return ThreadSensors(self._processing, self._punctuated)

    @property
    def rounds(self) -> Sensor:
        """How long the rounds of the loop took, in milliseconds."""
        return self._rounds

    def task(self, task_id: TaskId) -> TaskMeters | None:
        """Those of a task, if the thread owns it."""
        return self._by_id.get(task_id)

    def changed(self, change: OwnershipChange, since_ms: int) -> None:
        """Tasks were given up or taken over.

        Args:
            change: what happened.
            since_ms: when it began.
        """
        took_ms = self._clock.monotonic_ms() - since_ms
        if change.lost:
            self._rebalanced["lost"].record(took_ms)
        elif change.revoked:
            self._rebalanced["revoked"].record(took_ms)
        elif change.assigned:
            self._rebalanced["assigned"].record(took_ms)

    def advanced(self, since_ms: int, *, standby: bool) -> None:
        """Tasks that do not process were brought further.

        Args:
            since_ms: when it began.
            standby: whether there were standbys only.
        """
        self.restoring[standby].record(self._clock.monotonic_ms() - since_ms)

    def tasks_are(self, tasks: Sequence[Work]) -> None:
        """The thread owns these: their metrics are seen, those of others no more."""
        self._tasks.retain([task.meters.scope for task in tasks])
        self._by_id = {task.task_id: task.meters for task in tasks}
        known = {id(task) for task in tasks}
        created, closed = len(known - self._known), len(self._known - known)
        self._known = known
        if created:
            self._created.record(created)
        if closed:
            self._closed.record(closed)

    def subscription_is(self, counted: Iterable[LabelledValue]) -> None:
        """What a subscription has counted."""
        values = {(name, labels): value for name, labels, value in counted}
        scope = self._subscription
        for name, labels in self._counted.keys() - values.keys():
            scope.drop(SUBSCRIPTION_GROUP, name, labels)
        new = values.keys() - self._counted.keys()
        self._counted = values
        for name, labels in sorted(new):
            scope.add(SUBSCRIPTION_GROUP, name, partial(self._count_of, (name, labels)), labels)

    def lags_are(self, lags: Iterable[tuple[TaskId, TopicPartition, int]]) -> None:
        """How many records of each input partition of a task are not processed yet."""
        scope, known = self._inputs, self._lags
        self._lags = {
            (("task-id", str(task)), ("topic", p.topic), ("partition", str(p.partition))): lag
            for task, p, lag in lags
        }
        for labels in known.keys() - self._lags.keys():
            scope.drop(CONSUMER_GROUP, "records-lag", labels)
        for labels in sorted(self._lags.keys() - known.keys()):
            scope.add(CONSUMER_GROUP, "records-lag", partial(self._lag_of, labels), labels)

    def _lag_of(self, labels: Labels) -> float:
        return self._lags[labels]

    def _count_of(self, key: tuple[str, tuple[tuple[str, str], ...]]) -> float:
        return self._counted[key]
