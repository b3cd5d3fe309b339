"""Readers of librdkafka's fetched records, as message objects or as columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaError, Message

from millstream.kafka.clients.record_columns import RecordColumns, append_columns, message_columns
from millstream.record import TopicPartition

if TYPE_CHECKING:
    from millstream.native.library import Client as NativeClient
    from millstream.native.shapes import Event, Run

_error = Message.error

_NO_LIMIT_MS: Final = 2**31 - 1

#: The maximum time that a read delays the client's callbacks.
_SERVE_INTERVAL_MS: Final = 100
#: The maximum time that fetched records may stay in a queue that is not read.
_FORWARD_INTERVAL_MS: Final = 10
#: The partition number of events of the client itself.
_CLIENT_PARTITION: Final = -2
#: The extension's maximum per read.
_MAX_RECORDS: Final = 65_536


class FetchResult(NamedTuple):
    #: The records of each partition, in the order of their first records.
    columns: dict[TopicPartition, RecordColumns]
    #: The number of records and events.
    taken: int
    #: Whether the queue was empty afterwards.
    is_all: bool


class FetchEvents(NamedTuple):
    """The callbacks for events other than records."""

    #: A partition ends at this offset, and all records before it were read.
    on_end: Callable[[TopicPartition, int], None]
    #: An error, with its topic, partition and offset, if known.
    on_error: Callable[[KafkaError, str | None, int | None, int | None], None]
    #: A nonfatal error of the client itself. Only called by readers that bypass the client;
    #: otherwise, the client calls its `error_cb`.
    on_client_error: Callable[[KafkaError], None]


class FetchReader(Protocol):
    """Reads records from one client, in order within each partition."""

    #: Called before partitions are assigned.
    def begin(self, partitions: Iterable[TopicPartition]) -> None: ...

    #: Called after partitions were unassigned.
    def end(self, partitions: Iterable[TopicPartition]) -> None: ...

    #: The maximum wait of one read, after which the reader has other work to do.
    @property
    def longest_wait_ms(self) -> int: ...

    def read(
        self, max_records: int, timeout_ms: int, sources: Collection[TopicPartition] | None
    ) -> FetchResult:
        """Wait for the first record or event, then read all that are available.

        Reads at most `max_records` records and events, and waits no longer than `longest_wait_ms`.
        `sources` are the only possible partitions, if known.

        Raises:
            KafkaException: an error of librdkafka itself.
            RuntimeError: the client is closed.
        """

    #: Releases the client, before it is closed.
    def close(self) -> None: ...


class MessageReader:
    """A `FetchReader` of message objects from the client's queue.

    Takes 420 ns per record of 75 bytes, including 28 ns for separating events, and 650 ns if
    Python's garbage collector runs at its default thresholds, because it visits every message
    object. Batches of 1,000 to 2,000 records are fastest.
    """

    def __init__(self, client: Consumer, events: FetchEvents) -> None:
        self._consume = client.consume
        self._events = events

    @property
    def longest_wait_ms(self) -> int:
        # The client serves its callbacks while it waits.
        return _NO_LIMIT_MS

    def begin(self, partitions: Iterable[TopicPartition]) -> None: ...
    def end(self, partitions: Iterable[TopicPartition]) -> None: ...

    def read(
        self, max_records: int, timeout_ms: int, sources: Collection[TopicPartition] | None
    ) -> FetchResult:
        batch = self._consume(1, timeout_ms / 1_000)
        if batch and max_records > 1:
            # consume(n, timeout) waits for all n records, so read the others without a timeout.
            batch += self._consume(max_records - 1, 0)
        taken = len(batch)
        if any(map(_error, batch)):
            batch = self._without_events(batch)
        return FetchResult(message_columns(batch, sources), taken, taken < max_records)

    def close(self) -> None: ...

    def _without_events(self, batch: list[Message]) -> list[Message]:
        records = []
        for message in batch:
            error = message.error()
            if error is None:
                records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                end = message.offset()
                # An unknown offset (-1001) is not an end. The client will report the next end.
                if end is not None:
                    self._events.on_end(_partition_of(message), end)
            else:
                self._events.on_error(error, message.topic(), message.partition(), message.offset())
        return records


def _partition_of(message: Message) -> TopicPartition:
    topic, partition = message.topic(), message.partition()
    # An end event always has a topic and a partition.
    assert topic is not None
    assert partition is not None
    return TopicPartition(topic, partition)


class ColumnReader:
    """A `FetchReader` of columns from a separate queue.

    Takes 170 ns per record of 78 bytes in batches of 2,000, and 320 ns with one header per record;
    on the same machine, 490 ns and 1,170 ns with message objects. An empty read takes 2.3 us
    instead of 1.4 us, because it polls two queues.

    confluent-kafka's callbacks (statistics, errors, logs) may only be called within its own calls,
    so they stay in the client's queue, which is served before each read. Errors of topics arrive
    with the fetched records, and the extension separates them. While a partition is assigned,
    librdkafka adds its fetched records to the queue that the partition was forwarded to; some time
    after the unassignment, it ends the forwarding. Therefore, a partition that is assigned again is
    forwarded repeatedly until the first records or events arrive, which cannot happen before
    librdkafka has started to fetch it again. Records that were fetched meanwhile are also moved, in
    order.
    """

    def __init__(self, client: Consumer, native: NativeClient, events: FetchEvents) -> None:
        native.open_queue()
        self._native = native
        self._read: Callable[[int, int], tuple[list[Run], list[Event]]] = native.read_columns
        self._events = events
        self._served = MessageReader(client, events)
        self._partitions: dict[tuple[str, int], TopicPartition] = {}
        #: Partitions that were assigned again, and from which no records or events have arrived
        #: since then.
        self._unsettled: set[TopicPartition] = set()

    @property
    def longest_wait_ms(self) -> int:
        # The time after which callbacks have to be served, or partitions forwarded.
        return _FORWARD_INTERVAL_MS if self._unsettled else _SERVE_INTERVAL_MS

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            if partition in self._partitions:
                self._unsettled.add(partition)
            self._partitions[partition] = partition
            self._native.forward(*partition)

    def end(self, partitions: Iterable[TopicPartition]) -> None:
        self._unsettled.difference_update(partitions)

    def read(
        self, max_records: int, timeout_ms: int, sources: Collection[TopicPartition] | None
    ) -> FetchResult:
        max_records = min(max_records, _MAX_RECORDS)
        served = self._served.read(max_records, 0, None)
        if served.columns:
            # If the client's queue contained records, they are older than those in our queue.
            return FetchResult(served.columns, served.taken, is_all=False)
        for partition in self._unsettled:
            self._native.forward(*partition)
        runs, events = self._read(max_records, 0 if served.taken else timeout_ms)
        columns: dict[TopicPartition, RecordColumns] = {}
        taken = len(events)
        for run in runs:
            taken += self._take(run, columns)
        for event in events:
            self._report(event)
        return FetchResult(columns, served.taken + taken, taken < max_records)

    def close(self) -> None:
        self._native.close()

    def _take(self, run: Run, columns: dict[TopicPartition, RecordColumns]) -> int:
        topic, number, keys, values, timestamps, first, offsets, headers, epoch = run
        partition = self._partition(topic, number)
        count = len(values)
        own = RecordColumns(
            keys,
            values,
            timestamps,
            range(first, first + count) if offsets is None else offsets,
            headers,  # type: ignore[arg-type]
            epoch if epoch >= 0 else None,
        )
        earlier = columns.get(partition)
        columns[partition] = own if earlier is None else append_columns(earlier, own)
        return count

    def _report(self, event: Event) -> None:
        code, text, topic, number, offset = event
        if number == _CLIENT_PARTITION:
            self._events.on_client_error(KafkaError(code, text))
            return
        if topic is not None and number >= 0:
            partition = self._partition(topic, number)
            if code == KafkaError._PARTITION_EOF:
                # An unknown offset (-1001) is not an end. The client will report the next end.
                if offset >= 0:
                    self._events.on_end(partition, offset)
                return
        self._events.on_error(
            KafkaError(code, text),
            topic,
            number if number >= 0 else None,
            offset if offset >= 0 else None,
        )

    def _partition(self, topic: str, number: int) -> TopicPartition:
        """Return the partition of a received record or event."""
        partition = self._partitions.get((topic, number)) or TopicPartition(topic, number)
        if self._unsettled:
            self._unsettled.discard(partition)
        return partition
