"""Delivery reports of sent records.

This module tracks the first failure and the last acknowledged offsets.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from confluent_kafka import KafkaError, Message

from millstream.errors import ProductionError, StreamsError
from millstream.kafka.clients.producer_errors import NOT_HANDLED, Changelog, delivery_error
from millstream.record import TopicPartition

#: Called by librdkafka for each reported record.
DeliveryCallback = Callable[[KafkaError | None, Message], None]

#: Resends records of a send, by their indices.
SendAgain = Callable[[Sequence[int]], None]

#: The broker rejected another record of the batch, and therefore the whole batch (KIP-467).
#: librdkafka only reports this if the broker rejected several records of the batch. Otherwise, all
#: records of the batch have the error of the rejected record.
_REJECTED_WITH_ANOTHER: Final = KafkaError._INVALID_DIFFERENT_RECORD

_PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


class RejectionHandler(Protocol):
    """Handles the rejected records of one send."""

    def failed(
        self, index: int, error: ProductionError, *, transaction_lost: bool
    ) -> StreamsError | None:
        """Handle a rejected record of the send.

        Returns an error to raise, or None to skip the record. `error.retriable` is True if a retry
        may help. With `transaction_lost`, the transaction must be aborted: the record cannot be
        skipped, and no records can be sent.
        """
        ...


class _RejectedRecord(NamedTuple):
    """A rejected record with a handler."""

    handler: RejectionHandler
    row: int  # the index in the send
    error: ProductionError
    code: int
    has_key: bool
    timestamp: int
    #: Whether the record was sent in a separate batch, so the error is about this record.
    is_alone: bool
    send_again: SendAgain


class _Classification(NamedTuple):
    rejected: list[_RejectedRecord]
    #: Records that failed only because of another record of their batch.
    unaffected: list[_RejectedRecord]
    #: Pairs of records, one of which was rejected. The first of each pair is the more likely one.
    candidates: list[_RejectedRecord]


def _classify(failed: Iterable[_RejectedRecord]) -> _Classification:
    """Separate the rejected records from the other records of their batches.

    A batch may contain records of several sends, but of one partition only.
    """
    partitions: dict[tuple[str | None, int | None], list[_RejectedRecord]] = {}
    classified = _Classification([], [], [])
    for each in failed:
        if each.is_alone:
            classified.rejected.append(each)
        else:
            partitions.setdefault((each.error.topic, each.error.partition), []).append(each)
    for records in partitions.values():
        candidates = _candidates(
            [each for each in records if each.code == KafkaError.INVALID_TIMESTAMP]
        )
        invalid = [each for each in records if each.code == KafkaError.INVALID_RECORD]
        # The broker requires a key if the topic is compacted.
        lacks_key = not all(each.has_key for each in invalid)
        for each in records:
            if each in candidates:
                continue
            is_innocent = (
                each.code == _REJECTED_WITH_ANOTHER
                or (each.code == KafkaError.INVALID_RECORD and lacks_key and each.has_key)
                or (each.code == KafkaError.INVALID_TIMESTAMP and bool(candidates))
            )
            (classified.unaffected if is_innocent else classified.rejected).append(each)
        classified.candidates.extend(candidates)
    return classified


def _candidates(records: Sequence[_RejectedRecord]) -> list[_RejectedRecord]:
    """Return the earliest and the latest record, starting with the more likely one.

    One of them was rejected: all `records` have a timestamp error. The list is empty for a single
    record, because that record must be the rejected one.
    """
    if len(records) < 2:
        return []
    ordered = sorted(records, key=lambda each: each.timestamp)
    at_start = ordered[1].timestamp - ordered[0].timestamp
    at_end = ordered[-1].timestamp - ordered[-2].timestamp
    ends = [ordered[0], ordered[-1]]
    return ends if at_start >= at_end else ends[::-1]


class DeliveryTracker:
    """Collects delivery reports on the caller's thread.

    Reports arrive within `poll`, `flush` and commits. A failure is kept until `reset`: while the
    input of the lost record could be committed, every commit must fail. `drain` waits until all
    sent records are written or have failed.
    """

    def __init__(
        self,
        *,
        transactional: bool = False,
        reprocess_on_timeout: bool = False,
        user: str = "",
        drain: Callable[[], object] = lambda: None,
    ) -> None:
        self._drain = drain
        self._transactional = transactional
        self._reprocess_on_timeout = transactional or reprocess_on_timeout
        self._user = user
        #: Failed records whose handler was not called yet.
        self._undecided: deque[_RejectedRecord] = deque()
        self._sends_alone = False
        self._failure: StreamsError | None = None
        #: Whether the failure was caused by another record of the same batch.
        self._is_of_another = False
        #: The number of failed records since the last reset.
        self.failed = 0
        self._is_reported = False
        self._last_acked: dict[TopicPartition, Message] = {}
        self._acked: dict[TopicPartition, int] = {}
        #: The stores of changelog topics.
        self.changelogs: dict[str, Changelog] = {}

    def error_for(
        self, error: KafkaError, topic: str | None, partition: int | None
    ) -> StreamsError:
        changelog = None if topic is None else self.changelogs.get(topic)
        return delivery_error(
            error,
            topic,
            partition,
            changelog,
            reprocess_on_timeout=self._reprocess_on_timeout,
            user=self._user,
        )

    def record_failure(self, error: KafkaError, topic: str | None, partition: int | None) -> None:
        """Record the failure of a record without a handler."""
        if error.code() in _PURGED:
            # Dropped deliberately, by an aborted transaction or a close without waiting.
            return
        self.failed += 1
        # The error of the rejected record explains more than those of the rest of its batch.
        if self._failure is None or self._is_of_another:
            self._failure = self.error_for(error, topic, partition)
            self._is_of_another = error.code() == _REJECTED_WITH_ANOTHER

    def count_failures(self, count: int) -> None:
        """Count further failures after a recorded failure."""
        self.failed += count

    def record_acknowledged(self, partition: TopicPartition, offset: int) -> None:
        self._acked[partition] = offset

    def failures_only(self, error: KafkaError | None, message: Message) -> None:
        """A delivery callback that only records failures."""
        if error is not None:
            self._note(error, message)

    def acknowledgements(self, partition: TopicPartition) -> DeliveryCallback:
        """Create a callback that tracks the last acknowledged offset of a partition."""
        last_acked = self._last_acked

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                last_acked[partition] = message
            else:
                self._note(error, message)

        return on_delivery

    def callbacks_with_handler(
        self, handler: RejectionHandler, indices: Sequence[int], send_again: SendAgain
    ) -> list[DeliveryCallback]:
        """Create a delivery callback for each record of a send with a handler.

        `send_again` resends records that the broker rejected only because of another record of
        their batch.
        """
        return [partial(self._on_delivery, handler, index, send_again) for index in indices]

    def _on_delivery(
        self,
        handler: RejectionHandler,
        index: int,
        send_again: SendAgain,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        if error is None or error.code() in _PURGED:
            return
        failure = delivery_error(error, message.topic(), message.partition(), user=self._user)
        if isinstance(failure, ProductionError) and error.code() not in NOT_HANDLED:
            has_key, timestamp = message.key() is not None, message.timestamp()[1]
            self._undecided.append(
                _RejectedRecord(
                    handler,
                    index,
                    failure,
                    error.code(),
                    has_key,
                    timestamp,
                    self._sends_alone,
                    send_again,
                )
            )
        else:
            self._note(error, message)

    @property
    def undecided(self) -> int:
        """The number of failed records with pending handler calls."""
        return len(self._undecided)

    def decide(self) -> None:
        """Call the handlers of rejected records.

        This happens outside of librdkafka's callbacks, because handlers may send records. The other
        records of the batches are sent again in order, but after records that were sent meanwhile.
        Raises StreamsError if they cannot be sent. In a transaction, all records are sent again
        later, because the transaction cannot be committed.
        """
        failed = list(self._undecided)
        self._decide(failed)
        # Only remove the records now, so that they are still pending if a handler raises an
        # exception such as SystemExit.
        for _ in failed:
            self._undecided.popleft()

    def _decide(self, failed: Sequence[_RejectedRecord]) -> None:
        if self.failed:
            # As in Kafka Streams, the handler is not called, because nothing will be committed.
            self.failed += len(failed)
            return
        rejected, unaffected, candidates = _classify(failed)
        if self._transactional:
            # The transaction is lost, so candidates cannot be sent alone. Assume that the more
            # likely one of each pair was rejected.
            rejected = rejected + candidates[::2]
        for number, each in enumerate(rejected):
            failure = each.handler.failed(
                each.row, each.error, transaction_lost=self._transactional
            )
            if failure is not None:
                self.fail(failure)
                self.failed += len(failed) - number - 1
                return
        if not self._transactional:
            self._send_again(unaffected, candidates)

    def _send_again(
        self, unaffected: Sequence[_RejectedRecord], candidates: Sequence[_RejectedRecord]
    ) -> None:
        again: dict[SendAgain, list[int]] = {}
        for each in unaffected:
            again.setdefault(each.send_again, []).append(each.row)
        try:
            for send_again, rows in again.items():
                send_again(rows)
            if candidates:
                self._drain()
            for each in candidates:
                self._send_alone(each)
        except StreamsError as error:
            # Otherwise the input offsets of the unsent records could be committed.
            self.fail(error)
            raise

    def _send_alone(self, candidate: _RejectedRecord) -> None:
        """Send a record in a separate batch, so the response is about this record."""
        self._sends_alone = True
        try:
            candidate.send_again([candidate.row])
            self._drain()
        finally:
            self._sends_alone = False

    def acked_offsets(self) -> dict[TopicPartition, int]:
        """Return the last acknowledged offset of each partition, if known."""
        for partition, message in self._last_acked.items():
            offset = message.offset()
            # None if the response was lost: the record was written, but its offset is unknown.
            if offset is not None:
                self._acked[partition] = offset
        self._last_acked.clear()
        return dict(self._acked)

    def fail(self, failure: StreamsError) -> None:
        """Record a failure that does not come directly from a delivery report."""
        self.failed = max(1, self.failed)
        if self._failure is None or self._is_of_another:
            self._failure = failure
            self._is_of_another = False

    def first_failure(self) -> StreamsError | None:
        """Return a copy of the first failure, if any.

        Because each call returns a new copy, each raise has its own traceback.
        """
        if self._failure is None:
            return None
        self._is_reported = True
        failure = copy.copy(self._failure)
        if self.failed > 1:
            failure.message += f" Number of other failed records: {self.failed - 1}."
        return failure

    def unreported_failure(self) -> StreamsError | None:
        """Return the first failure if it was not reported yet."""
        return None if self._is_reported else self.first_failure()

    def reset(self) -> None:
        self.clear_failures()
        self._last_acked.clear()
        self._acked.clear()

    def clear_failures(self) -> None:
        self._undecided.clear()
        self._failure = None
        self._is_of_another = False
        self.failed = 0
        self._is_reported = False

    def _note(self, error: KafkaError, message: Message) -> None:
        self.record_failure(error, message.topic(), message.partition())
