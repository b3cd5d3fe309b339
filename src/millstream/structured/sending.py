"""Writing the rows of a batch into a topic, in Spark's Python workers.

Under exactly-once each partition of a batch is one transaction, in which the batch's number is
committed as an offset. A batch that is done again finds that number, and is not written twice.
Source of the idea: Spark's idempotent sinks (`foreachBatch` with the batch id, Delta's `txnAppId`
and `txnVersion`), and Kafka's rule that offsets belong into the producer's transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from millstream.clock import SystemClock
from millstream.errors import BrokerUnavailableError, StreamsError
from millstream.kafka.cluster.committed_offsets import committed_positions
from millstream.kafka.data.group_metadata import GroupMetadata
from millstream.kafka.data.producer import RecordProducer
from millstream.kafka.data.transactions import TransactionalRecordProducer
from millstream.kafka.member.events import CommitOffset
from millstream.operators.arrow import imported_pyarrow
from millstream.record import Headers, TopicPartition
from millstream.structured.rows import Encode

SENT_SCHEMA: Final = "records bigint"
_NEEDED_BY: Final = "A DataFrame function"


@dataclass(frozen=True)
class Target:
    """The topic that the rows go into, and how its clients are made.

    Args:
        topic: as the cluster knows it.
        settings: librdkafka's, of a producer.
        timeout_ms: how long the cluster may take.
        speedups: whether its clients use the C extension; None for where that can be used.
    """

    topic: str
    settings: Mapping[str, Any]
    timeout_ms: int
    speedups: bool | None = None


class Send:
    """Encodes rows and writes them, at least once.

    Args:
        encode: makes the bytes.
        target: where they go.
    """

    def __init__(self, encode: Encode, target: Target) -> None:
        self._encode = encode
        self._target = target

    def run(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Record batches of pyarrow to one that says how many were written; for `mapInArrow`."""
        target = self._target
        producer = RecordProducer(
            target.settings, task_timeout_ms=target.timeout_ms, speedups=target.speedups
        )
        sent = 0
        try:
            for keys, values, batch in self._encode.records(batches):
                times, headers = _times(batch), _headers(batch)
                producer.send_many(target.topic, None, keys, values, times, headers)
                sent += len(values)
            producer.flush(target.timeout_ms)
        finally:
            producer.close()
        yield _count(sent)


@dataclass(frozen=True)
class Batch:
    """Which batch of which query is written.

    Args:
        number: the batch's.
        query: the id of the query, which its checkpoint keeps.
        group: the group under which numbers are committed.
        transactional_id: of the transactions, without the partition.
    """

    number: int
    query: str
    group: str
    transactional_id: str


class SendOnce:
    """Writes encoded rows, a transaction for each partition; none if that was done before.

    Args:
        target: where they go.
        batch: which batch they are.
    """

    def __init__(self, target: Target, batch: Batch) -> None:
        self._target = target
        self._batch = batch

    def run(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Record batches of `WIRE_SCHEMA`, by partition, to one that says how many were written."""
        sent = 0
        writer: _PartitionWriter | None = None
        try:
            for batch in batches:
                for partition, rows in _runs(batch):
                    if writer is None or writer.partition != partition:
                        if writer is not None:
                            sent += writer.commit()
                            writer.close()
                        writer = _PartitionWriter(self._target, self._batch, partition)
                    writer.write(rows)
            if writer is not None:
                sent += writer.commit()
        finally:
            if writer is not None:
                writer.close()
        yield _count(sent)


class _PartitionWriter:
    """One partition of one batch."""

    def __init__(self, target: Target, batch: Batch, partition: int) -> None:
        self.partition = partition
        self._target = target
        self._batch = batch
        self._place = TopicPartition(target.topic, partition)
        self._sent = 0
        identity = f"{batch.transactional_id}-{partition}"
        self._producer = TransactionalRecordProducer(
            target.settings,
            identity,
            task_timeout_ms=target.timeout_ms,
            speedups=target.speedups,
        )
        try:
            self._producer.init_transactions(target.timeout_ms)
            # Asked only now: whoever wrote before under this id cannot commit any more.
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
        """Commit the rows with the batch's number; how many were written."""
        if self._is_done:
            return 0
        timeout_ms = self._target.timeout_ms
        done = CommitOffset(self._batch.number + 1, self._batch.query)
        member = GroupMetadata(-1, self._batch.group, "")
        try:
            self._producer.flush(timeout_ms)
            self._producer.send_offsets({self._place: done}, member, timeout_ms)
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
            settings, self._batch.group, [self._place], self._target.timeout_ms, SystemClock()
        )[self._place]
        if found is None:
            return False
        # The numbers of another checkpoint say nothing about this one's.
        offset, query = found
        return query == self._batch.query and offset > self._batch.number


def _runs(batch: Any) -> Iterator[tuple[int, Any]]:
    """The rows of each partition, which lie together."""
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
    arrow = imported_pyarrow(_NEEDED_BY)
    return arrow.RecordBatch.from_pydict({"records": arrow.array([sent], arrow.int64())})
