"""What became of the records that were handed to librdkafka: the first failure, and the last
acknowledged offsets."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, Message

from millstream.errors import ProductionError, StreamsError
from millstream.kafka.data.producer_errors import UNASKED, Changelog, delivery_error
from millstream.kafka.data.watch import Watch
from millstream.record import TopicPartition

#: Called by librdkafka for each record it reports on.
DeliveryCallback = Callable[[KafkaError | None, Message], None]

_PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


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
    """

    def __init__(
        self, *, transactional: bool = False, begins_anew: bool = False, user: str = ""
    ) -> None:
        self._transactional = transactional
        self._begins_anew = transactional or begins_anew
        self._user = user
        #: Records that failed and are watched: what for, their index, and why they failed.
        self._undecided: deque[tuple[Watch, int, ProductionError]] = deque()
        self._failure: StreamsError | None = None
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
        if self._failure is None:
            self._failure = self.error_for(error, topic, partition)

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

    def watched(self, watch: Watch, count: int) -> list[DeliveryCallback]:
        """A callback for each record of a send, whose failures somebody decides about."""
        return [partial(self._on_watched, watch, index) for index in range(count)]

    def _on_watched(
        self, watch: Watch, index: int, error: KafkaError | None, message: Message
    ) -> None:
        if error is None or error.code() in _PURGED:
            return
        told = delivery_error(error, message.topic(), message.partition(), user=self._user)
        if isinstance(told, ProductionError) and error.code() not in UNASKED:
            self._undecided.append((watch, index, told))
        else:
            self._note(error, message)

    @property
    def undecided(self) -> int:
        """How many watched records failed that nobody has decided about yet."""
        return len(self._undecided)

    def decide(self) -> None:
        """Let those who watch decide. Not from within a callback of librdkafka: they may send."""
        while self._undecided:
            watch, index, error = self._undecided.popleft()
            if self._failed:
                # Follows Kafka Streams: nobody is asked any more, since nothing will be committed.
                self._failed += 1
                continue
            failure = watch.failed(index, error, transaction_lost=self._transactional)
            if failure is not None:
                self.fail(failure)

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
        self._failure = self._failure or failure

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
        self._failed = 0
        self._told = False

    def _note(self, error: KafkaError, message: Message) -> None:
        self.lost(error, message.topic(), message.partition())
