"""The producer of records for sinks, repartition topics and changelogs.

A failed record is never ignored: the first failure is stored with its location, and every `send`,
`flush` and commit raises it until `purge` drops the work that the record belongs to. Until then, no
input offset of that work can be committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from millstream.clock import Clock, Deadline, SystemClock
from millstream.errors import (
    BrokerUnavailableError,
    IllegalStateError,
    RecordRefusedError,
    StreamsError,
    TaskMigratedError,
)
from millstream.kafka.clients.delivery import DeliveryTracker, RejectionHandler, SendAgain
from millstream.kafka.clients.producer_clients import BatchLimits, ProducerClients
from millstream.kafka.clients.producer_errors import (
    RAISED,
    Changelog,
    migrated_error,
    reported_error,
)
from millstream.kafka.clients.writer import (
    ColumnWriter,
    MessageSend,
    MessageWriter,
    PendingSend,
    SendColumns,
    Writer,
    written_times,
)
from millstream.kafka.speedups import chosen_speedups
from millstream.kafka.user_permissions import user_of
from millstream.record import Headers, TopicPartition

_log = logging.getLogger(__name__)

_QUEUE_FULL_POLL_S: Final = 0.01
_MAX_BLOCK_MS: Final = 60_000
_CLOSE_TIMEOUT_MS: Final = 10_000
_PURGE_TIMEOUT_MS: Final = 1_000
#: How long to wait for other records before a record of a rejected batch is sent alone.
_ISOLATION_TIMEOUT_MS: Final = 10_000
_SEND_NOW_TIMEOUT_MS: Final = 1
#: The interval of warnings about a full queue if `max.block.ms` is 0.
_WARNS_EVERY_MS: Final = 1_000


class RecordProducer:
    """Writes records in order per partition. Not thread-safe.

    `buffer.memory` limits the queue of unsent records. If the queue is full, a send waits for
    space, and logs a warning every `max_block_ms` (`max.block.ms`). It raises an error instead of
    the first warning that is due after `task_timeout_ms` (`task.timeout.ms`). With
    `reprocess_on_timeout`, a TaskMigratedError is raised if a record without a handler was not
    delivered in time, so the work since the last commit is repeated. The constructor raises
    ConfigError if librdkafka rejects a setting, or if `speedups` requires the extension and it is
    missing.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        transactional_id: str | None = None,
        clock: Clock | None = None,
        *,
        limits: BatchLimits | None = None,
        max_block_ms: int = _MAX_BLOCK_MS,
        task_timeout_ms: int = 0,
        reprocess_on_timeout: bool = False,
        speedups: bool | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._limits = limits
        #: The maximum batch size of each topic written so far.
        self._max_bytes: dict[str, int | None] = {}
        self._warns_every_ms = max_block_ms or _WARNS_EVERY_MS
        self._task_timeout_ms = task_timeout_ms
        #: Called repeatedly while a send waits for space, to report that the caller is alive.
        self.on_wait: Callable[[], None] = lambda: None
        self._deliveries = DeliveryTracker(
            transactional=transactional_id is not None,
            reprocess_on_timeout=reprocess_on_timeout,
            user=user_of(settings),
            drain=lambda: self._flush_clients(_ISOLATION_TIMEOUT_MS),
        )
        self._is_deciding = False
        self._writer = self._create_writer(speedups, transactional=transactional_id is not None)
        self._clients = ProducerClients(settings, transactional_id, self._writer, self._clock)
        self._tracked_topics: set[str] = set()
        #: The number of records sent since the last `flush`, `send_lingering`, or assignment to
        #: this attribute. They may be lingering.
        self.unflushed_records = 0

    def _create_writer(self, speedups_setting: bool | None, *, transactional: bool) -> Writer:
        speedups = chosen_speedups(speedups_setting)
        if speedups is None:
            return MessageWriter(self._deliveries, transactional=transactional)
        return ColumnWriter(speedups, self._deliveries)

    def track(self, topic: str, changelog: Changelog | None = None) -> None:
        """Track the last acknowledged offset of each partition of a topic.

        For changelogs and similar topics. Records of a tracked topic need an explicit partition.
        Errors name the store of the changelog.
        """
        self._tracked_topics.add(topic)
        if changelog is not None:
            self._deliveries.changelogs[topic] = changelog
        self._clients.track()

    def acked_offsets(self) -> dict[TopicPartition, int]:
        """Return the last acknowledged offset of each partition of the tracked topics.

        The offsets are complete after `flush`. If a response of the broker was lost, an earlier
        offset is returned, which is safe: a restore then reads more than necessary.
        """
        self._writer.collect_offsets(self._tracked_topics)
        return self._deliveries.acked_offsets()

    def send(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers | None = None,
    ) -> None:
        self.send_many(
            topic, partition, [key], [value], [timestamp], [headers] if headers else None
        )

    def send_many(
        self,
        topic: str,
        partitions: int | Sequence[int | None] | None,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers | None] | None = None,
    ) -> None:
        """Send records in order, without waiting for the broker.

        Args:
            partitions: one partition for all records, a list with one for each record, or None to
                hash each record's key like Kafka's default partitioner (in a list, None does so for
                one record).
            timestamps: milliseconds since the epoch. librdkafka cannot write 0, so 1 is written
                instead.
            headers: the headers of each record, or None for a record without headers; None if no
                record has headers.

        Raises:
            RecordRefusedError: the client rejected one record; the records before it were sent.
            ProductionError: an earlier record failed. Raised until `purge`.
            BrokerUnavailableError: the queue was full for too long, and some of the records may
                have been sent; or the maximum batch size of the topic could not be read.
            TaskMigratedError: another producer has taken over.
            IllegalStateError: the producer is closed, or a tracked topic has no explicit partition.
        """
        if not values:
            return
        self.unflushed_records += len(values)
        if not len(keys) == len(values) == len(timestamps):
            raise ValueError(
                "The numbers of keys, values and timestamps differ: "
                f"{len(keys)}, {len(values)} and {len(timestamps)}."
            )
        client = self._route(topic, partitions)
        records = SendColumns(topic, partitions, keys, values, timestamps, headers)
        tracked = topic in self._tracked_topics
        self._hand_over(client, self._writer.create_send(client, records, tracked=tracked))

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
        """Send records to an untracked topic, with a handler for failed records.

        Otherwise like `send_many`. The handler is called during this call or a later one; after a
        flush, it has been called for all failed records. If the handler returns an error, that
        error is raised.
        """
        if not values:
            return
        times = written_times(timestamps)
        records = SendColumns(topic, partitions, keys, values, times, headers)

        def send(indices: Sequence[int]) -> None:
            self._send_with_handler(records, handler, send, indices)

        send(range(len(values)))

    def _send_with_handler(
        self,
        records: SendColumns,
        handler: RejectionHandler,
        again: SendAgain,
        indices: Sequence[int],
    ) -> None:
        self.unflushed_records += len(indices)
        client = self._route(records.topic, records.partitions)
        callbacks = self._deliveries.callbacks_with_handler(handler, indices, again)
        start = 0
        while start < len(indices):
            left = records.taken(indices[start:])
            batch = MessageSend(client.produce, left, None, None, callbacks[start:])
            try:
                self._hand_over(client, batch)
                return
            except RecordRefusedError as error:
                start += error.index
                failure = handler.failed(indices[start], error, transaction_lost=False)
                if failure is not None:
                    raise failure from error.__cause__
                start += 1

    def _hand_over(self, client: Producer, batch: PendingSend) -> None:
        full: _FullQueue | None = None
        while True:
            try:
                batch.write()
                break
            except BufferError:
                full = self._wait_for_room(client, batch, full)
            except KafkaException as error:
                raise self._rejection(error, batch) from error
            except (TypeError, ValueError, OverflowError) as error:
                raise _invalid_record(error, batch) from error
        self._serve(client)

    def send_lingering(self) -> None:
        """Send lingering records (`linger.ms`) immediately.

        Waits up to 1 ms for librdkafka's threads to send the records; unsent records continue to
        linger. Later calls raise the failures.
        """
        self.unflushed_records = 0
        self._flush_clients(_SEND_NOW_TIMEOUT_MS)
        self._decide()

    def flush(self, timeout_ms: int) -> None:
        """Wait until every record is acknowledged or has failed.

        Raises:
            ProductionError: a record failed; the message contains the number of other failures.
                Raised until `purge`.
            TaskMigratedError: another producer has taken over.
            BrokerUnavailableError: not all records were acknowledged in time. They are still in
                flight: flush again.
        """
        self._raise_failure()
        self.unflushed_records = 0
        deadline = Deadline(self._clock, timeout_ms)
        left = self._flush_clients(deadline.remaining_ms(timeout_ms))
        while self._decide():
            # The handler may have sent records.
            left = self._flush_clients(deadline.remaining_ms(timeout_ms))
        self._raise_failure()
        if left:
            raise BrokerUnavailableError(
                f"{left} records were not acknowledged within {timeout_ms} ms"
                f"{self._clients.connection_hint()}. They are still being sent; check that the "
                "brokers are reachable."
            )

    def _flush_clients(self, timeout_ms: int) -> int:
        """Flush, and return the number of records that were not acknowledged in time."""
        deadline = Deadline(self._clock, timeout_ms)
        left = 0
        for client in self._clients.all():
            try:
                left += client.flush(deadline.remaining_ms(timeout_ms) / 1_000)
            except RAISED as error:
                raise self._record_fatal_error(error, "Flushing") from error
            finally:
                self._writer.collect_failures()
        return left

    def _decide(self) -> bool:
        """Call the handlers of failed records. Returns whether there were failed records."""
        if self._is_deciding or not self._deliveries.undecided:
            return False
        self._is_deciding = True
        try:
            self._deliveries.decide()
        finally:
            self._is_deciding = False
        return True

    def purge(self, timeout_ms: int = _PURGE_TIMEOUT_MS) -> None:
        """Drop unsent records, and reset failures and acknowledged offsets.

        Only call this when all tasks of the thread are closed without a commit (they were lost,
        have migrated, or the thread failed): it drops the records of all tasks, and a later commit
        would skip the dropped records. If called before the next owner gets the tasks, no records
        of this producer follow the records of that owner.

        Waits up to `timeout_ms` for the responses to records in flight. Unacknowledged records are
        not sent again, but a stalled broker may still read them from its socket. Afterwards, the
        producer can be used again, even after a fatal error.
        """
        self._clients.replace(timeout_ms)
        self._deliveries.reset()

    @property
    def unacknowledged(self) -> int:
        """The number of pending records and delivery reports."""
        return sum(map(len, self._clients.all()))

    def close(self, timeout_ms: int = _CLOSE_TIMEOUT_MS) -> None:
        """Send the remaining records within the timeout, and close.

        Drops records that are still unacknowledged, with a warning. An open transaction is not
        completed: its unsent records are dropped, and the next producer with the same transactional
        ID aborts it. Can be called several times. With a timeout of 0, unsent records are dropped
        immediately.
        """
        if self._clients.closed:
            return
        self._clients.close(timeout_ms)
        failure = self._deliveries.unreported_failure()
        if failure is not None:
            _log.warning("The producer closes with an unreported failure: %s", failure)

    def _serve(self, client: Producer, timeout_s: float = 0) -> None:
        try:
            client.poll(timeout_s)
        except RAISED as error:
            raise self._record_fatal_error(error, "Sending records") from error
        self._writer.collect_failures()
        self._decide()

    def _record_fatal_error(self, raised: BaseException, action: str) -> StreamsError:
        """Store a fatal error, which the client reports only once.

        The client's records are lost.
        """
        failure = migrated_error(reported_error(raised), action)
        self._deliveries.fail(failure)
        return failure

    def _route(self, topic: str, partitions: int | Sequence[int | None] | None) -> Producer:
        """Return the client for a topic, ready for records."""
        clients = self._clients
        if clients.closed:
            raise IllegalStateError("The producer is closed.", topic=topic)
        if self._deliveries.failed or clients.access_failure is not None:
            self._raise_failure()
        tracked = topic in self._tracked_topics
        client = clients.client_for(tracked=tracked, max_bytes=self._largest_batch(topic))
        if tracked and not isinstance(partitions, int):
            raise IllegalStateError("A tracked topic needs one explicit partition.", topic=topic)
        self._before_records()
        return client

    #: A hook that is called before records are passed to the client.
    def _before_records(self) -> None: ...

    def _largest_batch(self, topic: str) -> int | None:
        """Return the topic's maximum batch size.

        Cached, because a different limit could select another client and break the record order.
        """
        try:
            return self._max_bytes[topic]
        except KeyError:
            limit = None if self._limits is None else self._limits.of(topic, self.on_wait)
            self._max_bytes[topic] = limit
            return limit

    def _wait_for_room(
        self, client: Producer, batch: PendingSend, full: _FullQueue | None
    ) -> _FullQueue:
        if full is None or full.index != batch.last_attempted:
            wait = Deadline(self._clock, self._warns_every_ms)
            full = _FullQueue(batch.last_attempted, self._clock.monotonic_ms(), wait)
        else:
            self.on_wait()
            if full.wait.passed:
                self._full_since(full.began_ms, batch.records.topic)
                full.wait = Deadline(self._clock, self._warns_every_ms)
        self._serve(client, _QUEUE_FULL_POLL_S)
        return full

    def _full_since(self, began_ms: int, topic: str) -> None:
        """Warn about a queue that has been full for `max_block_ms`.

        After the task timeout, raise an error instead.
        """
        waited_ms = self._clock.monotonic_ms() - began_ms
        problem = (
            f"The producer's queue has been full for {waited_ms / 1000:.1f} s"
            f"{self._clients.connection_hint()}: the brokers are slower than the application, or "
            "unreachable."
        )
        if waited_ms >= self._task_timeout_ms:
            raise BrokerUnavailableError(
                f"{problem} Check the brokers, or raise buffer.memory, max.block.ms or "
                "task.timeout.ms.",
                topic=topic,
            )
        _log.warning("%s A record for %s is waiting for space.", problem, topic)

    def _rejection(self, raised: KafkaException, batch: PendingSend) -> StreamsError:
        error: KafkaError = raised.args[0]
        index = batch.last_attempted
        if error.code() == KafkaError._STATE:
            earlier = self._earlier_failure()
            if earlier is not None:
                return earlier
        failure = self._deliveries.error_for(
            error, batch.records.topic, batch.records.partition(index)
        )
        if isinstance(failure, TaskMigratedError) or error.fatal():
            return self._record_fatal_error(raised, "Sending a record")
        rejected = RecordRefusedError(
            failure.message, index=index, topic=batch.records.topic, partition=failure.partition
        )
        rejected.task_id = failure.task_id
        return rejected

    def _earlier_failure(self) -> StreamsError | None:
        """Return the failure of an earlier record, if any.

        After such a failure, the client rejects records.
        """
        return self._deliveries.first_failure()

    def _raise_failure(self) -> None:
        failure = self._deliveries.first_failure() or self._clients.access_failure
        self._clients.access_failure = None
        if failure is not None:
            raise failure


@dataclass(slots=True)
class _FullQueue:
    """A record that is waiting for space in the producer's queue.

    Contains the index of the record, the start of the wait, and the deadline of the next warning.
    """

    index: int
    began_ms: int
    wait: Deadline


def _invalid_record(error: Exception, batch: PendingSend) -> RecordRefusedError:
    return RecordRefusedError(
        f"A record was not written, because the client rejected it: {type(error).__name__}: "
        f"{error}. Headers must be pairs of a str and bytes (or None), and the timestamp must "
        "be in milliseconds since the epoch.",
        index=batch.last_attempted,
        topic=batch.records.topic,
    )
