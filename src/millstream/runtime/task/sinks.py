"""The way out of a sub-topology: records are serialized as lists and handed to the collector."""

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
from millstream.kafka.data.watch import Watch
from millstream.operators.batch import Batch, Order, repeated
from millstream.operators.calls import call_each, serialize_each
from millstream.operators.interruption import BatchInterruptedError
from millstream.operators.operator import Output
from millstream.processor.handlers import SinkRecord
from millstream.record import Headers, RecordMetadata, TaskId
from millstream.runtime.task.answers import handlers_failure
from millstream.serdes import Serde
from millstream.topology.naming import name_problem
from millstream.topology.physical.nodes import Partitioner
from millstream.topology.physical.windowed_serdes import BoundToInnerKey

#: A topic function may give a new name for each record.
_MOST_LEGAL_TOPICS = 10_000


class RecordContext(NamedTuple):
    """What a dynamic sink's topic function may look at beside key and value."""

    metadata: RecordMetadata
    timestamp: int
    headers: Headers

    @property
    def topic(self) -> str | None:
        """The topic that the input record was read from."""
        return self.metadata.topic

    @property
    def partition(self) -> int:
        """The partition that the input record was read from."""
        return self.metadata.partition

    @property
    def offset(self) -> int:
        """The offset of the input record."""
        return self.metadata.offset


class Collector(Protocol):
    """Takes serialized records to their topics. The producer's side, or the test driver's."""

    def partition_count(self, topic: str) -> int | None:
        """How many partitions the topic has; None if it takes records for any partition."""
        ...

    def send_many(
        self,
        topic: str,
        partitions: int | Sequence[int | None] | None,
        keys: list[bytes | None],
        values: list[bytes | None],
        timestamps: list[int],
        headers: list[Headers] | None,
    ) -> None:
        """Send records in order. `partitions` None means: by murmur2 of the key."""
        ...

    def send_watched(
        self,
        topic: str,
        partitions: Sequence[int | None] | None,
        keys: list[bytes | None],
        values: list[bytes | None],
        timestamps: list[int],
        headers: list[Headers] | None,
        watch: Watch,
    ) -> None:
        """The same, with somebody who decides about those that are not written."""
        ...


class Outgoing(NamedTuple):
    """Records of one topic on their way out, as parallel lists."""

    topic: str
    partitions: list[int | None] | None
    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    headers: list[Headers] | None
    order: list[Order] | None
    #: Told of those that are not written; None where nobody asks.
    watch: Watch | None = None


class Produced(Protocol):
    """Counts what is written."""

    def sent(
        self, topic: str, keys: Sequence[bytes | None], values: Sequence[bytes | None]
    ) -> None: ...


class EncodeErrors(Protocol):
    """Decides about records that cannot be written."""

    def unwritable(self, batch: Batch, index: int, error: Exception) -> bool:
        """True to leave the record out, False to fail."""
        ...

    def dropped(self, count: int, why: str) -> None:
        """Count records that are left out on purpose."""
        ...


class Production(Protocol):
    """Stands before the production exception handler for one sink."""

    def goes_on_without(
        self, batch: Batch, index: int, record: SinkRecord, error: SerializationError
    ) -> bool:
        """Whether to leave out a record that cannot be serialized."""
        ...

    def watch(self, batch: Batch, outgoing: Outgoing) -> Watch:
        """Who decides about the records of a batch that Kafka does not take."""
        ...


class Sink:
    """A sink node at work in one task.

    A record that cannot be written, because its serde, the topic function or the partitioner
    fails, is left out alone if `errors` says so.

    Args:
        name: the node's name, for errors.
        task_id: the task, for errors.
        topic: the real name of the topic, or a function of (key, value, record context).
        key_serde: turns keys into bytes.
        value_serde: turns values into bytes.
        partitioner: chooses one partition or several; None for Kafka's default.
        collector: where the records go.
        meeting: where they wait for those of other sinks, if their order among them matters.
        errors: decides about records that cannot be written.
        production: asked first about those that cannot be serialized, and about those that Kafka
            does not take; None if a failure of Kafka is always one.
        meter: told of what is written; None if nobody counts.
        guarded: gives a list to iterate over that ends early when a batch takes too long.
    """

    def __init__(
        self,
        name: str,
        task_id: TaskId,
        topic: str | Callable[[Any, Any, RecordContext], str],
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        partitioner: Partitioner | None,
        collector: Collector,
        meeting: SinkMeeting | None,
        errors: EncodeErrors,
        production: Production | None = None,
        meter: Produced | None = None,
        guarded: Callable[[list[Any]], list[Any]] = lambda objects: objects,
    ) -> None:
        self._guarded = guarded
        self.name = name
        self._task_id = task_id
        self._topic = topic
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._partitioner = partitioner
        self._collector = collector
        self._meeting = meeting
        self._errors = errors
        self._production = production
        self._meter = meter
        #: Those that a topic function has given.
        self._legal_topics: set[str] = set()

    def process(self, batch: Batch, output: Output) -> None:
        if isinstance(self._topic, str):
            self._send(self._topic, batch)
            return
        topics, batch = self._chosen_topics(batch, self._topic)
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
            self._meter.sent(topic, keys, values)
        headers = batch.all_headers()
        if self._meeting is None and self._production is None:
            columns = topic, partitions, keys, values, batch.timestamps, headers
            try:
                self._collector.send_many(*columns)
            except RecordRefusedError as error:
                raise ProductionError(
                    f"A record for topic '{topic}' was not taken. {error.message}",
                    **self._where(batch, error.index),
                ) from error
            return
        outgoing = Outgoing(topic, partitions, keys, values, batch.timestamps, headers, batch.order)
        if self._production is not None:
            outgoing = outgoing._replace(watch=self._production.watch(batch, outgoing))
        if self._meeting is None:
            _send_alone(self._collector, outgoing)
        else:
            self._meeting.add(self._collector, outgoing)

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
            self._not_serialized(batch, index, record, error)

        serialize_many = partial(serde.serialize_many, topic)
        if type(serde).serialize_many is Serde.serialize_many:
            # A user's. Millstream's own are fast, and some count the objects beforehand.
            serialize_many = partial(self._serialize_in_time, serialize_many)
        return serialize_each(serialize_many, objects, failed)

    def _serialize_in_time(
        self, serialize_many: Callable[[list[Any]], list[bytes | None]], objects: list[Any]
    ) -> list[bytes | None]:
        done = serialize_many(self._guarded(objects))
        if len(done) < len(objects):
            raise BatchInterruptedError
        return done

    def _not_serialized(
        self, batch: Batch, index: int, record: SinkRecord, error: SerializationError
    ) -> None:
        production = self._production
        if production is not None and production.goes_on_without(batch, index, record, error):
            return
        # Follows Kafka Streams: a failure of the sink is one of the node that forwarded to it.
        if self._errors.unwritable(batch, index, error):
            return
        what, topic = record.unserialized, record.topic
        raise SerializationError(
            f"The {what} of a record for topic '{topic}' could not be serialized. "
            f"{error.message} Name the serde that fits with {what}=... where the records are "
            f"written or repartitioned, or set a default serde.{handlers_failure(error)}",
            **self._where(batch, index),
        ) from (error.__cause__ or error)

    def _chosen_topics(
        self, batch: Batch, choose: Callable[[Any, Any, RecordContext], str]
    ) -> tuple[list[str], Batch]:
        contexts = [
            RecordContext(batch.metadata_of(index), timestamp, batch.headers_of(index))
            for index, timestamp in enumerate(batch.timestamps)
        ]
        failures = _Failures(self, "topic function")
        columns = (batch.keys, batch.values, contexts)
        topics, batch = call_each(choose, columns, batch, failures)
        if not (set(map(type, topics)) <= {str} and self._legal_topics.issuperset(topics)):
            topics, batch = call_each(self._topic_name, (topics,), batch, failures)
        return topics, batch

    def _topic_name(self, topic: Any) -> str:
        problem = name_problem(topic)
        if problem:
            raise ValueError(f"it must give the name of a topic, but gave {topic!r}. {problem}")
        if len(self._legal_topics) < _MOST_LEGAL_TOPICS:
            self._legal_topics.add(topic)
        return str(topic)

    def _partitions(
        self, partitioner: Partitioner, topic: str, batch: Batch
    ) -> tuple[list[int | None], Batch]:
        count = self._collector.partition_count(topic)
        told = 1 if count is None else count
        if isinstance(partitioner, BoundToInnerKey):
            partitions = partitioner.partition_all(topic, batch.keys, told)
            if partitions is not None:
                return list[int | None](partitions), batch

        def chosen(key: Any, value: Any) -> int | tuple[int, ...] | None:
            return _chosen(partitioner(topic, key, value, told), topic, count)

        columns = (batch.keys, batch.values)
        found, batch = call_each(chosen, columns, batch, _Failures(self, "partitioner"))
        return (found, batch) if tuple not in map(type, found) else self._copies(found, batch)

    def _copies(
        self, chosen: list[int | tuple[int, ...] | None], batch: Batch
    ) -> tuple[list[int | None], Batch]:
        """A record for each partition that was chosen for one (KIP-837)."""
        each = [one if isinstance(one, tuple) else (one,) for one in chosen]
        counts = list(map(len, each))
        if 0 in counts:
            self._errors.dropped(counts.count(0), "their partitioner chose no partition")
        copies = batch.expand(counts, None, repeated(batch.values, counts))
        return list(chain.from_iterable(each)), copies

    def user_code_failed(self, what: str, batch: Batch, index: int, error: Exception) -> None:
        """Leave a record out on which a function of the user's raised, or raise."""
        if self._errors.unwritable(batch, index, error):
            return
        raise ProcessingError(
            f"The {what} of a sink failed on a record: {summary_of(error)}. "
            f"Correct it so that it has an answer for every record.{handlers_failure(error)}",
            **self._where(batch, index),
        ) from error

    def _where(self, batch: Batch, index: int) -> dict[str, Any]:
        place = batch.metadata_of(index)
        return {
            "task_id": self._task_id,
            "topic": place.topic,
            "partition": place.partition,
            "offset": place.offset,
            "node": self.name,
        }


class _Failures:
    """Tells a sink which of the user's functions raised."""

    def __init__(self, sink: Sink, what: str) -> None:
        self._sink = sink
        self._what = what

    def failed(self, batch: Batch, index: int, error: Exception) -> None:
        self._sink.user_code_failed(self._what, batch, index, error)


def _chosen(chosen: Any, topic: str, count: int | None) -> int | tuple[int, ...] | None:
    """What a partitioner returned, if it is legal: several partitions ascending, each once."""
    if chosen is None:
        return None
    several = isinstance(chosen, list | tuple | set | frozenset | range)
    for partition in chosen if several else (chosen,):
        if not isinstance(partition, int):
            raise TypeError(
                f"it returned {chosen!r}, but must return a partition's number, several in a list "
                "or set, or None for Kafka's default"
            )
        if partition < 0 or (count is not None and partition >= count):
            bound = "" if count is None else f", which has {count}"
            raise ValueError(
                f"it chose partition {partition} of '{topic}'{bound}: numbers go from 0 to "
                f"{'the number of partitions - 1' if count is None else count - 1}"
            )
    return tuple(sorted(set(chosen))) if several else chosen


class SinkMeeting:
    """Where records of several sinks wait for each other, to go out in depth-first order.

    Args:
        across_topics: whether records of different topics must keep their order, too.
    """

    def __init__(self, across_topics: bool = False) -> None:
        self._across_topics = across_topics
        self._waiting: list[Outgoing] = []
        self._collector: Collector

    def add(self, collector: Collector, outgoing: Outgoing) -> None:
        """Let records wait until all sinks have given theirs."""
        self._collector = collector
        self._waiting.append(outgoing)

    def send(self) -> None:
        """Send what waits. Called when all steps of a batch are done."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        if self._across_topics:
            _send_interleaved(self._collector, waiting)
            return
        by_topic: dict[str, list[Outgoing]] = {}
        for outgoing in waiting:
            by_topic.setdefault(outgoing.topic, []).append(outgoing)
        for parts in by_topic.values():
            _send_interleaved(self._collector, parts)


def _send_alone(collector: Collector, one: Outgoing) -> None:
    columns = one.topic, one.partitions, one.keys, one.values, one.timestamps, one.headers
    if one.watch is None:
        collector.send_many(*columns)
    else:
        collector.send_watched(*columns, one.watch)


def _send_interleaved(collector: Collector, parts: list[Outgoing]) -> None:
    if len(parts) == 1:
        _send_alone(collector, parts[0])
        return
    rows: list[tuple[Order, int, int]] = []
    for number, part in enumerate(parts):
        assert part.order is not None, "sinks that meet need records in order"
        rows.extend((place, number, index) for index, place in enumerate(part.order))
    rows.sort()
    picked = ((parts[number], index) for _, number, index in rows)
    for topic, run in groupby(picked, key=_topic):
        _send_picked(collector, topic, run)


def _topic(row: tuple[Outgoing, int]) -> str:
    return row[0].topic


def _send_picked(collector: Collector, topic: str, rows: Iterable[tuple[Outgoing, int]]) -> None:
    picked = list(rows)
    partitions = [None if p.partitions is None else p.partitions[i] for p, i in picked]
    headers: list[Headers] = [() if p.headers is None else p.headers[i] for p, i in picked]
    watched = any(part.watch is not None for part, _ in picked)
    _send_alone(
        collector,
        Outgoing(
            topic,
            None if all(partition is None for partition in partitions) else partitions,
            [p.keys[i] for p, i in picked],
            [p.values[i] for p, i in picked],
            [p.timestamps[i] for p, i in picked],
            headers if any(headers) else None,
            None,
            _Watches(picked) if watched else None,
        ),
    )


class _Watches:
    """Records of several sinks, each with its own who decides about it."""

    def __init__(self, picked: list[tuple[Outgoing, int]]) -> None:
        self._picked = picked

    def failed(
        self, index: int, error: ProductionError, *, transaction_lost: bool
    ) -> StreamsError | None:
        part, own = self._picked[index]
        if part.watch is None:
            return error
        return part.watch.failed(own, error, transaction_lost=transaction_lost)
