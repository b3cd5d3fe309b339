"""Exactly-once: atomic commits of a thread's outputs, changelogs and offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from millstream.clock import Clock, Deadline
from millstream.errors import (
    BrokerUnavailableError,
    RebalanceInProgressError,
    StreamsError,
    TaskMigratedError,
)
from millstream.kafka.clients.group_metadata import GroupMetadata
from millstream.kafka.cluster.retries import wait_in_steps
from millstream.kafka.membership.member_events import CommitOffset
from millstream.kafka.protocols import CommitResponse, TransactionalProducer
from millstream.record import TopicPartition
from millstream.runtime.retry import RetrySchedule

#: How long taking over the transactional id may block the loop.
_INIT_TIMEOUT_MS = 3_000
#: The timeout for sending offsets. A request that was lost with its connection never gets a
#: response (`kafka.clients.transactional_producer`), and repeating the work costs less than waiting
#: longer.
_OFFSETS_TIMEOUT_MS = 5_000


class TransactionMember(Protocol):
    """The methods of the group member that transactions need."""

    def without_rejoin(self) -> AbstractContextManager[GroupMetadata]: ...
    def progress(self) -> None: ...


class ExactlyOnce:
    """Successive transactions, each fenced by the member's generation (KIP-447).

    A transaction starts with the first sent record and ends with the commit of all tasks of the
    thread, which share the producer. If a transaction fails, all of them lose their work since the
    last commit, but none of their state, because stores only write committed changes.

    The transactional id consists of the ids of the application and the driver and the index of the
    thread, so a restarted thread takes it over and immediately aborts the transaction that its
    predecessor left open.

    Args:
        timeout_ms: how long failed attempts to take over the transactional id are retried
            (`task.timeout.ms`).
        transaction_timeout_ms: the time after which the broker aborts a transaction.
        on_delivered: called after the commit of a transaction.
    """

    all_or_nothing = True

    def __init__(
        self,
        producer: TransactionalProducer,
        member: TransactionMember,
        clock: Clock,
        timeout_ms: int,
        transaction_timeout_ms: int,
        on_delivered: Callable[[], None] = lambda: None,
    ) -> None:
        self._producer = producer
        self._member = member
        self._clock = clock
        self._transaction_timeout_ms = transaction_timeout_ms
        self._on_delivered = on_delivered
        self._init_retry = RetrySchedule("taking over the transactional id", clock, timeout_ms)

    @property
    def in_transaction(self) -> bool:
        return self._producer.in_transaction

    def is_ready(self) -> bool:
        """Take over the transactional id if needed; return whether the thread owns it.

        Committed offsets and changelogs may only be read once the previous owner has no open
        transaction.

        Failed attempts are retried with backoff. No written records can be lost meanwhile, because
        tasks do not start before the takeover.

        Raises:
            BrokerUnavailableError: no response for the whole timeout.
            ConfigError: the broker rejects a setting.
            StreamsError: the broker fenced or rejected every attempt for the whole timeout.
        """
        if self._producer.is_ready:
            return True
        if not self._init_retry.is_due:
            return False
        try:
            self._producer.init_transactions(_INIT_TIMEOUT_MS)
        except BrokerUnavailableError as error:
            self._init_retry.failed(error)
            return False
        except TaskMigratedError as error:
            # The producer cannot be used after a fatal error.
            self._producer.purge()
            self._init_retry.failed(
                StreamsError(f"Cannot take over the transactional id: {error.message}")
            )
            return False
        self._init_retry.succeeded()
        return True

    def publish(self, offsets: Mapping[TopicPartition, CommitOffset], overall: Deadline) -> None:
        # Waiting longer than the transaction timeout is useless: by then, the broker has aborted
        # the transaction, even if no response arrived.
        timeout_ms = overall.remaining_ms(self._transaction_timeout_ms)
        deadline = Deadline(self._clock, timeout_ms)
        try:
            # Flush first. Sending the offsets verifies that no other member owns the tasks yet, and
            # the next owner looks up the end offsets of the changelogs. These must include all
            # records that this thread has written.
            self._in_steps(self._producer.flush, deadline)
            if offsets:
                self._send_offsets(offsets, deadline)
            self._in_steps(self._producer.commit_transaction, deadline)
        except BrokerUnavailableError as error:
            raise TaskMigratedError(
                f"The transaction is aborted because it could not be committed within {timeout_ms} "
                f"ms: {error.message}"
            ) from error
        self._on_delivered()

    def publish_async(
        self, offsets: Mapping[TopicPartition, CommitOffset], overall: Deadline
    ) -> CommitResponse | None:
        """Call `publish`: stores must not be written before the transaction is committed."""
        self.publish(offsets, overall)
        return None

    def await_commit(
        self,
        offsets: Mapping[TopicPartition, CommitOffset],
        response: CommitResponse,
        overall: Deadline,
    ) -> None:
        """Do nothing: `publish_async` leaves no response pending."""

    def _send_offsets(
        self, offsets: Mapping[TopicPartition, CommitOffset], deadline: Deadline
    ) -> None:
        with self._member.without_rejoin() as member:
            try:
                self._in_steps(
                    lambda timeout_ms: self._producer.send_offsets(offsets, member, timeout_ms),
                    Deadline(self._clock, deadline.remaining_ms(_OFFSETS_TIMEOUT_MS)),
                )
            except RebalanceInProgressError as error:
                raise TaskMigratedError(
                    f"The transaction is aborted because the group does not accept its offsets: "
                    f"{error.message}"
                ) from error

    def await_delivery(self, overall: Deadline) -> None:
        """Do nothing: uncommitted records are never restored."""

    def discard_uncommitted(self) -> None:
        self._producer.purge()

    def _in_steps(self, attempt: Callable[[int], None], deadline: Deadline) -> None:
        wait_in_steps(attempt, deadline, self._member.progress)
