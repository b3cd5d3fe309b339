"""Sink nodes: serialize records as lists and pass them to the record collector."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, compress, groupby
from typing import Any, Literal, NamedTuple, Protocol

from millstream.errors import (
    ProcessingError,
    ProductionError,
    RecordRefusedError,
    SerializationError,
    StreamsError,
    summary_of,
)
from millstream.kafka.clients.delivery import RejectionHandler
from millstream.operators.operator import Output
from millstream.operators.record_batch import Batch, Order, repeated
from millstream.operators.user_calls import BatchInterruptedError, call_each, serialize_each
from millstream.processor.handlers import SinkRecord
from millstream.record import Headers, RecordMetadata, TaskId
from millstream.runtime.task.error_handling.handler_results import handler_notes
from millstream.runtime.task.task_meters import ProducedMeters
from millstream.serdes import Serde
from millstream.topology.naming import name_problem
from millstream.topology.physical.nodes import Partitioner
from millstream.topology.physical.windowed_serdes import BoundWindowedKeyPartitioner

#: The maximum size of the set of valid topic names. It is limited because a topic function may
#: return a new name for each record.
_MAX_VALID_TOPICS = 10_000


class RecordContext(NamedTuple):
    """The record context that is passed to the topic function of a dynamic sink."""

    metadata: RecordMetadata
    timestamp: int
    headers: Headers

    @property
    def topic(self) -> str | None:
        """The topic of the input record."""
        return self.metadata.topic

    @property
    def partition(self) -> int:
        """The partition of the input record."""
        return self.metadata.partition

    @property
    def offset(self) -> int:
        """The offset of the input record."""
        return self.metadata.offset


class RecordCollector(Protocol):
    """Sends serialized records to the producer or to the test driver."""

    def partition_count(self, topic: str) -> int | None:
        """Return a topic's partition count; None if any partition number is valid."""

    def send_many(
        self,
        topic: str,
        partitions: int | Sequence[int | None] | None,
        keys: list[bytes | None],
        values: list[bytes | None],
        timestamps: list[int],
        headers: list[Headers] | None,
    ) -> None:
        """Send records in order. Partitions default to the murmur2 hash of the key."""

    def send_with_handler(
        self,
        topic: str,
        partitions: Sequence[int | None] | None,
        keys: list[bytes | None],
        values: list[bytes | None],
        timestamps: list[int],
        headers: list[Headers] | None,
        handler: RejectionHandler,
    ) -> None:
        """Send records like `send_many`; `handler` handles rejected records."""


class SinkBatch(NamedTuple):
    """Serialized records for one topic, as parallel lists."""

    topic: str
    partitions: list[int | None] | None
    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    headers: list[Headers] | None
    order: list[Order] | None
    #: Handles rejected records; if None, a rejected record fails the thread.
    rejection_handler: RejectionHandler | None = None


class EncodeErrors(Protocol):
    """Decides whether to drop records that cannot be serialized."""

    def unwritable(self, batch: Batch, index: int, error: Exception) -> bool:
        """Return True to drop the record, False to fail."""

    def dropped(self, count: int, why: str) -> None:
        """Count dropped records."""


class ProductionErrors(Protocol):
    """Calls the production exception handler for one sink."""

    def skip_unserializable(
        self, batch: Batch, index: int, record: SinkRecord, error: SerializationError
    ) -> bool:
        """Return whether to drop a record that cannot be serialized."""

    def rejection_handler(self, batch: Batch, outgoing: SinkBatch) -> RejectionHandler:
        """Return the rejection handler for the records of a batch."""


class Sink:
    """A sink node in one task.

    If the serde, the topic function or the partitioner fails on a record, only that record is
    dropped, provided that `errors` allows it.

    Args:
        topic: the full name of the topic, or a function of (key, value, record context).
        sink_buffer: collects the records of several sinks if their common order matters.
        production: called first for records that cannot be serialized, and for rejected records.
            None if every rejection is a failure.
        interruptible: returns a copy of a list whose iteration stops when a batch takes too long.
    """

    def __init__(
        self,
        name: str,
        task_id: TaskId,
        topic: str | Callable[[Any, Any, RecordContext], str],
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        partitioner: Partitioner | None,
        collector: RecordCollector,
        sink_buffer: SinkBuffer | None,
        errors: EncodeErrors,
        production: ProductionErrors | None = None,
        meter: ProducedMeters | None = None,
        interruptible: Callable[[list[Any]], list[Any]] = lambda objects: objects,
    ) -> None:
        self._interruptible = interruptible
        self.name = name
        self._task_id = task_id
        self._topic = topic
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._partitioner = partitioner
        self._collector = collector
        self._sink_buffer = sink_buffer
        self._errors = errors
        self._production = production
        self._meter = meter
        #: Valid names that the topic function has returned.
        self._valid_topics: set[str] = set()

    def process(self, batch: Batch, output: Output) -> None:
        if isinstance(self._topic, str):
            self._send(self._topic, batch)
            return
        topics, batch = self._topics(batch, self._topic)
        for topic in dict.fromkeys(topics):
            self._send(topic, batch.select([chosen == topic for chosen in topics]))

    def _send(self, topic: str, batch: Batch) -> None:
        partitions: list[int | None] | None = None
        if self._partitioner is not None:
            partitions, batch = self._partitions(self._partitioner, topic, batch)
        keys, keep = self._serialized(self._key_serde, topic, batch.keys, batch, "key", partitions)
        if keep is not None:
            batch = batch.select(keep)
            partitions = partitions and list(compress(partitions, keep))
        values, keep = self._serialized(
            self._value_serde, topic, batch.values, batch, "value", partitions
        )
        if keep is not None:
            batch = batch.select(keep)
            partitions = partitions and list(compress(partitions, keep))
            keys = list(compress(keys, keep))
        if not keys:
            return
        if self._meter is not None:
            self._meter.record(topic, keys, values)
        headers = batch.all_headers()
        if self._sink_buffer is None and self._production is None:
            columns = topic, partitions, keys, values, batch.timestamps, headers
            try:
                self._collector.send_many(*columns)
            except RecordRefusedError as error:
                raise ProductionError(
                    f"A record for topic '{topic}' was rejected. {error.message}",
                    **self._where(batch, error.index),
                ) from error
            return
        outgoing = SinkBatch(
            topic, partitions, keys, values, batch.timestamps, headers, batch.order
        )
        if self._production is not None:
            outgoing = outgoing._replace(
                rejection_handler=self._production.rejection_handler(batch, outgoing)
            )
        if self._sink_buffer is None:
            _send_alone(self._collector, outgoing)
        else:
            self._sink_buffer.add(self._collector, outgoing)

    def _serialized(
        self,
        serde: Serde[Any],
        topic: str,
        objects: list[Any],
        batch: Batch,
        what: Literal["key", "value"],
        partitions: list[int | None] | None,
    ) -> tuple[list[bytes | None], list[bool] | None]:
        def failed(index: int, error: SerializationError) -> None:
            record = SinkRecord(
                topic,
                None if partitions is None else partitions[index],
                batch.timestamps[index],
                batch.headers_of(index),
                batch.keys[index],
                batch.values[index],
                what,
            )
            self._on_unserializable(batch, index, record, error)

        serialize_many = partial(serde.serialize_many, topic)
        if type(serde).serialize_many is Serde.serialize_many:
            # A user-defined serde. Built-in serdes are fast, and some count the objects first.
            serialize_many = partial(self._serialize_interruptibly, serialize_many)
        return serialize_each(serialize_many, objects, failed)

    def _serialize_interruptibly(
        self, serialize_many: Callable[[list[Any]], list[bytes | None]], objects: list[Any]
    ) -> list[bytes | None]:
        done = serialize_many(self._interruptible(objects))
        if len(done) < len(objects):
            raise BatchInterruptedError
        return done

    def _on_unserializable(
        self, batch: Batch, index: int, record: SinkRecord, error: SerializationError
    ) -> None:
        production = self._production
        if production is not None and production.skip_unserializable(batch, index, record, error):
            return
        # Follows Kafka Streams: a failure of the sink counts as a failure of the node that
        # forwarded the record.
        if self._errors.unwritable(batch, index, error):
            return
        what, topic = record.unserialized, record.topic
        raise SerializationError(
            f"The {what} of a record for topic '{topic}' could not be serialized. "
            f"{error.message} Pass a matching serde with {what}=... where the records are "
            f"written or repartitioned, or set a default serde.{handler_notes(error)}",
            **self._where(batch, index),
        ) from (error.__cause__ or error)

    def _topics(
        self, batch: Batch, choose: Callable[[Any, Any, RecordContext], str]
    ) -> tuple[list[str], Batch]:
        contexts = [
            RecordContext(batch.metadata_of(index), timestamp, batch.headers_of(index))
            for index, timestamp in enumerate(batch.timestamps)
        ]
        failures = _SinkFailureHandler(self, "topic function")
        columns = (batch.keys, batch.values, contexts)
        topics, batch = call_each(choose, columns, batch, failures)
        if not (set(map(type, topics)) <= {str} and self._valid_topics.issuperset(topics)):
            topics, batch = call_each(self._topic_name, (topics,), batch, failures)
        return topics, batch

    def _topic_name(self, topic: Any) -> str:
        problem = name_problem(topic)
        if problem:
            raise ValueError(f"it must return a topic name, but returned {topic!r}. {problem}")
        if len(self._valid_topics) < _MAX_VALID_TOPICS:
            self._valid_topics.add(topic)
        return str(topic)

    def _partitions(
        self, partitioner: Partitioner, topic: str, batch: Batch
    ) -> tuple[list[int | None], Batch]:
        count = self._collector.partition_count(topic)
        known_count = 1 if count is None else count
        if isinstance(partitioner, BoundWindowedKeyPartitioner):
            partitions = partitioner.partition_all(topic, batch.keys, known_count)
            if partitions is not None:
                return list[int | None](partitions), batch

        def chosen(key: Any, value: Any) -> int | tuple[int, ...] | None:
            return _checked_partitions(partitioner(topic, key, value, known_count), topic, count)

        columns = (batch.keys, batch.values)
        found, batch = call_each(chosen, columns, batch, _SinkFailureHandler(self, "partitioner"))
        return (found, batch) if tuple not in map(type, found) else self._copies(found, batch)

    def _copies(
        self, chosen: list[int | tuple[int, ...] | None], batch: Batch
    ) -> tuple[list[int | None], Batch]:
        """Copy each record to all partitions that were chosen for it (KIP-837)."""
        each = [one if isinstance(one, tuple) else (one,) for one in chosen]
        counts = list(map(len, each))
        if 0 in counts:
            self._errors.dropped(counts.count(0), "the partitioner chose no partition")
        copies = batch.expand(counts, None, repeated(batch.values, counts))
        return list(chain.from_iterable(each)), copies

    def user_code_failed(self, what: str, batch: Batch, index: int, error: Exception) -> None:
        """Drop a record on which a user function failed, or raise an error."""
        if self._errors.unwritable(batch, index, error):
            return
        raise ProcessingError(
            f"The {what} of a sink failed on a record: {summary_of(error)}. "
            f"Fix the {what} so that it returns a result for every record.{handler_notes(error)}",
            **self._where(batch, index),
        ) from error

    def _where(self, batch: Batch, index: int) -> dict[str, Any]:
        metadata = batch.metadata_of(index)
        return {
            "task_id": self._task_id,
            "topic": metadata.topic,
            "partition": metadata.partition,
            "offset": metadata.offset,
            "node": self.name,
        }


class _SinkFailureHandler(NamedTuple):
    """Passes failures of one user function to a sink."""

    sink: Sink
    what: str

    def failed(self, batch: Batch, index: int, error: Exception) -> None:
        self.sink.user_code_failed(self.what, batch, index, error)


def _checked_partitions(chosen: Any, topic: str, count: int | None) -> int | tuple[int, ...] | None:
    """Validate a partitioner's result; deduplicate and sort multiple partitions."""
    if chosen is None:
        return None
    several = isinstance(chosen, list | tuple | set | frozenset | range)
    for partition in chosen if several else (chosen,):
        if not isinstance(partition, int):
            raise TypeError(
                f"it returned {chosen!r}, but must return a partition number, several in a list "
                "or set, or None for Kafka's default"
            )
        if partition < 0 or (count is not None and partition >= count):
            bound = "" if count is None else f", which has {count} in total"
            raise ValueError(
                f"it chose partition {partition} of '{topic}'{bound}: valid numbers are 0 to "
                f"{'the number of partitions - 1' if count is None else count - 1}"
            )
    return tuple(sorted(set(chosen))) if several else chosen


class SinkBuffer:
    """Collects the records of several sinks and sends them in depth-first order.

    The order applies to each topic, or across topics if `across_topics` is set.
    """

    def __init__(self, across_topics: bool = False) -> None:
        self._across_topics = across_topics
        self._waiting: list[SinkBatch] = []
        self._collector: RecordCollector

    def add(self, collector: RecordCollector, outgoing: SinkBatch) -> None:
        """Add the records of a sink; they are sent after all sinks have added theirs."""
        self._collector = collector
        self._waiting.append(outgoing)

    def send(self) -> None:
        """Send the collected records. Called after all steps of a batch."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        if self._across_topics:
            _send_interleaved(self._collector, waiting)
            return
        by_topic: dict[str, list[SinkBatch]] = {}
        for outgoing in waiting:
            by_topic.setdefault(outgoing.topic, []).append(outgoing)
        for parts in by_topic.values():
            _send_interleaved(self._collector, parts)


def _send_alone(collector: RecordCollector, one: SinkBatch) -> None:
    columns = one.topic, one.partitions, one.keys, one.values, one.timestamps, one.headers
    if one.rejection_handler is None:
        collector.send_many(*columns)
    else:
        collector.send_with_handler(*columns, one.rejection_handler)


def _send_interleaved(collector: RecordCollector, parts: list[SinkBatch]) -> None:
    if len(parts) == 1:
        _send_alone(collector, parts[0])
        return
    rows: list[tuple[Order, int, int]] = []
    for number, part in enumerate(parts):
        assert part.order is not None, "sinks that share a topic need records in order"
        rows.extend((rank, number, index) for index, rank in enumerate(part.order))
    rows.sort()
    picked = ((parts[number], index) for _, number, index in rows)
    for topic, run in groupby(picked, key=lambda row: row[0].topic):
        _send_picked(collector, topic, run)


def _send_picked(
    collector: RecordCollector, topic: str, rows: Iterable[tuple[SinkBatch, int]]
) -> None:
    picked = list(rows)
    partitions = [None if p.partitions is None else p.partitions[i] for p, i in picked]
    headers: list[Headers] = [() if p.headers is None else p.headers[i] for p, i in picked]
    has_handlers = any(part.rejection_handler is not None for part, _ in picked)
    _send_alone(
        collector,
        SinkBatch(
            topic,
            None if all(partition is None for partition in partitions) else partitions,
            [p.keys[i] for p, i in picked],
            [p.values[i] for p, i in picked],
            [p.timestamps[i] for p, i in picked],
            headers if any(headers) else None,
            None,
            _MergedRejectionHandlers(picked) if has_handlers else None,
        ),
    )


class _MergedRejectionHandlers(NamedTuple):
    """The rejection handlers of records of several sinks."""

    picked: list[tuple[SinkBatch, int]]

    def failed(
        self, index: int, error: ProductionError, *, transaction_lost: bool
    ) -> StreamsError | None:
        part, own = self.picked[index]
        if part.rejection_handler is None:
            return error
        return part.rejection_handler.failed(own, error, transaction_lost=transaction_lost)
