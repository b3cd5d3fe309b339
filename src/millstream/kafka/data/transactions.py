"""The data client that writes transactions: records, and the offsets that they were made from."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ClientPartition

from millstream.clock import Clock
from millstream.errors import StreamsError, TaskMigratedError
from millstream.kafka.data.apart import ApartCall
from millstream.kafka.data.batch_limits import BatchLimits
from millstream.kafka.data.group_metadata import GroupMetadata
from millstream.kafka.data.producer import RecordProducer
from millstream.kafka.data.producer_errors import RAISED, reported_error, transaction_error
from millstream.kafka.rights import Needs, user_of
from millstream.record import UNKNOWN, TopicPartition

_log = logging.getLogger(__name__)

_MAX_BLOCK_MS: Final = 60_000
_ABORT_TIMEOUT_MS: Final = 1_000


class CommittedOffset(Protocol):
    """A position of the group, such as `CommitOffset` of the member."""

    @property
    def offset(self) -> int: ...
    @property
    def metadata(self) -> str: ...
    @property
    def leader_epoch(self) -> int | None: ...


class TransactionalRecordProducer(RecordProducer):
    """Writes records in transactions. The first record, or the first offsets, begin one.

    Has to be initialized before anything is sent.

    Args:
        settings: from `librdkafka_settings` for "producer", under exactly-once.
        transactional_id: under what transactions are written; of two producers with the same one
            the older is fenced.
        clock: as for `RecordProducer`, like what follows.

    Raises:
        ConfigError: librdkafka refuses a setting.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        transactional_id: str,
        clock: Clock | None = None,
        *,
        limits: BatchLimits | None = None,
        max_block_ms: int = _MAX_BLOCK_MS,
        task_timeout_ms: int = 0,
    ) -> None:
        super().__init__(
            settings,
            transactional_id,
            clock,
            limits=limits,
            max_block_ms=max_block_ms,
            task_timeout_ms=task_timeout_ms,
        )
        self._needs = Needs(user_of(settings), "Write", transactional_id)
        self._in_transaction = False
        self._is_ready = False
        self._must_renew = False
        self._apart: ApartCall | None = None

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun."""
        return self._in_transaction

    @property
    def is_ready(self) -> bool:
        """Whether records can be sent: a transactional producer has to be initialized first."""
        return self._is_ready

    def init_transactions(self, timeout_ms: int) -> None:
        """Take the transactional id over: fences its former owner and ends what that one left open.

        Raises:
            BrokerUnavailableError: no answer in time; may be called again.
            StreamsError: the broker refuses.
        """
        self._transact("Initializing transactions", Producer.init_transactions, timeout_ms)
        self._is_ready = True

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset],
        member: GroupMetadata,
        timeout_ms: int,
    ) -> None:
        """Make the group's new positions part of the transaction, fenced by the member's generation
        (KIP-447).

        Args:
            offsets: the offset of the next record to process of each partition.
            member: whose offsets they are.
            timeout_ms: how long the coordinator may take.

        Raises:
            TaskMigratedError: this member is no longer in the group, or another producer took over.
            RebalanceInProgressError: the group is rebalancing; the transaction has to be aborted.
            BrokerUnavailableError: no answer in time; may be called again.
        """
        self._raise_failure()
        self._before_records()
        positions = [
            ClientPartition(
                *partition,
                position.offset,
                metadata=position.metadata,
                leader_epoch=UNKNOWN if position.leader_epoch is None else position.leader_epoch,
            )
            for partition, position in offsets.items()
        ]

        def send(client: Producer, timeout_s: float) -> None:
            if self._apart is None:
                self._apart = ApartCall(client, self._clock)
            self._apart.run(
                lambda: client.send_offsets_to_transaction(positions, member.encoded(), timeout_s),
                timeout_ms,
            )

        self._transact("Sending offsets to the transaction", send, timeout_ms)

    def commit_transaction(self, timeout_ms: int) -> None:
        """Commit, after every record of the transaction is acknowledged. Does nothing without a
        transaction.

        Raises:
            ProductionError: a record of it was not written; it has to be aborted.
            TaskMigratedError: another producer took over, or the broker ended it
                (transaction.timeout.ms).
            BrokerUnavailableError: no answer in time. Whether it is committed is not known; calling
                again goes on.
        """
        if not self._in_transaction:
            return
        self._raise_failure()
        self._transact("Committing the transaction", Producer.commit_transaction, timeout_ms)
        self._in_transaction = False

    def abort_transaction(self, timeout_ms: int) -> None:
        """Drop what was written since the last commit, and forget what went wrong with it. Does
        nothing without a transaction.

        Raises:
            TaskMigratedError: another producer took over.
            BrokerUnavailableError: no answer in time; may be called again.
        """
        if not self._in_transaction:
            return
        try:
            client = self._clients.all()[0]
            client.abort_transaction(timeout_ms / 1_000)
        except RAISED as error:
            # Not the failure for which it is aborted: that one was told.
            raise transaction_error(
                reported_error(error),
                "Aborting the transaction",
                self._clients.because(),
                self._needs,
                self._most_bytes,
            ) from error
        self._deliveries.forget_failures()
        self._in_transaction = False

    def _before_records(self) -> None:
        if self._in_transaction:
            return
        self._transact("Beginning a transaction", lambda client, _: client.begin_transaction(), 0)
        self._in_transaction = True

    def _transact(
        self, what: str, call: Callable[[Producer, float], object], timeout_ms: int
    ) -> None:
        client = self._clients.all()[0]
        try:
            call(client, timeout_ms / 1_000)
        except RAISED as error:
            told = transaction_error(
                reported_error(error), what, self._clients.because(), self._needs, self._most_bytes
            )
            if not isinstance(told, TaskMigratedError):
                # What a step runs into because of a record that failed tells less than that one.
                told = self._deliveries.tell_failure() or told
            raise told from error

    def purge(self, timeout_ms: int = _ABORT_TIMEOUT_MS) -> None:
        """Give up what was sent since the last commit, as `RecordProducer.purge` does: abort.

        If that cannot be done, the producer has to be initialized again, which puts an end to the
        transaction, too: another producer took over, no broker answers in time, or records were
        sent a moment ago: librdkafka then may end what the broker has not heard of yet, which that
        one refuses (confluentinc/librdkafka issue 4849).
        """
        if self._apart is not None and self._apart.is_pending:
            self._must_renew = True
        elif self._is_ready:
            try:
                self.abort_transaction(timeout_ms)
            except StreamsError as error:
                _log.info("A new producer takes the place of the old one: %s", error)
                self._must_renew = True
        if self._must_renew:
            self._clients.renew()
            self._apart = None
            self._in_transaction = self._is_ready = self._must_renew = False
        self._deliveries.forget()

    def _largest_batch(self, topic: str) -> int | None:
        """What a topic takes limits all batches, since one client has to write them."""
        limit = super()._largest_batch(topic)
        if limit is not None and limit < self._clients.batch_bytes:
            self._clients.limit_batches(limit)
            self._must_renew = True
            failure = TaskMigratedError(
                f"The topic takes batches of {limit} bytes at most: what was sent is sent again in "
                "such.",
                topic=topic,
            )
            self._deliveries.fail(failure)
            raise failure
        return limit
