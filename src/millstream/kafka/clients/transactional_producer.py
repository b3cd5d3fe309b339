"""The producer of transactions, which contain records and their input offsets."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition

from millstream.clock import Clock, Deadline
from millstream.errors import IllegalStateError, StreamsError, TaskMigratedError
from millstream.kafka.clients.group_metadata import GroupMetadata
from millstream.kafka.clients.producer_clients import BatchLimits
from millstream.kafka.clients.producer_errors import RAISED, reported_error, transaction_error
from millstream.kafka.clients.record_producer import RecordProducer
from millstream.kafka.user_permissions import AccessContext, user_of
from millstream.record import UNKNOWN, TopicPartition

_log = logging.getLogger(__name__)

_MAX_BLOCK_MS: Final = 60_000
_ABORT_TIMEOUT_MS: Final = 1_000
#: The interval at which a flush checks for failed records.
_CHECK_INTERVAL_MS: Final = 100
#: How long to wait for the report of the record that caused a transaction to fail. There is no
#: report if the coordinator rejected the transaction.
_REPORT_MS: Final = 1_000
_REPORT_POLL_S: Final = 0.01

#: How long a call may be pending before another request is sent, so that the client reconnects to
#: its brokers.
_NUDGE_AFTER_MS: Final = 300
_NUDGE_TIMEOUT_MS: Final = 300


class CommittedOffset(Protocol):
    """A committed position, such as the member's `CommitOffset`."""

    @property
    def offset(self) -> int: ...
    @property
    def metadata(self) -> str: ...
    @property
    def leader_epoch(self) -> int | None: ...


class TransactionalRecordProducer(RecordProducer):
    """Writes records in transactions.

    The first record or offsets begin a transaction. Requires `init_transactions` before records or
    offsets are sent. If two producers have the same `transactional_id`, the older one is fenced.
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
        self._access = AccessContext(user_of(settings), "Write", transactional_id)
        self.in_transaction = False
        #: Whether the producer is initialized, so that records can be sent.
        self.is_ready = False
        self._must_renew = False
        self._background_call: BackgroundCall | None = None

    def init_transactions(self, timeout_ms: int) -> None:
        """Take over the transactional id: fence the old owner and abort its transaction.

        May be called again after BrokerUnavailableError.
        """
        self._transact("Initializing transactions", Producer.init_transactions, timeout_ms)
        self.is_ready = True

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset],
        member: GroupMetadata,
        timeout_ms: int,
    ) -> None:
        """Add the group's offsets to the transaction.

        They are fenced by the member's generation (KIP-447).

        Raises:
            TaskMigratedError: this member is no longer in the group, or another producer took over.
            RebalanceInProgressError: the group is rebalancing; the transaction has to be aborted.
            BrokerUnavailableError: no response in time. The call may be repeated.
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
            if self._background_call is None:
                self._background_call = BackgroundCall(client, self._clock)
            self._background_call.run(
                (dict(offsets), member),
                lambda: client.send_offsets_to_transaction(positions, member.encoded(), timeout_s),
                timeout_ms,
            )

        self._transact("Sending offsets to the transaction", send, timeout_ms)

    def commit_transaction(self, timeout_ms: int) -> None:
        """Commit the open transaction, if any, after every record is acknowledged.

        Raises:
            ProductionError: a record was not written; the transaction has to be aborted.
            TaskMigratedError: another producer took over, or the broker aborted the transaction
                (transaction.timeout.ms).
            BrokerUnavailableError: no response in time. The outcome is unknown; another call
                continues the commit.
        """
        if not self.in_transaction:
            return
        deadline = Deadline(self._clock, timeout_ms)
        self.flush(timeout_ms)
        timeout_ms = deadline.remaining_ms(timeout_ms)
        self._transact("Committing the transaction", Producer.commit_transaction, timeout_ms)
        self.in_transaction = False
        self._background_call = None

    def _before_records(self) -> None:
        if self.in_transaction:
            return
        self._transact("Beginning a transaction", lambda client, _: client.begin_transaction(), 0)
        self.in_transaction = True

    def _transact(
        self, action: str, call: Callable[[Producer, float], object], timeout_ms: int
    ) -> None:
        client = self._clients.all()[0]
        try:
            call(client, timeout_ms / 1_000)
        except RAISED as error:
            self._writer.collect_failures()
            reported = reported_error(error)
            # librdkafka repeats a fatal error for every later call of the client.
            self._must_renew |= reported.fatal()
            failure = self._translated(reported, action)
            if not isinstance(failure, TaskMigratedError):
                # The error of the failed record explains more than the error of this step.
                failure = self._deliveries.first_failure() or failure
            raise failure from error

    def _translated(self, error: KafkaError, action: str) -> StreamsError:
        return transaction_error(
            error, action, self._clients.connection_hint(), self._access, self._max_bytes
        )

    def why_lost(self) -> KafkaError | None:
        """Return why the transaction must be aborted, which most calls do not report."""
        if not self.in_transaction:
            return None
        try:
            # In an open transaction, this fails with the reason why it must be aborted.
            self._clients.all()[0].begin_transaction()
        except RAISED as raised:
            error = reported_error(raised)
            return error if error.txn_requires_abort() or error.fatal() else None
        raise IllegalStateError("A transaction was open, but is unknown to librdkafka.")

    def purge(self, timeout_ms: int = _ABORT_TIMEOUT_MS) -> None:
        """Abort the transaction, and drop its records and failures.

        Otherwise like `RecordProducer.purge`. If the abort is not possible, the producer has to be
        initialized again, which also ends the transaction. This is necessary:

        - after a rejected record: librdkafka continues with the next sequence number, and the
          broker rejects all further records of that partition because of the gap;
        - if another producer took over, the client had another fatal error, or no broker responds
          in time;
        - shortly after records were sent: librdkafka may then end the transaction before the broker
          has added all partitions to it, and the broker rejects that (confluentinc/librdkafka issue
          4849);
        - if the coordinator has not responded to `send_offsets` yet.

        A late response to `send_offsets` belongs to this transaction and is dropped with it: the
        offsets have to be sent again in the next transaction.
        """
        self._writer.collect_failures()
        if self._background_call is not None and self._background_call.is_pending:
            self._must_renew = True
        elif self.in_transaction:
            if self.why_lost() is not None or self._deliveries.failed:
                self._must_renew = True
            else:
                self._abort(timeout_ms)
        self._background_call = None
        if self._must_renew:
            self._clients.renew()
            self.in_transaction = self.is_ready = self._must_renew = False
        self._writer.reset()
        self._deliveries.reset()

    def _abort(self, timeout_ms: int) -> None:
        client = self._clients.all()[0]
        try:
            client.abort_transaction(timeout_ms / 1_000)
        except RAISED as error:
            _log.info(
                "The producer is replaced, because it cannot abort the transaction: %s",
                reported_error(error).str(),
            )
            self._must_renew = True
        else:
            self.in_transaction = False

    def _flush_clients(self, timeout_ms: int) -> int:
        deadline = Deadline(self._clock, timeout_ms)
        while True:
            left = super()._flush_clients(deadline.remaining_ms(_CHECK_INTERVAL_MS))
            if not left:
                return 0
            # librdkafka may keep the remaining records until they time out, although it sends none
            # of them.
            failure = self._earlier_failure()
            if failure is not None:
                raise failure
            if deadline.passed:
                return left

    def _earlier_failure(self) -> StreamsError | None:
        """Return the failure that requires the transaction to be aborted.

        If a record failed, this is the failure of that record. librdkafka first fails the
        transaction and then reports the record.
        """
        why = self.why_lost()
        if why is None:
            return self._deliveries.first_failure()
        deadline = Deadline(self._clock, _REPORT_MS)
        while not (self._deliveries.failed or deadline.passed):
            self._serve(self._clients.all()[0], _REPORT_POLL_S)
        return self._deliveries.first_failure() or self._translated(why, "Sending records")

    def _largest_batch(self, topic: str) -> int | None:
        """Apply the topic's limit to all batches, because a single client writes them."""
        limit = super()._largest_batch(topic)
        if limit is not None and limit < self._clients.batch_bytes:
            self._clients.limit_batches(limit)
            self._must_renew = True
            failure = TaskMigratedError(
                f"The topic accepts batches of at most {limit} bytes, so the records of "
                "the transaction are sent again in smaller batches.",
                topic=topic,
            )
            self._deliveries.fail(failure)
            raise failure
        return limit


class BackgroundCall:
    """Runs the calls of one transaction on a background thread, one at a time.

    `rd_kafka_send_offsets_to_transaction` ignores its timeout (librdkafka issue 5456, still open in
    2.16): after losing the connection to the group coordinator, it waits until the state of any
    broker changes.

    A result belongs to its request and its transaction: it is never returned for another request or
    after `discard`.
    """

    def __init__(self, client: Producer, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._pending: _Pending | None = None

    @property
    def is_pending(self) -> bool:
        """Whether a call is pending.

        Until it returns, the client rejects all other calls.
        """
        return self._pending is not None and not self._pending.future.done()

    def discard(self) -> None:
        """Discard the result of a pending call whose transaction has ended."""
        self._pending = None

    def run(self, request: object, call: Callable[[], object], timeout_ms: int) -> None:
        """Run a call, or resume waiting for an equal request. Adds 80 us to the call.

        A call for another request waits until the pending call has returned. Raises the
        KafkaException of this call or the previous call, or one with the code `_TIMED_OUT`. The
        call continues after the timeout.
        """
        deadline = Deadline(self._clock, timeout_ms)
        if self._pending is not None and self._pending.request != request:
            self._wait(self._pending, deadline)
        if self._pending is None:
            self._pending = _Pending(request, _start(call))
        self._wait(self._pending, deadline)

    def _wait(self, pending: _Pending, deadline: Deadline) -> None:
        while not _is_done(pending.future, deadline.remaining_ms(_NUDGE_AFTER_MS)):
            if deadline.passed:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no response yet"))
            # If this request fails, no broker is available for the pending call, either.
            with contextlib.suppress(KafkaException):
                self._client.list_topics(timeout=deadline.remaining_ms(_NUDGE_TIMEOUT_MS) / 1_000)
        self._pending = None
        pending.future.result()


@dataclass(frozen=True, slots=True)
class _Pending:
    request: object
    future: Future[None]


def _start(call: Callable[[], object]) -> Future[None]:
    future: Future[None] = Future()

    def run() -> None:
        try:
            call()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(None)

    # A daemon thread does not prevent the exit of the process.
    threading.Thread(target=run, name="send-offsets", daemon=True).start()
    return future


def _is_done(future: Future[None], within_ms: int) -> bool:
    with contextlib.suppress(TimeoutError, Exception):
        future.exception(within_ms / 1_000)
    return future.done()
