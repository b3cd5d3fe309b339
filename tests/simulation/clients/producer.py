"""The data client that writes, on the simulated cluster; its meaning is `RecordProducer`'s.

Records wait a moment, go out in batches, one batch of a partition at a time, and are sent again
until they are acknowledged or too old. A leader knows a batch that it has got already
(`enable.idempotence`). What is on the wire when its process dies arrives all the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError

from millstream.errors import BrokerUnavailableError, IllegalStateError, RecordRefusedError
from millstream.kafka.data.delivery import Deliveries
from millstream.kafka.data.producer_errors import Changelog
from millstream.kafka.data.watch import Watch
from millstream.kafka.partitioner import partition_for
from millstream.record import Headers, TopicPartition
from simulation.broker.cluster import Cluster
from simulation.broker.log import LogError, PartitionLog, Row
from simulation.clients.requests import Asking
from simulation.scheduler import Process

_CLOSE_TIMEOUT_MS: Final = 10_000
_PURGE_TIMEOUT_MS: Final = 1_000
_RETRY_US: Final = 100_000
_MOST_WAITING: Final = 3_000
_FULL_POLL_US: Final = 10_000
#: Of the records that somebody watches.
_REFUSED: Final = 0.02
#: What librdkafka makes of what a leader says; None if it tries again.
_CODES: Final = {
    "INVALID_PRODUCER_EPOCH": KafkaError.INVALID_PRODUCER_EPOCH,
    "PRODUCER_FENCED": KafkaError.INVALID_PRODUCER_EPOCH,
    "OUT_OF_ORDER_SEQUENCE_NUMBER": KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    "CONCURRENT_TRANSACTIONS": None,
}


class Batch:
    """Records of one partition on their way.

    Args:
        place: where they go.
        rows: the records.
        made_us: when the first of them was handed over.
    """

    def __init__(self, place: TopicPartition, rows: Sequence[Row], made_us: int) -> None:
        self.place = place
        self.rows = rows
        self.made_us = made_us
        self.producer_id = -1
        self.epoch = -1
        self.sequence = -1
        self.attempts = 0
        self.on_wire = False


class SimulatedProducer:
    """Writes records in order, partition by partition.

    Args:
        cluster: the cluster.
        process: whose it is.
        settings: librdkafka's.
        task_timeout_ms: how long a send waits for room.
    """

    def __init__(
        self,
        cluster: Cluster,
        process: Process,
        settings: Mapping[str, Any],
        task_timeout_ms: int,
    ) -> None:
        self._asking = Asking(cluster, process)
        self._cluster = cluster
        self._scheduler = cluster.scheduler
        self._process = process
        # librdkafka lets no record outlive its transaction.
        timeout_ms = settings.get("delivery.timeout.ms") or settings["transaction.timeout.ms"]
        self._delivery_us = int(timeout_ms) * 1000
        self._task_timeout_ms = task_timeout_ms
        self.on_wait: Callable[[], None] = lambda: None
        # What waits for others is of no account here: time is.
        self.held_back = 0
        self._deliveries = Deliveries(begins_anew=True)
        self._tracked: set[str] = set()
        self._acked: dict[TopicPartition, int] = {}
        self._waiting: dict[TopicPartition, deque[tuple[int, Row]]] = {}
        self._in_flight: dict[TopicPartition, Batch] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._producer_id = cluster.transactions.new_producer_id()
        self._epoch = -1
        #: Batches of an earlier life are nobody's any more.
        self._life = 0
        self._flushing = cluster.scheduler.director
        self._closed = False

    def track(self, topic: str, changelog: Changelog | None = None) -> None:
        self._tracked.add(topic)
        if changelog is not None:
            self._deliveries.changelogs[topic] = changelog

    def acked_offsets(self) -> dict[TopicPartition, int]:
        return dict(self._acked)

    def send_at_once(self) -> None:
        """Nothing is held back."""

    # --- sending -------------------------------------------------------------------------------

    def send_many(
        self,
        topic: str,
        partitions: int | Sequence[int | None] | None,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers | None] | None = None,
    ) -> None:
        if not values:
            return
        if self._closed:
            raise IllegalStateError("The producer is closed.", topic=topic)
        if topic in self._tracked and not isinstance(partitions, int):
            raise IllegalStateError("A tracked topic needs one explicit partition.", topic=topic)
        scheduler = self._scheduler
        scheduler.step(scheduler.random.randrange(5, 50))
        self._wait_for_room(topic)
        self._raise_failure()
        count = self._cluster.topics[topic]
        for index, value in enumerate(values):
            each = partitions[index] if isinstance(partitions, Sequence) else partitions
            key = keys[index]
            if each is None:
                each = partition_for(key, count) if key is not None else index % count
            place = TopicPartition(topic, each)
            row = (key, value, timestamps[index] or 1, headers[index] if headers else None)
            self._waiting.setdefault(place, deque()).append((scheduler.now_us, row))
            self._pump(place)

    def send_watched(
        self,
        topic: str,
        partitions: Sequence[int | None] | None,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers | None] | None,
        watch: Watch,
    ) -> None:
        """Now and then a record is refused, as one is that is too large."""
        taken: list[int] = []
        for index in range(len(values)):
            if self._scheduler.random.random() >= _REFUSED:
                taken.append(index)
                continue
            self._cluster.refused(topic, values[index])
            refused = RecordRefusedError("it is refused", index=index, topic=topic)
            failure = watch.failed(index, refused, transaction_lost=False)
            if failure is not None:
                raise failure
        self.send_many(
            topic,
            None if partitions is None else [partitions[index] for index in taken],
            [keys[index] for index in taken],
            [values[index] for index in taken],
            [timestamps[index] for index in taken],
            None if headers is None else [headers[index] for index in taken],
        )

    def _wait_for_room(self, topic: str) -> None:
        began_us = self._scheduler.now_us
        while sum(map(len, self._waiting.values())) > _MOST_WAITING:
            self._scheduler.step(_FULL_POLL_US)
            self.on_wait()
            if self._scheduler.now_us - began_us > self._task_timeout_ms * 1000:
                raise BrokerUnavailableError("The producer's queue has been full.", topic=topic)

    def _pump(self, place: TopicPartition) -> None:
        """Let the next batch of a partition go out in a moment, if none is under way."""
        if place in self._in_flight or not self._waiting.get(place):
            return
        batch = self._in_flight[place] = Batch(place, (), self._waiting[place][0][0])
        linger_us = self._scheduler.random.randrange(200, 6_000)
        life = self._life
        self._scheduler.call_after(linger_us, lambda: self._fill(batch, life), self._process)

    def _fill(self, batch: Batch, life: int) -> None:
        place = batch.place
        if life != self._life or self._in_flight.get(place) is not batch:
            return
        waiting = self._waiting[place]
        size = min(len(waiting), self._scheduler.random.choice((2, 10, 100)))
        batch.rows = [waiting.popleft()[1] for _ in range(size)]
        batch.producer_id = self._producer_id
        batch.epoch = self._epoch
        batch.sequence = self._sequences.get(place, 0)
        self._sequences[place] = batch.sequence + size
        self._attempt(batch, life)

    def _attempt(self, batch: Batch, life: int) -> None:
        if life != self._life or self._in_flight.get(batch.place) is not batch:
            return
        scheduler, cluster = self._scheduler, self._cluster
        batch.attempts += 1
        if scheduler.now_us - batch.made_us > self._delivery_us:
            self._fail(batch, KafkaError(KafkaError._MSG_TIMED_OUT))
            return
        leader = cluster.leader(batch.place)
        if cluster.reaches(self._process, leader) and not cluster.loses():
            batch.on_wire = True
            # Not the process's: what is on the wire arrives.
            scheduler.call_after(cluster.latency_us(), lambda: self._arrive(batch, leader, life))
        scheduler.call_after(
            _RETRY_US * min(batch.attempts, 10) + cluster.network.most_delay_us * 2,
            lambda: self._attempt(batch, life),
            self._process,
        )

    def _arrive(self, batch: Batch, leader: int, life: int) -> None:
        cluster = self._cluster
        if leader != cluster.leader(batch.place) or not cluster.up[leader]:
            return
        log = cluster.logs[batch.place]
        before = log.end
        try:
            offset = self._append(log, batch)
        except LogError as error:
            code = _CODES[str(error)]
            if code is None:
                # The leader says so, and the client tries again.
                return
            failure = KafkaError(code)
            self._scheduler.call_after(
                cluster.latency_us(), lambda: self._fail(batch, failure), self._process
            )
            return
        if log.end > before:
            cluster.appended(batch.place, offset, self._process)
        if self._process.cut_off or cluster.loses():
            return
        last = offset + len(batch.rows) - 1
        # A leader that remembers too little tells no offset.
        known = last if log.end > before or self._scheduler.random.random() < 0.5 else None
        self._scheduler.call_after(
            cluster.latency_us(), lambda: self._ack(batch, known, life), self._process
        )

    def _append(self, log: PartitionLog, batch: Batch) -> int:
        return log.append(batch.rows, batch.producer_id, sequence=batch.sequence)

    def _ack(self, batch: Batch, last: int | None, life: int) -> None:
        if life != self._life or self._in_flight.get(batch.place) is not batch:
            return
        if last is not None and batch.place.topic in self._tracked:
            self._acked[batch.place] = last
        self._done(batch)

    def _fail(self, batch: Batch, error: KafkaError) -> None:
        if self._in_flight.get(batch.place) is not batch:
            return
        self._deliveries.fail(self._deliveries.error_for(error, *batch.place))
        self._scheduler.tell(f"{self._process.name}: a batch for {batch.place} failed: {error}")
        self._begin_anew()
        self._done(batch)

    def _begin_anew(self) -> None:
        """The numbers of a batch are missing for ever."""
        self._producer_id = self._cluster.transactions.new_producer_id()
        self._sequences.clear()

    def _done(self, batch: Batch) -> None:
        del self._in_flight[batch.place]
        self._pump(batch.place)
        if not self._in_flight:
            self._flushing.wake(self)

    # --- waiting -------------------------------------------------------------------------------

    def flush(self, timeout_ms: int) -> None:
        self._scheduler.step(10)
        self._raise_failure()
        left = self._wait(timeout_ms, lambda: len(self._in_flight))
        self._raise_failure()
        if left:
            raise BrokerUnavailableError(
                f"{left} batches were not acknowledged within {timeout_ms} ms."
            )

    def _wait(self, timeout_ms: int, left: Callable[[], int]) -> int:
        scheduler = self._scheduler
        until_us = scheduler.now_us + timeout_ms * 1000
        self._flushing = scheduler.current
        while left() and scheduler.now_us < until_us:
            scheduler.step(until_us - scheduler.now_us, self)
        return left()

    def purge(self, timeout_ms: int = _PURGE_TIMEOUT_MS) -> None:
        if self._asking.dead:
            return
        self._waiting.clear()
        for place, batch in list(self._in_flight.items()):
            if not batch.on_wire:
                del self._in_flight[place]
        self._wait(timeout_ms, lambda: len(self._in_flight))
        self._forget()

    def _forget(self) -> None:
        self._life += 1
        self._in_flight.clear()
        self._waiting.clear()
        self._sequences.clear()
        self._acked.clear()
        self._deliveries.forget()
        self._begin_anew()

    def close(self) -> None:
        if self._closed or self._asking.dead:
            return
        self._wait(_CLOSE_TIMEOUT_MS, lambda: len(self._in_flight))
        self._closed = True
        self._forget()

    def _raise_failure(self) -> None:
        failure = self._deliveries.tell_failure()
        if failure is not None:
            raise failure
