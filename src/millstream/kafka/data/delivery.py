"""What became of the records that were handed to librdkafka: the first failure, and the last
acknowledged offsets."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, Message

from millstream.errors import ProductionError, StreamsError
from millstream.kafka.data.producer_errors import UNASKED, Changelog, delivery_error
from millstream.kafka.data.watch import Watch
from millstream.record import TopicPartition

#: Called by librdkafka for each record it reports on.
DeliveryCallback = Callable[[KafkaError | None, Message], None]

#: Resends records of a send, by their indices there.
SendAgain = Callable[[Sequence[int]], None]

#: The broker rejected another record of the same batch, and the whole batch with it (KIP-467).
#: librdkafka reports it only for a batch with several rejected records: otherwise all records of
#: the batch have the error of the rejected one.
_REJECTED_WITH_ANOTHER: Final = KafkaError._INVALID_DIFFERENT_RECORD

_PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


class _Rejected(NamedTuple):
    """A watched record that was not written."""

    watch: Watch
    #: Its index, as the watch numbers the records of the send.
    row: int
    error: ProductionError
    code: int
    has_key: bool
    timestamp: int
    #: Whether it was sent in a batch of its own, so that the error is about this record.
    is_alone: bool
    send_again: SendAgain


class _Verdicts(NamedTuple):
    """What happens with watched records that failed.

    Args:
        rejected: the handler decides about them.
        innocent: they failed because of another record of their batch.
        suspects: pairs of records, of which one is the rejected one; the likelier first.
    """

    rejected: list[_Rejected]
    innocent: list[_Rejected]
    suspects: list[_Rejected]


def _verdicts(failed: Iterable[_Rejected]) -> _Verdicts:
    """Find the records that the broker has rejected among those of their batches.

    A batch may have records of several sends, but of one partition only.
    """
    partitions: dict[tuple[str | None, int | None], list[_Rejected]] = {}
    verdicts = _Verdicts([], [], [])
    for each in failed:
        if each.is_alone:
            verdicts.rejected.append(each)
        else:
            partitions.setdefault((each.error.topic, each.error.partition), []).append(each)
    for records in partitions.values():
        suspects = _suspects(
            [each for each in records if each.code == KafkaError.INVALID_TIMESTAMP]
        )
        invalid = [each for each in records if each.code == KafkaError.INVALID_RECORD]
        # The broker requires a key where the topic is compacted.
        lacks_key = not all(each.has_key for each in invalid)
        for each in records:
            if each in suspects:
                continue
            is_innocent = (
                each.code == _REJECTED_WITH_ANOTHER
                or (each.code == KafkaError.INVALID_RECORD and lacks_key and each.has_key)
                or (each.code == KafkaError.INVALID_TIMESTAMP and bool(suspects))
            )
            (verdicts.innocent if is_innocent else verdicts.rejected).append(each)
        verdicts.suspects.extend(suspects)
    return verdicts


def _suspects(records: Sequence[_Rejected]) -> list[_Rejected]:
    """Of records with the error of one timestamp: the earliest and the latest, the likelier first.

    None if there is only one record, which is the rejected one.
    """
    if len(records) < 2:
        return []
    ordered = sorted(records, key=lambda each: each.timestamp)
    at_start = ordered[1].timestamp - ordered[0].timestamp
    at_end = ordered[-1].timestamp - ordered[-2].timestamp
    ends = [ordered[0], ordered[-1]]
    return ends if at_start >= at_end else ends[::-1]


class Deliveries:
    """Collects what is learned of deliveries, within `poll`, `flush` and commits or after them, on
    the caller's thread.

    A failure stays until it is forgotten: as long as anybody may still commit what the lost record
    was made from, every commit has to fail.

    Args:
        transactional: whether records are parts of transactions.
        begins_anew: whether the work since the last commit is to be done again after a record that
            nobody took in time; always so in a transaction.
        user: who writes them, if that is known.
        drain: waits until all records that were sent are written or have failed.
    """

    def __init__(
        self,
        *,
        transactional: bool = False,
        begins_anew: bool = False,
        user: str = "",
        drain: Callable[[], object] = lambda: None,
    ) -> None:
        self._drain = drain
        self._transactional = transactional
        self._begins_anew = transactional or begins_anew
        self._user = user
        #: Records that failed and are watched.
        self._undecided: deque[_Rejected] = deque()
        self._sends_alone = False
        self._failure: StreamsError | None = None
        #: Whether the failure is that of another record of the same batch.
        self._is_of_another = False
        self._failed = 0
        self._told = False
        self._last_acked: dict[TopicPartition, Message] = {}
        self._acked: dict[TopicPartition, int] = {}
        #: Whose changes are in the topics that are changelogs.
        self.changelogs: dict[str, Changelog] = {}

    def error_for(
        self, error: KafkaError, topic: str | None, partition: int | None
    ) -> StreamsError:
        """The error to raise for a record that was not delivered."""
        changelog = None if topic is None else self.changelogs.get(topic)
        return delivery_error(
            error, topic, partition, changelog, begins_anew=self._begins_anew, user=self._user
        )

    @property
    def failed(self) -> int:
        """How many records failed and are not forgotten."""
        return self._failed

    def lost(self, error: KafkaError, topic: str | None, partition: int | None) -> None:
        """A record that nobody watches was not delivered.

        Args:
            error: why.
            topic: where it was to go.
            partition: where it was to go, if that was decided.
        """
        if error.code() in _PURGED:
            # Given up on purpose: an aborted transaction, or a close that does not wait.
            return
        self._failed += 1
        # The record that was rejected itself says more than those of its batch, before or after.
        if self._failure is None or self._is_of_another:
            self._failure = self.error_for(error, topic, partition)
            self._is_of_another = error.code() == _REJECTED_WITH_ANOTHER

    def lost_more(self, count: int) -> None:
        """As many more records failed, after one that was told of."""
        self._failed += count

    def acknowledged(self, partition: TopicPartition, offset: int) -> None:
        """The last acknowledged offset of a partition."""
        self._acked[partition] = offset

    def failures_only(self, error: KafkaError | None, message: Message) -> None:
        """A callback for records whose success is of no interest."""
        if error is not None:
            self._note(error, message)

    def acknowledgements(self, partition: TopicPartition) -> DeliveryCallback:
        """A callback for records of one partition whose last acknowledged offset is wanted."""
        last_acked = self._last_acked

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                last_acked[partition] = message
            else:
                self._note(error, message)

        return on_delivery

    def watched(
        self, watch: Watch, indices: Sequence[int], send_again: SendAgain
    ) -> list[DeliveryCallback]:
        """A callback for each record of a send whose failures the watch decides about.

        Args:
            watch: decides.
            indices: of the records, as the watch numbers them.
            send_again: resends records that the broker rejected only because of another one in
                their batch.
        """
        return [partial(self._on_watched, watch, index, send_again) for index in indices]

    def _on_watched(
        self,
        watch: Watch,
        index: int,
        send_again: SendAgain,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        if error is None or error.code() in _PURGED:
            return
        told = delivery_error(error, message.topic(), message.partition(), user=self._user)
        if isinstance(told, ProductionError) and error.code() not in UNASKED:
            has_key, timestamp = message.key() is not None, message.timestamp()[1]
            self._undecided.append(
                _Rejected(
                    watch,
                    index,
                    told,
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
        """How many watched records failed that nobody has decided about yet."""
        return len(self._undecided)

    def decide(self) -> None:
        """Let those who watch decide. Not from within a callback of librdkafka: they may send.

        The handler is asked about the records that the broker rejected. The others of their
        batches are sent again, in order, but behind the records that were sent meanwhile. In a
        transaction they are sent again with all the others, since it cannot be committed.

        Raises:
            StreamsError: a record could not be sent again.
        """
        failed = list(self._undecided)
        self._decide(failed)
        # Only now: if a handler ends with an error such as SystemExit, they stay undecided.
        for _ in failed:
            self._undecided.popleft()

    def _decide(self, failed: Sequence[_Rejected]) -> None:
        if self._failed:
            # Follows Kafka Streams: the handler is not called, since nothing will be committed.
            self._failed += len(failed)
            return
        rejected, innocent, suspects = _verdicts(failed)
        if self._transactional:
            # The transaction is lost, so no suspect can be sent alone: take the likelier ones.
            rejected = rejected + suspects[::2]
        for number, each in enumerate(rejected):
            failure = each.watch.failed(each.row, each.error, transaction_lost=self._transactional)
            if failure is not None:
                self.fail(failure)
                self._failed += len(failed) - number - 1
                return
        if not self._transactional:
            self._send_again(innocent, suspects)

    def _send_again(self, innocent: Sequence[_Rejected], suspects: Sequence[_Rejected]) -> None:
        again: dict[SendAgain, list[int]] = {}
        for each in innocent:
            again.setdefault(each.send_again, []).append(each.row)
        try:
            for send_again, rows in again.items():
                send_again(rows)
            if suspects:
                self._drain()
            for each in suspects:
                self._send_alone(each)
        except StreamsError as error:
            # Otherwise the offsets of the records that were not sent could be committed.
            self.fail(error)
            raise

    def _send_alone(self, suspect: _Rejected) -> None:
        """Send a record in a batch of its own, so that the broker's answer is about this record."""
        self._sends_alone = True
        try:
            suspect.send_again([suspect.row])
            self._drain()
        finally:
            self._sends_alone = False

    def acked_offsets(self) -> dict[TopicPartition, int]:
        """The last acknowledged offset of each partition, as far as known."""
        for partition, message in self._last_acked.items():
            offset = message.offset()
            # None after a lost answer: the record is there, but only an earlier offset is certain.
            if offset is not None:
                self._acked[partition] = offset
        self._last_acked.clear()
        return dict(self._acked)

    def fail(self, failure: StreamsError) -> None:
        """Keep a failure that was not reported for a record of its own."""
        self._failed = max(1, self._failed)
        if self._failure is None or self._is_of_another:
            self._failure = failure
            self._is_of_another = False

    def tell_failure(self) -> StreamsError | None:
        """The first failure, if any: at each call an error of its own, so that each can be raised
        with a traceback of its own."""
        if self._failure is None:
            return None
        self._told = True
        failure = copy.copy(self._failure)
        if self._failed > 1:
            failure.message += f" {self._failed - 1} more records failed as well."
        return failure

    def untold_failure(self) -> StreamsError | None:
        """The first failure, if nobody has heard of any."""
        return None if self._told else self.tell_failure()

    def forget(self) -> None:
        """Begin anew, without failures and acknowledged offsets."""
        self.forget_failures()
        self._last_acked.clear()
        self._acked.clear()

    def forget_failures(self) -> None:
        """The records that failed are not wanted any more."""
        self._undecided.clear()
        self._failure = None
        self._is_of_another = False
        self._failed = 0
        self._told = False

    def _note(self, error: KafkaError, message: Message) -> None:
        self.lost(error, message.topic(), message.partition())
