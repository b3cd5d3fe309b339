"""Writes the rows of a batch to a topic, in Spark's Python workers.

Under exactly-once, each partition of a batch is written in one transaction, which also commits the
number of the batch as an offset. If a batch is repeated, the committed number shows that it has
already been written. The design follows Spark's idempotent sinks (`foreachBatch` with the batch ID,
Delta's `txnAppId` and `txnVersion`), and Kafka's practice of committing offsets in the producer's
transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from millstream.clock import SystemClock
from millstream.config.streams_config import StreamsConfig
from millstream.config.validation import transaction_timeout_ms
from millstream.dataframes.row_conversion import RowEncoder
from millstream.errors import BrokerUnavailableError, StreamsError
from millstream.kafka.clients.group_metadata import GroupMetadata
from millstream.kafka.clients.record_producer import RecordProducer
from millstream.kafka.clients.transactional_producer import TransactionalRecordProducer
from millstream.kafka.cluster.committed_offsets import committed_positions
from millstream.kafka.membership.member_events import CommitOffset
from millstream.kafka.settings.librdkafka_settings import librdkafka_settings
from millstream.operators.arrow import import_pyarrow
from millstream.record import Headers, TopicPartition

SENT_SCHEMA: Final = "records bigint"
_NEEDED_BY: Final = "A DataFrame function"
_MIN_TIMEOUT_MS: Final = 60_000


@dataclass(frozen=True)
class OutputTopic:
    """The full name of an output topic, and the librdkafka settings of its producers."""

    topic: str
    settings: Mapping[str, Any]
    #: The timeout of requests to the cluster.
    timeout_ms: int
    #: Whether clients use the C extension. None uses it if it is available.
    speedups: bool | None = None


def output_topic(topic: str, config: StreamsConfig, client_id: str) -> OutputTopic:
    """Create an `OutputTopic` with the application's settings."""
    settings = librdkafka_settings(config, "producer", client_id)
    if config.exactly_once:
        # A batch may take longer than the transactions of stream threads, which commit frequently.
        timeout_ms = max(transaction_timeout_ms(config), _MIN_TIMEOUT_MS)
        settings["transaction.timeout.ms"] = timeout_ms
    return OutputTopic(
        topic, settings, max(_MIN_TIMEOUT_MS, config.task_timeout_ms), config.speedups
    )


@dataclass(frozen=True, repr=False)
class AtLeastOnceWriter:
    encode: RowEncoder
    target: OutputTopic

    def run(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Write pyarrow record batches and yield the number of records, for `mapInArrow`."""
        target = self.target
        producer = RecordProducer(
            target.settings, task_timeout_ms=target.timeout_ms, speedups=target.speedups
        )
        sent = 0
        try:
            for keys, values, batch in self.encode.records(batches):
                times, headers = _times(batch), _headers(batch)
                producer.send_many(target.topic, None, keys, values, times, headers)
                sent += len(values)
            producer.flush(target.timeout_ms)
        finally:
            producer.close()
        yield _count(sent)


@dataclass(frozen=True)
class QueryBatch:
    number: int
    #: The ID of the query, which is stored in its checkpoint.
    query: str
    #: The group in which batch numbers are committed.
    group: str
    #: The prefix of the transactional IDs, to which the partition is appended.
    transactional_id: str


@dataclass(frozen=True, repr=False)
class ExactlyOnceWriter:
    """Writes encoded rows exactly once, in one transaction per partition."""

    target: OutputTopic
    batch: QueryBatch

    def run(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Write batches of `WIRE_SCHEMA` and yield the number of records.

        The rows must be sorted by partition, across all batches.
        """
        sent = 0
        writer: _PartitionWriter | None = None
        try:
            for batch in batches:
                for partition, rows in _partition_slices(batch):
                    if writer is None or writer.partition != partition:
                        if writer is not None:
                            sent += writer.commit()
                            writer.close()
                        writer = _PartitionWriter(self.target, self.batch, partition)
                    writer.write(rows)
            if writer is not None:
                sent += writer.commit()
        finally:
            if writer is not None:
                writer.close()
        yield _count(sent)


class _PartitionWriter:
    def __init__(self, target: OutputTopic, batch: QueryBatch, partition: int) -> None:
        self.partition = partition
        self._target = target
        self._batch = batch
        self._topic_partition = TopicPartition(target.topic, partition)
        self._sent = 0
        self._producer = TransactionalRecordProducer(
            target.settings,
            f"{batch.transactional_id}-{partition}",
            task_timeout_ms=target.timeout_ms,
            speedups=target.speedups,
        )
        try:
            self._producer.init_transactions(target.timeout_ms)
            # Check after `init_transactions`, which fences earlier producers with this ID.
            self._is_done = self._was_written()
        except BaseException:
            self._producer.close()
            raise

    def write(self, rows: Any) -> None:
        if self._is_done:
            return
        values = rows.column("value").to_pylist()
        self._producer.send_many(
            self._target.topic,
            self.partition,
            rows.column("key").to_pylist(),
            values,
            _times(rows),
            _headers(rows),
        )
        self._sent += len(values)

    def commit(self) -> int:
        """Commit the rows together with the batch number.

        Returns the number of rows written.
        """
        if self._is_done:
            return 0
        timeout_ms = self._target.timeout_ms
        done = CommitOffset(self._batch.number + 1, self._batch.query)
        member = GroupMetadata(-1, self._batch.group, "")
        try:
            self._producer.flush(timeout_ms)
            self._producer.send_offsets({self._topic_partition: done}, member, timeout_ms)
            self._producer.commit_transaction(timeout_ms)
        except BrokerUnavailableError:
            raise
        except StreamsError:
            self._producer.purge()
            raise
        return self._sent

    def close(self) -> None:
        self._producer.close()

    def _was_written(self) -> bool:
        settings = {
            name: value
            for name, value in self._target.settings.items()
            if name.startswith(("bootstrap.", "client.", "security.", "ssl.", "sasl.", "oauth"))
        }
        found = committed_positions(
            settings,
            self._batch.group,
            [self._topic_partition],
            self._target.timeout_ms,
            SystemClock(),
        )[self._topic_partition]
        if found is None:
            return False
        # The batch numbers of another checkpoint are unrelated.
        offset, query = found
        return query == self._batch.query and offset > self._batch.number


def _partition_slices(batch: Any) -> Iterator[tuple[int, Any]]:
    """Yield the consecutive rows of each partition."""
    partitions = batch.column("partition").to_pylist()
    start = 0
    for end in range(1, len(partitions) + 1):
        if end == len(partitions) or partitions[end] != partitions[start]:
            yield partitions[start], batch.slice(start, end - start)
            start = end


def _times(batch: Any) -> list[int]:
    now_ms = SystemClock().now_ms()
    return [now_ms if each is None else each for each in batch.column("timestamp_ms").to_pylist()]


def _headers(batch: Any) -> list[Headers | None] | None:
    column = batch.column("headers")
    if column.null_count == len(column):
        return None
    return [
        None if each is None else tuple((header["key"], header["value"]) for header in each)
        for each in column.to_pylist()
    ]


def _count(sent: int) -> Any:
    arrow = import_pyarrow(_NEEDED_BY)
    return arrow.RecordBatch.from_pydict({"records": arrow.array([sent], arrow.int64())})
