"""The transactional producer of the simulated cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from millstream.errors import (
    BrokerUnavailableError,
    RebalanceInProgressError,
    StreamsError,
    TaskMigratedError,
)
from millstream.kafka.clients.group_metadata import GroupMetadata
from millstream.kafka.membership.member_events import CommitOffset
from millstream.record import Headers, TopicPartition
from simulation.broker.cluster import Cluster
from simulation.broker.group import NONE, REBALANCING, Committed
from simulation.broker.log import LogError, PartitionLog
from simulation.clients.producer import Batch, SimulatedProducer
from simulation.scheduler import Process

T = TypeVar("T")

_PURGE_TIMEOUT_MS: Final = 1_000


class SimulatedTransactions(SimulatedProducer):
    """Writes transactions; behaves like a transactional `RecordProducer`.

    Args:
        cluster: the cluster.
        process: the producer's process.
        settings: librdkafka's.
        task_timeout_ms: the maximum time that a send waits for a full queue.
        transactional_id: the id.
    """

    def __init__(
        self,
        cluster: Cluster,
        process: Process,
        settings: Mapping[str, Any],
        task_timeout_ms: int,
        transactional_id: str,
    ) -> None:
        super().__init__(cluster, process, settings, task_timeout_ms)
        self._id = transactional_id
        self._timeout_ms = int(settings["transaction.timeout.ms"])
        self._coordinator = cluster.transactions
        self._epoch = -1
        self._ready = False
        self._begun = False

    @property
    def is_ready(self) -> bool:
        return self._ready

    @property
    def in_transaction(self) -> bool:
        return self._begun

    def init_transactions(self, timeout_ms: int) -> None:
        self._producer_id, self._epoch = self._request(
            lambda: self._coordinator.init(self._id, self._timeout_ms), timeout_ms
        )
        self._sequences.clear()
        self._ready = True

    def send_many(
        self,
        topic: str,
        partitions: int | Sequence[int | None] | None,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers | None] | None = None,
    ) -> None:
        assert self._ready, "the producer was not initialized"
        self._begun = self._begun or bool(values)
        super().send_many(topic, partitions, keys, values, timestamps, headers)

    def _append(self, log: PartitionLog, batch: Batch) -> int:
        self._coordinator.begin(self._id, batch.epoch, batch.place)
        return log.append(
            batch.rows, batch.producer_id, batch.epoch, batch.sequence, transactional=True
        )

    def _reset_sequences(self) -> None:
        """Keep the sequence numbers until the transaction is aborted."""

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, CommitOffset],
        member: GroupMetadata,
        timeout_ms: int,
    ) -> None:
        self._raise_failure()
        self._begun = True
        sent = {
            place: Committed(
                each.offset, each.metadata, -1 if each.leader_epoch is None else each.leader_epoch
            )
            for place, each in offsets.items()
        }
        place = (member.member_id, member.instance_id, member.generation)
        # A request that is served late keeps the epoch of its own transaction.
        epoch = self._epoch
        error = self._request(
            lambda: self._coordinator.send_offsets(self._id, epoch, place, sent), timeout_ms
        )
        if error == REBALANCING:
            raise RebalanceInProgressError("The group is rebalancing.")
        if error != NONE:
            raise self._lost(f"the group answers {error}")

    def commit_transaction(self, timeout_ms: int) -> None:
        if not self._begun:
            return
        until_us = self._scheduler.now_us + timeout_ms * 1000
        self.flush(timeout_ms)
        left_ms = max(1, (until_us - self._scheduler.now_us) // 1000)
        epoch = self._epoch
        self._request(lambda: self._coordinator.end(self._id, epoch, commit=True), left_ms)
        self._begun = False

    def purge(self, timeout_ms: int = _PURGE_TIMEOUT_MS) -> None:
        if self._requests.dead or not self._ready:
            return
        if not self._begun:
            # Nothing is in flight, and the sequence numbers continue.
            self._acked.clear()
            self._deliveries.reset()
            return
        self._discard()
        self._begun = False
        try:
            # Follows librdkafka: with a new epoch, since records in flight may still arrive.
            self.init_transactions(timeout_ms)
        except StreamsError as error:
            self._scheduler.log(f"{self._process.name}: a new producer: {error}")
            self._ready = False

    def close(self) -> None:
        if self._closed or self._requests.dead:
            return
        self._closed = True
        self._discard()

    def _request(self, answer: Any, timeout_ms: int) -> Any:
        """Send a request to the transaction coordinator, with retries while its previous
        transaction is still ending."""
        scheduler = self._scheduler
        until_us = scheduler.now_us + timeout_ms * 1000
        while True:
            self._await_coordinator(answer, until_us)
            left_ms = max(0, (until_us - scheduler.now_us) // 1000)
            try:
                return self._requests.send(lambda: (), answer, left_ms, "A transaction")
            except LogError as error:
                if str(error) != "CONCURRENT_TRANSACTIONS":
                    raise self._lost(str(error)) from error
                if scheduler.now_us >= until_us:
                    raise BrokerUnavailableError("The last transaction is not complete.") from error
                scheduler.step(scheduler.random.randrange(5_000, 50_000))

    def _await_coordinator(self, answer: Callable[[], object], until_us: int) -> None:
        """Wait while the coordinator is paused.

        A request that times out stays in its queue and is served later.
        """
        scheduler, cluster = self._scheduler, self._cluster
        silent_us = cluster.coordinators_silent_us
        if not silent_us:
            return
        if scheduler.now_us + silent_us <= until_us:
            scheduler.step(silent_us)
            return

        def serve() -> None:
            with suppress(LogError):
                answer()

        cluster.serve_later(serve)
        scheduler.step(max(0, until_us - scheduler.now_us))
        raise BrokerUnavailableError("The coordinator of transactions does not answer.")

    def _lost(self, why: str) -> TaskMigratedError:
        failure = TaskMigratedError(f"The transaction is lost: {why}.")
        self._deliveries.fail(failure)
        return failure
