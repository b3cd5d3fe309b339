"""The data client that writes: records to sinks, repartition topics and changelogs.

A record that fails is never lost from sight: the first failure is kept with its place, and raised
by every `send`, `flush` and commit from then on, until what the record belongs to is given up
(`purge`). So whatever happens in between, no offset is committed past it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from millstream.clock import Clock, Deadline, SystemClock
from millstream.errors import (
    BrokerUnavailableError,
    IllegalStateError,
    RecordRefusedError,
    StreamsError,
    TaskMigratedError,
)
from millstream.kafka.data.batch_limits import BatchLimits
from millstream.kafka.data.column_writer import ColumnWriter
from millstream.kafka.data.delivery import Deliveries, DeliveryCallback, SendAgain
from millstream.kafka.data.message_writer import MessageWriter, written_times
from millstream.kafka.data.outgoing_records import OutgoingRecords
from millstream.kafka.data.producer_clients import ProducerClients
from millstream.kafka.data.producer_errors import (
    RAISED,
    Changelog,
    migrated_error,
    reported_error,
)
from millstream.kafka.data.watch import Watch
from millstream.kafka.data.writer import Outgoing, Writer
from millstream.kafka.rights import user_of
from millstream.kafka.speedups import chosen_speedups
from millstream.record import Headers, TopicPartition

_log = logging.getLogger(__name__)

T = TypeVar("T")

_QUEUE_FULL_POLL_S: Final = 0.01
_MAX_BLOCK_MS: Final = 60_000
_CLOSE_TIMEOUT_MS: Final = 10_000
_PURGE_TIMEOUT_MS: Final = 1_000
#: How long to wait for other records, so that a suspect of a rejected batch is sent alone.
_ISOLATION_TIMEOUT_MS: Final = 10_000
_AT_ONCE_MS: Final = 1
#: How often a full queue is reported where `max.block.ms` is 0.
_WARNS_EVERY_MS: Final = 1_000


class RecordProducer:
    """Writes records in order, partition by partition. Not thread-safe.

    The queue of unsent records is bounded by `buffer.memory`; when it is full, a send waits for
    room: with a warning each `max_block_ms`, until `task_timeout_ms` have passed.

    Args:
        settings: from `librdkafka_settings` for "producer".
        transactional_id: of a `TransactionalRecordProducer`.
        clock: where deadlines are measured.
        limits: knows how large a batch each topic takes; without it all take any.
        max_block_ms: `max.block.ms`, how long a send waits for room before it says so.
        task_timeout_ms: `task.timeout.ms`, how long it goes on waiting; at least `max_block_ms`.
        begins_anew: whether the work since the last commit is to be done again after a record that
            nobody took in time and nobody watches: a TaskMigratedError then.
        speedups: whether records are written by the C extension; None for where that can be used.

    Raises:
        ConfigError: librdkafka refuses a setting, or the extension was asked for and is not there.
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
        begins_anew: bool = False,
        speedups: bool | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._limits = limits
        #: Of the topics that were written to.
        self._most_bytes: dict[str, int | None] = {}
        self._warns_every_ms = max_block_ms or _WARNS_EVERY_MS
        self._task_timeout_ms = task_timeout_ms
        #: Called again and again while a send waits for room, so that those who watch whether the
        #: caller is alive can be told.
        self.on_wait: Callable[[], None] = lambda: None
        self._deliveries = Deliveries(
            transactional=transactional_id is not None,
            begins_anew=begins_anew,
            user=user_of(settings),
            drain=lambda: self._flush_clients(_ISOLATION_TIMEOUT_MS),
        )
        self._is_deciding = False
        self._writer = self._made_writer(speedups, transactional=transactional_id is not None)
        self._clients = ProducerClients(settings, transactional_id, self._writer, self._clock)
        self._tracked_topics: set[str] = set()
        #: How many records were handed over since `flush` or `send_at_once`, or since somebody set
        #: this: they may wait for more to come with them.
        self.held_back = 0

    def _made_writer(self, asked: bool | None, *, transactional: bool) -> Writer:
        speedups = chosen_speedups(asked)
        if speedups is None:
            return MessageWriter(self._deliveries, transactional=transactional)
        return ColumnWriter(speedups, self._deliveries)

    def track(self, topic: str, changelog: Changelog | None = None) -> None:
        """From now on, keep the last acknowledged offset of each partition of a topic: a changelog.

        Records of a tracked topic need an explicit partition.

        Args:
            topic: the topic.
            changelog: whose it is, for errors.
        """
        self._tracked_topics.add(topic)
        if changelog is not None:
            self._deliveries.changelogs[topic] = changelog
        self._clients.track()

    def acked_offsets(self) -> dict[TopicPartition, int]:
        """The offset of the last acknowledged record of each partition of the tracked topics.

        Complete after `flush`. Where the broker's answer was lost,
        an earlier offset stands, which is always safe: more is restored than needed.
        """
        self._writer.learn_offsets(self._tracked_topics)
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
        """Hand over one record; see `send_many`."""
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
        """Hand records over, in order, without waiting for the broker.

        Args:
            topic: where they go.
            partitions: one for all, one for each, or None to hash each record's key as Kafka's
                default partitioner does (in a list, None means the same for one record).
            keys: serialized keys.
            values: serialized values, as many.
            timestamps: milliseconds since the epoch, as many. librdkafka cannot write 0, so 1 is
                written for it.
            headers: for each record its headers or nothing; None when there are none at all.

        Raises:
            RecordRefusedError: one record was refused at once; those before it were handed over.
            ProductionError: an earlier record failed. Raised until `purge`.
            BrokerUnavailableError: the queue was full for too long; the records that had room are
                on their way. Or nobody told how large a batch the topic takes.
            TaskMigratedError: another producer has taken over.
            IllegalStateError: closed, or a tracked topic without a partition.
        """
        if not values:
            return
        self.held_back += len(values)
        if not len(keys) == len(values) == len(timestamps):
            raise ValueError(
                f"{len(keys)} keys, {len(values)} values and {len(timestamps)} timestamps are not "
                "records."
            )
        client = self._route(topic, partitions)
        outgoing = self._writer.outgoing(
            client,
            topic,
            partitions,
            keys,
            values,
            timestamps,
            headers,
            tracked=topic in self._tracked_topics,
        )
        self._hand_over(client, outgoing)

    def send_watched(
        self,
        topic: str,
        partitions: Sequence[int | None] | None,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers | None] | None,
        watch: Watch,
    ) -> None:
        """The same as `send_many`, for a topic that is not tracked, with somebody who decides about
        the records that fail: now, or in a later call. After a flush all is decided.

        Raises:
            StreamsError: what the one who decides wants to be raised.
        """
        if not values:
            return
        times = written_times(timestamps)
        records = _WatchedRecords(topic, partitions, keys, values, times, headers, watch)
        self._send_watched(records, self._again(records), range(len(values)))

    def _again(self, records: _WatchedRecords) -> SendAgain:
        def again(indices: Sequence[int]) -> None:
            self._send_watched(records, again, indices)

        return again

    def _send_watched(
        self, records: _WatchedRecords, again: SendAgain, indices: Sequence[int]
    ) -> None:
        self.held_back += len(indices)
        client = self._route(records.topic, records.partitions)
        callbacks = self._deliveries.watched(records.watch, indices, again)
        start = 0
        while start < len(indices):
            batch = records.outgoing(client, indices[start:], callbacks[start:])
            try:
                self._hand_over(client, batch)
                return
            except RecordRefusedError as error:
                start += error.index
                failure = records.watch.failed(indices[start], error, transaction_lost=False)
                if failure is not None:
                    raise failure from error.__cause__
                start += 1

    def _hand_over(self, client: Producer, batch: Outgoing) -> None:
        full: _FullQueue | None = None
        while True:
            try:
                batch.write()
                break
            except BufferError:
                full = self._wait_for_room(client, batch, full)
            except KafkaException as error:
                raise self._refusal(error, batch) from error
            except (TypeError, ValueError, OverflowError) as error:
                raise _not_understood(error, batch) from error
        self._serve(client)

    def send_at_once(self) -> None:
        """Let go of what waits for more to come with it (`linger.ms`).

        Waits for a millisecond at most, in which librdkafka's threads see it; if they do not, the
        records wait on as ever. What fails is raised by a later call.
        """
        self.held_back = 0
        self._flush_clients(_AT_ONCE_MS)
        self._decide()

    def flush(self, timeout_ms: int) -> None:
        """Wait until every record is acknowledged or has failed.

        Raises:
            ProductionError: a record failed; the message tells how many more did. Raised until
                `purge`.
            TaskMigratedError: another producer has taken over.
            BrokerUnavailableError: not all were acknowledged in time. They are still on their way:
                flush again.
        """
        self._raise_failure()
        self.held_back = 0
        deadline = Deadline(self._clock, timeout_ms)
        left = self._flush_clients(deadline.remaining_ms(timeout_ms))
        while self._decide():
            # Who decides may have sent something.
            left = self._flush_clients(deadline.remaining_ms(timeout_ms))
        self._raise_failure()
        if left:
            raise BrokerUnavailableError(
                f"{left} records were not acknowledged within {timeout_ms} ms"
                f"{self._clients.because()}. They are still being sent; check that the brokers can "
                "be reached."
            )

    def _flush_clients(self, timeout_ms: int) -> int:
        """How many records are not acknowledged in time."""
        deadline = Deadline(self._clock, timeout_ms)
        left = 0
        for client in self._clients.all():
            try:
                left += client.flush(deadline.remaining_ms(timeout_ms) / 1_000)
            except RAISED as error:
                raise self._replaced(error, "Flushing") from error
            finally:
                self._writer.learn()
        return left

    def _decide(self) -> bool:
        """Have it decided what to do about watched records that failed; whether there were any."""
        if self._is_deciding or not self._deliveries.undecided:
            return False
        self._is_deciding = True
        try:
            self._deliveries.decide()
        finally:
            self._is_deciding = False
        return True

    def purge(self, timeout_ms: int = _PURGE_TIMEOUT_MS) -> None:
        """Drop what was sent since the last commit: records that wait are not sent any more, and
        what went wrong with any of them is forgotten, as are acknowledged offsets.

        To be called when all tasks of the thread are closed without a commit (they were lost, have
        migrated, or the thread failed), and only then: it drops the records of all of them, and
        afterwards a commit would go past those that were lost. Called before the next owner of the
        tasks is let in, it keeps late records from coming after that one's.

        Waits for the answers to what is on the wire already. What has none in time is not sent
        again, but a broker that stalls may still find it in its socket. The producer can be used
        again afterwards, also if it could not before.

        Args:
            timeout_ms: how long to wait for those answers.
        """
        self._clients.replace(timeout_ms)
        self._deliveries.forget()

    @property
    def unacknowledged(self) -> int:
        """How many records, and reports about them, are still under way."""
        return sum(map(len, self._clients.all()))

    def close(self, timeout_ms: int = _CLOSE_TIMEOUT_MS) -> None:
        """Send what is left within the timeout, drop the rest with a warning, abort an open
        transaction, and close.

        Further calls do nothing. With 0, drops what is unsent at once.
        """
        if self._clients.closed:
            return
        self._clients.close(timeout_ms)
        failure = self._deliveries.untold_failure()
        if failure is not None:
            _log.warning("The producer closes with a failure that nobody asked for: %s", failure)

    def _serve(self, client: Producer, timeout_s: float = 0) -> None:
        """Let the client report deliveries, and what became of itself."""
        try:
            client.poll(timeout_s)
        except RAISED as error:
            raise self._replaced(error, "Sending records") from error
        self._writer.learn()
        self._decide()

    def _replaced(self, raised: BaseException, what: str) -> StreamsError:
        """The client is at its end, which it says only once; the records it had are lost."""
        failure = migrated_error(reported_error(raised), what)
        self._deliveries.fail(failure)
        return failure

    def _route(self, topic: str, partitions: int | Sequence[int | None] | None) -> Producer:
        """The client for a topic, which is ready to take records."""
        clients = self._clients
        if clients.closed:
            raise IllegalStateError("The producer is closed.", topic=topic)
        if self._deliveries.failed or clients.access_failure is not None:
            self._raise_failure()
        tracked = topic in self._tracked_topics
        client = clients.client_for(tracked=tracked, most_bytes=self._largest_batch(topic))
        if tracked and not isinstance(partitions, int):
            raise IllegalStateError("A tracked topic needs one explicit partition.", topic=topic)
        self._before_records()
        return client

    def _before_records(self) -> None:
        """Called before records are handed to the client."""

    def _largest_batch(self, topic: str) -> int | None:
        """Bytes. Asked for once: another client would take the topic's records out of order."""
        try:
            return self._most_bytes[topic]
        except KeyError:
            limit = None if self._limits is None else self._limits.of(topic, self.on_wait)
            self._most_bytes[topic] = limit
            return limit

    def _wait_for_room(
        self, client: Producer, batch: Outgoing, full: _FullQueue | None
    ) -> _FullQueue:
        """Wait a moment for room in the queue, for the record that found it full."""
        if full is None or full.index != batch.last_tried:
            wait = Deadline(self._clock, self._warns_every_ms)
            full = _FullQueue(batch.last_tried, self._clock.monotonic_ms(), wait)
        else:
            self.on_wait()
            if full.wait.passed:
                self._full_since(full.began_ms, batch.topic)
                full.wait = Deadline(self._clock, self._warns_every_ms)
        self._serve(client, _QUEUE_FULL_POLL_S)
        return full

    def _full_since(self, began_ms: int, topic: str) -> None:
        """There was no room for `max_block_ms`, once or several times: warn, or give up."""
        waited_ms = self._clock.monotonic_ms() - began_ms
        told = (
            f"The producer's queue has been full for {waited_ms / 1000:.1f} s"
            f"{self._clients.because()}: the brokers take records more slowly than they are made, "
            "or cannot be reached."
        )
        if waited_ms >= self._task_timeout_ms:
            raise BrokerUnavailableError(
                f"{told} Check the brokers, or raise buffer.memory, max.block.ms or "
                "task.timeout.ms.",
                topic=topic,
            )
        _log.warning("%s A record for %s waits for room.", told, topic)

    def _refusal(self, raised: KafkaException, batch: Outgoing) -> StreamsError:
        """What to raise for a record that librdkafka did not take."""
        error: KafkaError = raised.args[0]
        index = batch.last_tried
        if error.code() == KafkaError._STATE:
            earlier = self._earlier_failure()
            if earlier is not None:
                return earlier
        told = self._deliveries.error_for(error, batch.topic, batch.partition(index))
        if isinstance(told, TaskMigratedError) or error.fatal():
            return self._replaced(raised, "Sending a record")
        refused = RecordRefusedError(
            told.message, index=index, topic=batch.topic, partition=told.partition
        )
        refused.task_id = told.task_id
        return refused

    def _earlier_failure(self) -> StreamsError | None:
        """The failure of an earlier record, because of which the client takes no more of them."""
        return self._deliveries.tell_failure()

    def _raise_failure(self) -> None:
        failure = self._deliveries.tell_failure() or self._clients.access_failure
        self._clients.access_failure = None
        if failure is not None:
            raise failure


@dataclass(frozen=True, slots=True)
class _WatchedRecords:
    """The records of one send, as columns, and who decides about those that are not written."""

    topic: str
    partitions: Sequence[int | None] | None
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Sequence[int]
    headers: Sequence[Headers | None] | None
    watch: Watch

    def outgoing(
        self, client: Producer, indices: Sequence[int], callbacks: Sequence[DeliveryCallback]
    ) -> OutgoingRecords:
        """Some of the records, ready to be handed to a client."""
        return OutgoingRecords(
            client.produce,
            self.topic,
            None if self.partitions is None else _taken(self.partitions, indices),
            _taken(self.keys, indices),
            _taken(self.values, indices),
            _taken(self.timestamps, indices),
            None if self.headers is None else _taken(self.headers, indices),
            None,
            None,
            callbacks,
        )


def _taken(column: Sequence[T], indices: Sequence[int]) -> Sequence[T]:
    if isinstance(indices, range):
        return column[indices.start : indices.stop]
    return [column[index] for index in indices]


@dataclass(slots=True)
class _FullQueue:
    """Which record found no room, since when, and how long it waits until that is said."""

    index: int
    began_ms: int
    wait: Deadline


def _not_understood(error: Exception, batch: Outgoing) -> RecordRefusedError:
    """What to raise for a record that does not even get to librdkafka."""
    return RecordRefusedError(
        f"A record was not written, since the client cannot take it: {type(error).__name__}: "
        f"{error}. Its headers must be pairs of a name as text and of bytes or None, and its "
        "timestamp milliseconds since the epoch.",
        index=batch.last_tried,
        topic=batch.topic,
    )
