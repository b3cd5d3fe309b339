"""Selection of the next batch.

It contains the records that Kafka Streams would take one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain, islice
from operator import attrgetter
from typing import Final, TypeVar

from millstream.errors import StreamsError
from millstream.java_priority_queue import JavaPriorityQueue
from millstream.operators.record_batch import Batch, Order, Origin, merge_batches
from millstream.record import Headers, TopicPartition
from millstream.runtime.task.queues.raw_records import RawPair, raw_pair
from millstream.runtime.task.queues.record_queue import RecordQueue, TakenRecords
from millstream.topology.physical.java_order import partition_order

T = TypeVar("T")

#: Greater than every timestamp.
_NEVER_MS: Final = 1 << 63

#: Pairs of a source node's name and the batch of its records.
TaskBatch = list[tuple[str, Batch]]


class PartitionGroup:
    """The queues of a task's input partitions, read in the order of head timestamps.

    Queues with equal head timestamps are read in the order of Java's priority queue (see
    `JavaPriorityQueue`), which depends on the order in which they received their first records. A
    batch ends when a queue runs empty, because readiness (`max.task.idle.ms`) must then be checked
    again.

    Stream time is the highest timestamp of all records taken so far. It never decreases. If
    `ordered`, batches carry the records' positions in depth-first order.
    """

    def __init__(self, queues: Mapping[TopicPartition, RecordQueue], ordered: bool) -> None:
        # Follows Kafka Streams, which checks and waits for empty partitions in this order.
        self.queues = {partition: queues[partition] for partition in partition_order(queues)}
        self.stream_time = -1
        self._ordered = ordered
        self._by_time: JavaPriorityQueue[RecordQueue] = JavaPriorityQueue(
            key=attrgetter("head_time")
        )
        # Queues that have records but are not in `_by_time`, in the order in which the records
        # arrived.
        self._ready_queues: list[RecordQueue] = []
        # The deadlines of the waits for records of empty partitions.
        self._idle_until_ms: dict[TopicPartition, int] = {}
        self._track_ready_queues()

    @property
    def size(self) -> int:
        """The number of records in all queues."""
        return sum(queue.size for queue in self.queues.values())

    def add_queue(self, queue: RecordQueue) -> None:
        """Add the queue of one more input partition."""
        queues = {**self.queues, queue.partition: queue}
        self.queues = {partition: queues[partition] for partition in partition_order(queues)}
        self._track_ready_queues()

    def is_ready(
        self, at_end: Callable[[TopicPartition], bool], max_idle_ms: int, now_ms: int
    ) -> bool:
        """Return whether the next record may be taken now (`max.task.idle.ms`).

        See KIP-353 and KIP-695. Records are taken in timestamp order across partitions, so an empty
        partition blocks the others while the broker has data that has not been fetched yet, and
        after that for up to `max_idle_ms`. Follows Kafka Streams: the wait for one empty partition
        starts when the wait for the previous one is over, and is not repeated until the partition
        has received a record. A negative `max_idle_ms` disables waiting.

        Raises StreamsError if a record cannot be deserialized.
        """
        # Decode first: dropped records do not count as available.
        available = {partition: queue.available() for partition, queue in self.queues.items()}
        if max_idle_ms < 0:
            return True
        idle_until_ms = self._idle_until_ms
        for partition, count in available.items():
            if count:
                idle_until_ms.pop(partition, None)
            elif not at_end(partition):
                idle_until_ms.pop(partition, None)
                return False
            elif now_ms < idle_until_ms.setdefault(partition, now_ms + max_idle_ms):
                return False
        return True

    def next_batch(self, max_records: int, until_ms: int | None = None) -> TaskBatch | None:
        """Return the next batch, or None if all queues are empty.

        The batch ends with the first record that advances stream time to `until_ms`. Raises
        StreamsError if the next record cannot be deserialized.
        """
        if until_ms is None:
            until_ms = _NEVER_MS
        if len(self.queues) == 1:
            return self._cut(next(iter(self.queues.values())), max_records, until_ms)
        return self._interleave(max_records, until_ms)

    def finish_all(self) -> None:
        """Mark all records taken so far, and their results, as finished."""
        for queue in self.queues.values():
            queue.finish_all()

    @property
    def largest_pending(self) -> int:
        """The largest number of records of one partition that cannot be committed yet."""
        return max(queue.pending.size for queue in self.queues.values())

    def finish(self, records: Iterable[tuple[TopicPartition, int]]) -> None:
        """Mark records as finished, in any order.

        A cache may have held back the results of these records until now.
        """
        queues = self.queues
        touched: set[TopicPartition] = set()
        for partition, offset in records:
            queues[partition].pending.finish(offset)
            touched.add(partition)
        for partition in touched:
            queues[partition].discard_finished()

    def raw_of(self, partition: TopicPartition, offset: int) -> RawPair | None:
        """Return the serialized key and value of a record in flight, if available."""
        queue = self.queues.get(partition)
        return None if queue is None else queue.raw_of(offset)

    def raw_in_flight(self) -> Callable[[TopicPartition, int], RawPair | None]:
        """Return a function like `raw_of` for the records that are currently in flight."""
        chunks = {partition: queue.raw_in_flight() for partition, queue in self.queues.items()}
        return lambda partition, offset: raw_pair(chunks.get(partition, ()), offset)

    def _track_ready_queues(self) -> None:
        """Let the queues add themselves to `_ready_queues`, unless there is only one."""
        if len(self.queues) < 2:
            return
        for queue in self.queues.values():
            if queue.ready_queues is None:
                queue.ready_queues = self._ready_queues
                if queue.size:
                    self._ready_queues.append(queue)

    def _cut(self, queue: RecordQueue, max_records: int, until_ms: int) -> TaskBatch | None:
        available = queue.available()
        if not available:
            return None
        count = min(available, max_records)
        if until_ms < _NEVER_MS:
            count = queue.count_until(until_ms, count)
        taken = queue.take(count)
        stream_times = partial(_stream_times, self.stream_time, taken.timestamps)
        self.stream_time = max(self.stream_time, queue.partition_time)
        size = len(taken.keys)
        origin = Origin(queue.partition, taken.offsets, taken.headers, stream_times)
        order: list[Order] | None = [(i,) for i in range(size)] if self._ordered else None
        batch = Batch(taken.keys, taken.values, taken.timestamps, range(size), origin, order)
        return [(queue.source, batch)]

    def _interleave(self, max_records: int, until_ms: int) -> TaskBatch | None:
        while self._ready_queues:
            queue = self._ready_queues[0]
            if queue.available():
                self._by_time.offer(queue)
            self._ready_queues.pop(0)
        # Mark records here, and copy them in one piece per queue afterward. If two topics
        # alternate, this takes 0.9 us per record, compared to 1.6 us with a copy of each record.
        by_time = self._by_time
        taken = _TakenBatch()
        row_queues = taken.row_queues
        while len(by_time) and len(row_queues) < max_records:
            queue = by_time.poll()
            is_last = queue.head_time >= until_ms
            before, max_taken = until_ms, 1
            if len(by_time) < 2 and not is_last:
                # While this queue is ahead of the only other one, it stays on top: take its records
                # without the priority queue, at 0.2 us per record.
                max_taken = max_records - len(row_queues)
                if len(by_time):
                    before = min(before, by_time.peek().head_time)
            count, ready = queue.mark_before(before, max_taken)
            row_queues += [queue] * count
            if ready:
                by_time.offer(queue)
            else:
                taken.add(queue)
                if not self._offer_again(queue):
                    break
            if is_last:
                break
        if not taken.row_queues:
            return None
        taken.add_rest()
        stream_time = self.stream_time
        self.stream_time = max(self.stream_time, *(q.partition_time for q in taken.parts))
        return taken.batches(self._ordered, stream_time)

    def _offer_again(self, queue: RecordQueue) -> bool:
        try:
            if not queue.available():
                return False
        except StreamsError:
            # The queue keeps the error and raises it again at the start of the next batch, because
            # the records that were already taken are processed first.
            self._ready_queues.append(queue)
            return False
        self._by_time.offer(queue)
        return True


class _TakenBatch:
    """The records of a batch that is taken from several partitions."""

    def __init__(self) -> None:
        #: The queue of each record, in the order in which the records were taken.
        self.row_queues: list[RecordQueue] = []
        #: The records taken from each queue, in queue order.
        self.parts: dict[RecordQueue, list[TakenRecords]] = {}
        self._counted: dict[RecordQueue, int] = {}

    def add(self, queue: RecordQueue) -> None:
        """Take the marked records of a queue."""
        part = queue.take_marked()
        self.parts.setdefault(queue, []).append(part)
        self._counted[queue] = self._counted.get(queue, 0) + len(part.keys)

    def add_rest(self) -> None:
        """Take the marked records of all queues."""
        for queue, count in Counter(self.row_queues).items():
            if count > self._counted.get(queue, 0):
                self.add(queue)

    def batches(self, ordered: bool, stream_time: int) -> TaskBatch:
        """Return one batch per source.

        Each record has its position in the whole task batch. `stream_time` is the stream time
        before the first record.
        """
        size = len(self.row_queues)
        rows: dict[RecordQueue, list[int]] = {queue: [] for queue in self.parts}
        for row, queue in enumerate(self.row_queues):
            rows[queue].append(row)
        offsets = [0] * size
        headers: list[Headers] = [()] * size
        for queue, parts in self.parts.items():
            _scatter(offsets, rows[queue], chain.from_iterable(part.offsets for part in parts))
            if any(part.headers is not None for part in parts):
                _scatter(headers, rows[queue], chain.from_iterable(map(_headers, parts)))
        origin = Origin(
            [queue.partition for queue in self.row_queues],
            offsets,
            headers if any(headers) else None,
            partial(self._stream_times, rows, stream_time),
        )
        by_source: dict[str, list[Batch]] = {}
        for queue, parts in self.parts.items():
            batch = _batch(parts, rows[queue], origin, ordered)
            by_source.setdefault(queue.source, []).append(batch)
        return [(source, _in_row_order(batches)) for source, batches in by_source.items()]

    def _stream_times(self, rows: dict[RecordQueue, list[int]], before: int) -> list[int]:
        timestamps = [0] * len(self.row_queues)
        for queue, parts in self.parts.items():
            _scatter(
                timestamps, rows[queue], chain.from_iterable(part.timestamps for part in parts)
            )
        return _stream_times(before, timestamps)


def _stream_times(before: int, timestamps: Sequence[int]) -> list[int]:
    """Return the stream time at each record, starting from `before`."""
    return list(islice(accumulate(timestamps, max, initial=before), 1, None))


def _headers(part: TakenRecords) -> Sequence[Headers]:
    return [()] * len(part.keys) if part.headers is None else part.headers


def _scatter(column: list[T], rows: list[int], values: Iterable[T]) -> None:
    for row, value in zip(rows, values, strict=True):
        column[row] = value


def _batch(parts: list[TakenRecords], rows: list[int], origin: Origin, ordered: bool) -> Batch:
    keys, values, timestamps = parts[0].keys, parts[0].values, parts[0].timestamps
    for part in parts[1:]:
        keys, values = keys + part.keys, values + part.values
        timestamps = timestamps + part.timestamps
    order: list[Order] | None = [(row,) for row in rows] if ordered else None
    return Batch(keys, values, timestamps, rows, origin, order)


def _in_row_order(batches: list[Batch]) -> Batch:
    """Merge the batches of several partitions of one source."""
    if len(batches) == 1:
        return batches[0]
    joined = merge_batches(batches)
    if joined.order is not None:
        return joined
    return joined.take(sorted(range(len(joined)), key=joined.rows.__getitem__))
