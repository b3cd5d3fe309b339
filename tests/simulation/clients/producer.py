"""The producer of the simulated cluster; behaves like `RecordProducer`.

Records linger for a moment and are sent in batches, one batch of a partition at a time, with
retries until they are acknowledged or expired. Leaders detect duplicate batches
(`enable.idempotence`). Batches in flight arrive even if their process is killed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError

from millstream.errors import BrokerUnavailableError, IllegalStateError, RecordRefusedError
from millstream.kafka.clients.delivery import DeliveryTracker, RejectionHandler
from millstream.kafka.clients.producer_errors import Changelog
from millstream.kafka.partitioner import partition_for
from millstream.record import Headers, TopicPartition
from simulation.broker.cluster import Cluster
from simulation.broker.log import LogError, PartitionLog, Row
from simulation.clients.requests import BrokerRequests
from simulation.scheduler import Process

_CLOSE_TIMEOUT_MS: Final = 10_000
_PURGE_TIMEOUT_MS: Final = 1_000
_RETRY_US: Final = 100_000
_MAX_WAITING: Final = 3_000
_FULL_POLL_US: Final = 10_000
#: The probability that a record with a rejection handler is rejected.
_REJECTION_PROBABILITY: Final = 0.02
#: librdkafka's errors for the errors of a leader; None if it retries.
_CODES: Final = {
    "INVALID_PRODUCER_EPOCH": KafkaError.INVALID_PRODUCER_EPOCH,
    "PRODUCER_FENCED": KafkaError.INVALID_PRODUCER_EPOCH,
    "OUT_OF_ORDER_SEQUENCE_NUMBER": KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    "CONCURRENT_TRANSACTIONS": None,
}


class Batch:
    """A batch of records for one partition.

    Args:
        place: the partition.
        rows: the records.
        made_us: the time when the first record was sent.
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
    """Writes the records of each partition in order.

    Args:
        cluster: the cluster.
        process: the producer's process.
        settings: librdkafka's.
        task_timeout_ms: the maximum time that a send waits for a full queue.
    """

    def __init__(
        self,
        cluster: Cluster,
        process: Process,
        settings: Mapping[str, Any],
        task_timeout_ms: int,
    ) -> None:
        self._requests = BrokerRequests(cluster, process)
        self._cluster = cluster
        self._scheduler = cluster.scheduler
        self._process = process
        # librdkafka lets no record outlive its transaction.
        timeout_ms = settings.get("delivery.timeout.ms") or settings["transaction.timeout.ms"]
        self._delivery_us = int(timeout_ms) * 1000
        self._task_timeout_ms = task_timeout_ms
        self.on_wait: Callable[[], None] = lambda: None
        # The simulation limits commits by time, not by unflushed records.
        self.unflushed_records = 0
        self._deliveries = DeliveryTracker(reprocess_on_timeout=True)
        self._tracked: set[str] = set()
        self._acked: dict[TopicPartition, int] = {}
        self._waiting: dict[TopicPartition, deque[tuple[int, Row]]] = {}
        self._in_flight: dict[TopicPartition, Batch] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._producer_id = cluster.transactions.new_producer_id()
        self._epoch = -1
        #: Incremented by a purge, so that older batches are ignored.
        self._incarnation = 0
        self._flushing = cluster.scheduler.director
        self._closed = False

    def track(self, topic: str, changelog: Changelog | None = None) -> None:
        self._tracked.add(topic)
        if changelog is not None:
            self._deliveries.changelogs[topic] = changelog

    def acked_offsets(self) -> dict[TopicPartition, int]:
        return dict(self._acked)

    def send_lingering(self) -> None:
        """Do nothing: no records linger here."""

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

    def send_with_handler(
        self,
        topic: str,
        partitions: Sequence[int | None] | None,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers | None] | None,
        handler: RejectionHandler,
    ) -> None:
        """Reject some records at random, like records that are too large."""
        accepted: list[int] = []
        for index in range(len(values)):
            if self._scheduler.random.random() >= _REJECTION_PROBABILITY:
                accepted.append(index)
                continue
            self._cluster.rejected(topic, values[index])
            rejection = RecordRefusedError("The record is rejected.", index=index, topic=topic)
            failure = handler.failed(index, rejection, transaction_lost=False)
            if failure is not None:
                raise failure
        self.send_many(
            topic,
            None if partitions is None else [partitions[index] for index in accepted],
            [keys[index] for index in accepted],
            [values[index] for index in accepted],
            [timestamps[index] for index in accepted],
            None if headers is None else [headers[index] for index in accepted],
        )

    def _wait_for_room(self, topic: str) -> None:
        began_us = self._scheduler.now_us
        while sum(map(len, self._waiting.values())) > _MAX_WAITING:
            self._scheduler.step(_FULL_POLL_US)
            self.on_wait()
            if self._scheduler.now_us - began_us > self._task_timeout_ms * 1000:
                raise BrokerUnavailableError("The producer's queue has been full.", topic=topic)

    def _pump(self, place: TopicPartition) -> None:
        """Schedule the next batch of a partition, if none is in flight."""
        if place in self._in_flight or not self._waiting.get(place):
            return
        batch = self._in_flight[place] = Batch(place, (), self._waiting[place][0][0])
        linger_us = self._scheduler.random.randrange(200, 6_000)
        incarnation = self._incarnation
        self._scheduler.call_after(linger_us, lambda: self._fill(batch, incarnation), self._process)

    def _fill(self, batch: Batch, incarnation: int) -> None:
        place = batch.place
        if incarnation != self._incarnation or self._in_flight.get(place) is not batch:
            return
        waiting = self._waiting[place]
        size = min(len(waiting), self._scheduler.random.choice((2, 10, 100)))
        batch.rows = [waiting.popleft()[1] for _ in range(size)]
        batch.producer_id = self._producer_id
        batch.epoch = self._epoch
        batch.sequence = self._sequences.get(place, 0)
        self._sequences[place] = batch.sequence + size
        self._attempt(batch, incarnation)

    def _attempt(self, batch: Batch, incarnation: int) -> None:
        if incarnation != self._incarnation or self._in_flight.get(batch.place) is not batch:
            return
        scheduler, cluster = self._scheduler, self._cluster
        batch.attempts += 1
        if scheduler.now_us - batch.made_us > self._delivery_us:
            self._fail(batch, KafkaError(KafkaError._MSG_TIMED_OUT))
            return
        leader = cluster.leader(batch.place)
        if cluster.reaches(self._process, leader) and not cluster.drops_message():
            batch.on_wire = True
            # Without the process: a batch in flight arrives even if the process is killed.
            scheduler.call_after(
                cluster.latency_us(), lambda: self._arrive(batch, leader, incarnation)
            )
        scheduler.call_after(
            _RETRY_US * min(batch.attempts, 10) + cluster.network.max_delay_us * 2,
            lambda: self._attempt(batch, incarnation),
            self._process,
        )

    def _arrive(self, batch: Batch, leader: int, incarnation: int) -> None:
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
                # A retriable error; the client tries again.
                return
            failure = KafkaError(code)
            self._scheduler.call_after(
                cluster.latency_us(), lambda: self._fail(batch, failure), self._process
            )
            return
        if log.end > before:
            cluster.appended(batch.place, offset, self._process)
        if self._process.cut_off or cluster.drops_message():
            return
        last = offset + len(batch.rows) - 1
        # For a duplicate of an old batch, a leader returns no offset.
        known = last if log.end > before or self._scheduler.random.random() < 0.5 else None
        self._scheduler.call_after(
            cluster.latency_us(), lambda: self._ack(batch, known, incarnation), self._process
        )

    def _append(self, log: PartitionLog, batch: Batch) -> int:
        return log.append(batch.rows, batch.producer_id, sequence=batch.sequence)

    def _ack(self, batch: Batch, last: int | None, incarnation: int) -> None:
        if incarnation != self._incarnation or self._in_flight.get(batch.place) is not batch:
            return
        if last is not None and batch.place.topic in self._tracked:
            self._acked[batch.place] = last
        self._done(batch)

    def _fail(self, batch: Batch, error: KafkaError) -> None:
        if self._in_flight.get(batch.place) is not batch:
            return
        self._deliveries.fail(self._deliveries.error_for(error, *batch.place))
        self._scheduler.log(f"{self._process.name}: a batch for {batch.place} failed: {error}")
        self._reset_sequences()
        self._done(batch)

    def _reset_sequences(self) -> None:
        """Start new sequence numbers, since those of a batch are missing permanently."""
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
        if self._requests.dead:
            return
        self._waiting.clear()
        for place, batch in list(self._in_flight.items()):
            if not batch.on_wire:
                del self._in_flight[place]
        self._wait(timeout_ms, lambda: len(self._in_flight))
        self._discard()

    def _discard(self) -> None:
        self._incarnation += 1
        self._in_flight.clear()
        self._waiting.clear()
        self._sequences.clear()
        self._acked.clear()
        self._deliveries.reset()
        self._reset_sequences()

    def close(self) -> None:
        if self._closed or self._requests.dead:
            return
        self._wait(_CLOSE_TIMEOUT_MS, lambda: len(self._in_flight))
        self._closed = True
        self._discard()

    def _raise_failure(self) -> None:
        failure = self._deliveries.first_failure()
        if failure is not None:
            raise failure
