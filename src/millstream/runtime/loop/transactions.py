"""Exactly once: outputs, changelogs and offsets of a thread's tasks become visible together."""

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
from millstream.kafka.cluster.insisting import in_steps
from millstream.kafka.data.group_metadata import GroupMetadata
from millstream.kafka.member.events import CommitOffset
from millstream.kafka.protocols import TransactionalProducer
from millstream.record import TopicPartition
from millstream.runtime.loop.publication import Confirmation
from millstream.runtime.retry import Retry

#: How long the loop may stand still for taking the transactional id over.
_INIT_TIMEOUT_MS = 3_000
#: How long the coordinator may take for offsets. What was lost with its connection is never
#: answered (`kafka.data.apart`), and doing the work again costs less than to wait for long.
_OFFSETS_TIMEOUT_MS = 5_000


class TransactionMember(Protocol):
    """The group member, as far as transactions go."""

    def without_rejoin(self) -> AbstractContextManager[GroupMetadata]: ...

    def progress(self) -> None: ...


class Transactions:
    """One transaction after the other, each fenced by the member's generation (KIP-447).

    A transaction begins with the first record that is sent, and ends with the commit of all tasks
    of the thread, which share the producer. Whatever goes wrong with it costs the work of all of
    them since the last commit, and none of their state: stores write only what was committed.

    The id under which transactions are written belongs to the thread's name and place, so the next
    life of the thread takes it over, and puts an end at once to what this one has left open.

    Args:
        producer: the thread's producer.
        member: its place in the group.
        clock: for the timeouts.
        timeout_ms: how long the cluster may not answer (`task.timeout.ms`).
        transaction_timeout_ms: after how long the broker aborts a transaction by itself.
        on_delivered: called when a transaction is committed.
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
        self._beginning = Retry("taking the transactional id over", clock, timeout_ms)

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun, though perhaps no offset has moved."""
        return self._producer.in_transaction

    def is_ready(self) -> bool:
        """Whether the transactional id is this thread's: committed offsets and changelogs are only
        read once nothing of its former owner is open any more.

        Failed attempts are repeated with pauses: nothing was written yet that could be lost.

        Raises:
            BrokerUnavailableError: no answer for the whole timeout.
            ConfigError: the broker rejects a setting.
            StreamsError: the broker fenced or rejected each attempt for the whole timeout.
        """
        if self._producer.is_ready:
            return True
        if not self._beginning.is_due:
            return False
        try:
            self._producer.init_transactions(_INIT_TIMEOUT_MS)
        except BrokerUnavailableError as error:
            self._beginning.failed(error)
            return False
        except TaskMigratedError as error:
            # The client cannot be used after a fatal error.
            self._producer.purge()
            self._beginning.failed(
                StreamsError(f"The transactional id cannot be taken over: {error.message}")
            )
            return False
        self._beginning.worked()
        return True

    def publish(self, offsets: Mapping[TopicPartition, CommitOffset], whole: Deadline) -> None:
        """Commit the transaction, with the offsets in it; see `Publication`."""
        # After it the broker has aborted the transaction, whatever it answers.
        least_ms = whole.remaining_ms(self._transaction_timeout_ms)
        deadline = Deadline(self._clock, least_ms)
        try:
            # First: the offsets are taken only as long as nobody else has the tasks. Whoever gets
            # them later asks where changelogs end, and must find everything that is written here.
            self._insist(self._producer.flush, deadline)
            if offsets:
                self._send_offsets(offsets, deadline)
            self._insist(self._producer.commit_transaction, deadline)
        except BrokerUnavailableError as error:
            raise TaskMigratedError(
                f"The transaction is given up, since it could not be committed within {least_ms} "
                f"ms: {error.message}"
            ) from error
        self._on_delivered()

    def publish_soon(
        self, offsets: Mapping[TopicPartition, CommitOffset], whole: Deadline
    ) -> Confirmation | None:
        """As `publish`: nothing may be written before the transaction is committed."""
        self.publish(offsets, whole)
        return None

    def _send_offsets(
        self, offsets: Mapping[TopicPartition, CommitOffset], deadline: Deadline
    ) -> None:
        with self._member.without_rejoin() as place:
            try:
                self._insist(
                    lambda timeout_ms: self._producer.send_offsets(offsets, place, timeout_ms),
                    Deadline(self._clock, deadline.remaining_ms(_OFFSETS_TIMEOUT_MS)),
                )
            except RebalanceInProgressError as error:
                raise TaskMigratedError(
                    f"The transaction is given up, since the group does not take its offsets: "
                    f"{error.message}"
                ) from error

    def settle(self, whole: Deadline) -> None:
        """Nothing that is not committed is ever read back."""

    def forget_sent(self) -> None:
        """Abort the transaction."""
        self._producer.purge()

    def _insist(self, attempt: Callable[[int], None], deadline: Deadline) -> None:
        in_steps(attempt, deadline, self._member.progress)
