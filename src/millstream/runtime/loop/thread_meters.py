"""The metrics of a stream thread, under Kafka Streams' names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from millstream.clock import Clock
from millstream.kafka.clients.record_columns import RecordColumns
from millstream.metrics.registry import Labels, MetricsScope, RecordingSettings
from millstream.metrics.sensors import Sensor, window_share
from millstream.metrics.values import OWN_GROUP
from millstream.record import TaskId, TopicPartition
from millstream.runtime.loop.rebalances import RebalanceResult
from millstream.runtime.states.thread_states import ThreadState
from millstream.runtime.task.error_handling.dead_letters import DeadLetterCounts
from millstream.runtime.task.stream_task import StreamTask
from millstream.runtime.task.task_meters import TaskMeters, ThreadSensors
from millstream.subscriptions.subscription_metrics import LabeledValue

THREAD_GROUP: Final = "stream-thread-metrics"
#: Kafka's consumer metrics, of which only the lag is available.
CONSUMER_GROUP: Final = "consumer-fetch-manager-metrics"
#: The metrics of subscriptions, under Decaton's names.
SUBSCRIPTION_GROUP: Final = "subscription-metrics"

#: The ordinals of Kafka Streams' `StreamThread.State`, which are the values of its state metric.
#: `ThreadState` has the same order.
THREAD_ORDINALS: Final = {state: ordinal for ordinal, state in enumerate(ThreadState)}


class InputLag(NamedTuple):
    """The number of unprocessed records of a task's input partition."""

    task: TaskId
    partition: TopicPartition
    records: int


class ThreadMeters:
    """The sensors of a stream thread, and the metrics of everything that it owns.

    Follows Kafka Streams' `ThreadMetrics`. The sensors are updated once per batch, poll or commit,
    and must be read on the thread's loop. Durations are in milliseconds.
    """

    def __init__(self, name: str, clock: Clock, recording: RecordingSettings | None = None) -> None:
        scope = MetricsScope(clock, recording, (("thread-id", name),))
        self.scope = scope
        self._clock = clock
        #: Whether the thread is paused.
        self.paused = False
        self._state = ThreadState.CREATED
        #: The duration of the loop's rounds.
        self.rounds = scope.sensor()
        self._round_ms = clock.monotonic_ms()
        self._polled = self._timed("poll")
        self._poll_records = scope.average_and_maximum(THREAD_GROUP, "poll-records")
        # The number of records per batch, and the milliseconds per record.
        self._batches = scope.average_and_maximum(THREAD_GROUP, "process-records")
        scope.gauge(THREAD_GROUP, "process-rate", self._batches.rate)
        scope.gauge(THREAD_GROUP, "process-total", lambda: self._batches.total)
        self._processing = scope.average_and_maximum(THREAD_GROUP, "process-latency")
        self._add_ratio("process", self._processing)
        #: The sensors that tasks update.
        self.task_sensors = ThreadSensors(self._processing, self._timed("punctuate"))
        self.committed = self._timed("commit")
        #: Belongs to the thread, so that the counts remain when a task moves.
        self.dead_letters = DeadLetterCounts(scope)
        self._created = scope.rate_and_total(THREAD_GROUP, "task-created")
        self._closed = scope.rate_and_total(THREAD_GROUP, "task-closed")
        started_ms = clock.now_ms()
        scope.gauge(THREAD_GROUP, "thread-start-time", lambda: started_ms)
        scope.gauge(THREAD_GROUP, "state", lambda: self._state.name)
        scope.gauge(THREAD_GROUP, "thread-state", lambda: THREAD_ORDINALS[self._state])
        self._rebalanced = {
            what: scope.average_and_maximum(THREAD_GROUP, f"tasks-{what}-latency")
            for what in ("revoked", "assigned", "lost")
        }
        self._tasks = scope.child()
        self._by_id: dict[TaskId, TaskMeters] = {}
        self._known_tasks: set[int] = set()
        self._subscription = scope.child()
        self._inputs = scope.child()
        self._lags: dict[Labels, int] = {}
        scope.gauge(OWN_GROUP, "paused", lambda: float(self.paused))
        #: The time for restoring active tasks (False) and updating standbys (True).
        self.restoring: dict[bool, Sensor] = {False: scope.sensor(), True: scope.sensor()}
        self._subscription_values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}

    def _timed(self, what: str) -> Sensor:
        """Add the rate, latency and time ratio of an operation; return the sensor."""
        sensor = self.scope.average_and_maximum(THREAD_GROUP, f"{what}-latency")
        self.scope.gauge(THREAD_GROUP, f"{what}-rate", sensor.count_rate)
        self.scope.gauge(THREAD_GROUP, f"{what}-total", lambda: sensor.count)
        self._add_ratio(what, sensor)
        return sensor

    def _add_ratio(self, what: str, sensor: Sensor) -> None:
        self.scope.gauge(THREAD_GROUP, f"{what}-ratio", partial(window_share, sensor, self.rounds))

    def set_state(self, state: ThreadState) -> None:
        self._state = state

    def begin_round(self) -> None:
        now_ms = self._clock.monotonic_ms()
        took_ms = now_ms - self._round_ms
        self.rounds.record_at(now_ms, 1, took_ms, took_ms, took_ms)
        self._round_ms = now_ms

    def record_poll(self, records: Mapping[TopicPartition, RecordColumns], since_ms: int) -> None:
        now_ms = self._clock.monotonic_ms()
        took_ms = now_ms - since_ms
        self._polled.record_at(now_ms, 1, took_ms, took_ms, took_ms)
        count = sum(len(columns.offsets) for columns in records.values())
        self._poll_records.record_at(now_ms, 1, count, count, count)

    def processed(self, task: StreamTask, count: int, since_ms: int) -> None:
        now_ms = self._clock.monotonic_ms()
        took_ms = now_ms - since_ms
        self._processing.record_shared(now_ms, count, took_ms)
        if count:
            self._batches.record_at(now_ms, 1, count, count, count)
        task.meters.processed(now_ms, count, took_ms)

    def task(self, task_id: TaskId) -> TaskMeters | None:
        return self._by_id.get(task_id)

    def record_rebalance(self, change: RebalanceResult, since_ms: int) -> None:
        took_ms = self._clock.monotonic_ms() - since_ms
        if change.lost:
            self._rebalanced["lost"].record(took_ms)
        elif change.revoked:
            self._rebalanced["revoked"].record(took_ms)
        elif change.assigned:
            self._rebalanced["assigned"].record(took_ms)

    def record_restoring(self, since_ms: int, *, standby: bool) -> None:
        self.restoring[standby].record(self._clock.monotonic_ms() - since_ms)

    def set_tasks(self, tasks: Sequence[StreamTask]) -> None:
        self._tasks.retain([task.meters.scope for task in tasks])
        self._by_id = {task.task_id: task.meters for task in tasks}
        known = {id(task) for task in tasks}
        created, closed = len(known - self._known_tasks), len(self._known_tasks - known)
        self._known_tasks = known
        if created:
            self._created.record(created)
        if closed:
            self._closed.record(closed)

    def set_subscription_metrics(self, counted: Iterable[LabeledValue]) -> None:
        values = {(name, labels): value for name, labels, value in counted}
        scope = self._subscription
        for name, labels in self._subscription_values.keys() - values.keys():
            scope.drop(SUBSCRIPTION_GROUP, name, labels)
        new = values.keys() - self._subscription_values.keys()
        self._subscription_values = values
        for name, labels in sorted(new):
            scope.add(SUBSCRIPTION_GROUP, name, partial(self._count_of, (name, labels)), labels)

    def set_lags(self, lags: Iterable[InputLag]) -> None:
        scope, known = self._inputs, self._lags
        self._lags = {
            (
                ("task-id", str(lag.task)),
                ("topic", lag.partition.topic),
                ("partition", str(lag.partition.partition)),
            ): lag.records
            for lag in lags
        }
        for labels in known.keys() - self._lags.keys():
            scope.drop(CONSUMER_GROUP, "records-lag", labels)
        for labels in sorted(self._lags.keys() - known.keys()):
            scope.add(CONSUMER_GROUP, "records-lag", partial(self._lag_of, labels), labels)

    def _lag_of(self, labels: Labels) -> float:
        return self._lags[labels]

    def _count_of(self, key: tuple[str, tuple[tuple[str, str], ...]]) -> float:
        return self._subscription_values[key]


class ConsumerPositions(Protocol):
    """The positions that a consumer returns without a request."""

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record to be returned."""

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """Return the end of the partition at the time of the last fetch."""


def input_lags(consumer: ConsumerPositions, tasks: Iterable[StreamTask]) -> list[InputLag]:
    """Return the number of unprocessed records per partition.

    Buffered records are included. Partitions that have not been fetched yet are omitted. Offsets of
    compacted records and transaction markers count as records, as in Kafka's own lag.
    """
    lags = []
    for task in tasks:
        for partition in sorted(task.partitions):
            at, end = consumer.position(partition), consumer.high_watermark(partition)
            # Positions are negative while a consumer starts without a numeric offset.
            if at is not None and at >= 0 and end is not None:
                unprocessed = max(0, end - at) + task.buffered_in(partition)
                lags.append(InputLag(task.task_id, partition, unprocessed))
    return lags
