"""The data client that writes transactions: records, and the offsets that they were made from."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, Producer
from confluent_kafka import TopicPartition as ClientPartition

from millstream.clock import Clock, Deadline
from millstream.errors import IllegalStateError, StreamsError, TaskMigratedError
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
#: How often a flush looks whether a record failed.
_LOOK_MS: Final = 100
#: How long to wait for the report of the record because of which a transaction failed. There is
#: none if the coordinator refused it.
_REPORT_MS: Final = 1_000
_REPORT_POLL_S: Final = 0.01


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
        ConfigError: librdkafka refuses a setting, or the extension was asked for and is not there.
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
        speedups: bool | None = None,
    ) -> None:
        super().__init__(
            settings,
            transactional_id,
            clock,
            limits=limits,
            max_block_ms=max_block_ms,
            task_timeout_ms=task_timeout_ms,
            speedups=speedups,
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
                (dict(offsets), member),
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
        deadline = Deadline(self._clock, timeout_ms)
        self.flush(timeout_ms)
        timeout_ms = deadline.remaining_ms(timeout_ms)
        self._transact("Committing the transaction", Producer.commit_transaction, timeout_ms)
        self._in_transaction = False
        self._apart = None

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
            self._writer.learn()
            reported = reported_error(error)
            # librdkafka repeats a fatal error for every further call of the client.
            self._must_renew |= reported.fatal()
            told = self._told(reported, what)
            if not isinstance(told, TaskMigratedError):
                # What a step runs into because of a record that failed tells less than that one.
                told = self._deliveries.tell_failure() or told
            raise told from error

    def _told(self, error: KafkaError, what: str) -> StreamsError:
        return transaction_error(
            error, what, self._clients.because(), self._needs, self._most_bytes
        )

    def why_lost(self) -> KafkaError | None:
        """The reason why the transaction can only be aborted, which most calls do not report."""
        if not self._in_transaction:
            return None
        try:
            # Refused in a transaction that is open, with the reason for which it has to be aborted.
            self._clients.all()[0].begin_transaction()
        except RAISED as raised:
            error = reported_error(raised)
            return error if error.txn_requires_abort() or error.fatal() else None
        raise IllegalStateError("A transaction was open, but librdkafka did not know of it.")

    def purge(self, timeout_ms: int = _ABORT_TIMEOUT_MS) -> None:
        """Give up what was sent since the last commit, as `RecordProducer.purge` does: abort.

        Where that cannot be done, the producer has to be initialized again, which puts an end to
        the transaction, too:

        - after a record that was not taken: librdkafka goes on with the number after it, and the
          broker takes nothing more for that partition because of the gap;
        - another producer took over, the client met another fatal error, or no broker answers in
          time;
        - records were sent a moment ago: librdkafka then may end what the broker has not heard of
          yet, which that one refuses (confluentinc/librdkafka issue 4849);
        - the coordinator has not answered `send_offsets` yet.

        An answer to `send_offsets` that came too late belongs to this transaction only, and is
        dropped with it: the offsets have to be sent again in the next one.
        """
        self._writer.learn()
        if self._apart is not None and self._apart.is_pending:
            self._must_renew = True
        elif self._in_transaction:
            if self.why_lost() is not None or self._deliveries.failed:
                self._must_renew = True
            else:
                self._abort(timeout_ms)
        self._apart = None
        if self._must_renew:
            self._clients.renew()
            self._in_transaction = self._is_ready = self._must_renew = False
        self._writer.forget()
        self._deliveries.forget()

    def _abort(self, timeout_ms: int) -> None:
        client = self._clients.all()[0]
        try:
            client.abort_transaction(timeout_ms / 1_000)
        except RAISED as error:
            _log.info(
                "A new producer takes the place of the old one, which cannot abort: %s",
                reported_error(error).str(),
            )
            self._must_renew = True
        else:
            self._in_transaction = False

    def _flush_clients(self, timeout_ms: int) -> int:
        deadline = Deadline(self._clock, timeout_ms)
        while True:
            left = super()._flush_clients(deadline.remaining_ms(_LOOK_MS))
            if not left:
                return 0
            # librdkafka may keep what is left until its timeout, though it sends none of it.
            failure = self._earlier_failure()
            if failure is not None:
                raise failure
            if deadline.passed:
                return left

    def _earlier_failure(self) -> StreamsError | None:
        """The failure after which the transaction can only be aborted: that of a record, if any.

        librdkafka lets the transaction fail first and reports the record only then.
        """
        why = self.why_lost()
        if why is None:
            return self._deliveries.tell_failure()
        deadline = Deadline(self._clock, _REPORT_MS)
        while not (self._deliveries.failed or deadline.passed):
            self._serve(self._clients.all()[0], _REPORT_POLL_S)
        return self._deliveries.tell_failure() or self._told(why, "Sending records")

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
