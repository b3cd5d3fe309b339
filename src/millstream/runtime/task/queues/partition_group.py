"""Which records a task takes next: the batch that Kafka Streams would have taken one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain, islice
from operator import attrgetter
from typing import Final, TypeVar

from millstream.errors import StreamsError
from millstream.java_priority_queue import JavaPriorityQueue
from millstream.operators.batch import Batch, Order, Origin, merge_batches
from millstream.record import Headers, TopicPartition
from millstream.runtime.task.queues.raw_records import RawPair, raw_pair
from millstream.runtime.task.queues.record_queue import RecordQueue, Taken
from millstream.topology.physical.java_order import partition_order

T = TypeVar("T")

#: Later than any time there is.
_NEVER_MS: Final = 1 << 63

#: For each source node what it read.
TaskBatch = list[tuple[str, Batch]]


class PartitionGroup:
    """The queues of a task's input partitions, read by lowest head timestamp first.

    Among queues with equal head timestamps Java's priority queue decides (see there), and with it
    the order in which queues got their first records. A batch ends where a queue runs empty,
    because readiness (`max.task.idle.ms`) must be decided again there.

    Stream time is the highest time of all records taken so far; it never goes back.

    Args:
        queues: a queue for each input partition.
        ordered: whether records must carry their place in depth-first order.
    """

    def __init__(self, queues: Mapping[TopicPartition, RecordQueue], ordered: bool) -> None:
        # Follows Kafka Streams: it asks for empty partitions, and waits for them, in this order.
        self.queues = {place: queues[place] for place in partition_order(queues)}
        self.stream_time = -1
        self._ordered = ordered
        self._by_time: JavaPriorityQueue[RecordQueue] = JavaPriorityQueue(
            key=attrgetter("head_time")
        )
        # The queues that have records but are not in `_by_time`, in the order of getting them.
        self._line: list[RecordQueue] = []
        # Until when to wait for records of an empty partition.
        self._idle_until_ms: dict[TopicPartition, int] = {}
        self._form_line()

    @property
    def size(self) -> int:
        """How many records wait in all queues."""
        return sum(queue.size for queue in self.queues.values())

    def add_queue(self, queue: RecordQueue) -> None:
        """Read one more input partition."""
        queues = {**self.queues, queue.place: queue}
        self.queues = {place: queues[place] for place in partition_order(queues)}
        self._form_line()

    def is_ready(
        self, at_end: Callable[[TopicPartition], bool], max_idle_ms: int, now_ms: int
    ) -> bool:
        """Whether the next record may be taken now (`max.task.idle.ms`, KIP-353, KIP-695).

        Records are taken by time across the partitions, so one with nothing waiting holds the
        others back: while the broker has data that is not fetched yet and then, if `max_idle_ms` is
        positive, for that long. Follows Kafka Streams: the wait for one empty partition begins when
        that for the one before it is over, and is not repeated until the partition had a record.

        Args:
            at_end: whether the end of a partition on the broker has been reached.
            max_idle_ms: negative never waits.
            now_ms: the time.

        Raises:
            StreamsError: a record cannot be read.
        """
        # What turns out to be unreadable, and is left out, does not count.
        available = {place: queue.available() for place, queue in self.queues.items()}
        if max_idle_ms < 0:
            return True
        idle_until_ms = self._idle_until_ms
        for place, count in available.items():
            if count:
                idle_until_ms.pop(place, None)
            elif not at_end(place):
                idle_until_ms.pop(place, None)
                return False
            elif now_ms < idle_until_ms.setdefault(place, now_ms + max_idle_ms):
                return False
        return True

    def next_batch(self, most: int, until_ms: int | None = None) -> TaskBatch | None:
        """The next records, at most `most`; None if nothing waits.

        Args:
            most: how many at most.
            until_ms: the batch ends with the first record that takes stream time there.

        Raises:
            StreamsError: the next record cannot be read.
        """
        if until_ms is None:
            until_ms = _NEVER_MS
        if len(self.queues) == 1:
            return self._cut(next(iter(self.queues.values())), most, until_ms)
        return self._interleave(most, until_ms)

    def finish_all(self) -> None:
        """Everything that the records of all batches so far have caused is done."""
        for queue in self.queues.values():
            queue.finish_all()

    @property
    def most_pending(self) -> int:
        """How many records are in flight, or done behind one that is, where it is most."""
        return max(queue.pending.size for queue in self.queues.values())

    def finish(self, places: Iterable[tuple[TopicPartition, int]]) -> None:
        """Everything that these records have caused is done, those before them or not.

        Those that were done before are passed over: a cache may have held something back.
        """
        queues = self.queues
        touched: set[TopicPartition] = set()
        for place, offset in places:
            queues[place].finish(offset)
            touched.add(place)
        for place in touched:
            queues[place].forget_finished()

    def raw_of(self, place: TopicPartition, offset: int) -> RawPair | None:
        """Key and value of a record in flight as they were read; None if they are not at hand."""
        queue = self.queues.get(place)
        return None if queue is None else queue.raw_of(offset)

    def raw_in_flight(self) -> Callable[[TopicPartition, int], RawPair | None]:
        """The same, to be asked later about the records that are in flight now."""
        chunks = {place: queue.in_flight for place, queue in self.queues.items()}
        return lambda place, offset: raw_pair(chunks.get(place, ()), offset)

    def _form_line(self) -> None:
        """Let the queues tell when they get records; a single one need not."""
        if len(self.queues) < 2:
            return
        for queue in self.queues.values():
            if queue.line is None:
                queue.line = self._line
                if queue.size:
                    self._line.append(queue)

    def _cut(self, queue: RecordQueue, most: int, until_ms: int) -> TaskBatch | None:
        available = queue.available()
        if not available:
            return None
        count = min(available, most)
        if until_ms < _NEVER_MS:
            count = queue.count_until(until_ms, count)
        taken = queue.take(count)
        stream_times = partial(_stream_times, self.stream_time, taken.timestamps)
        self.stream_time = max(self.stream_time, queue.partition_time)
        size = len(taken.keys)
        origin = Origin(queue.place, taken.offsets, taken.headers, stream_times)
        order: list[Order] | None = [(i,) for i in range(size)] if self._ordered else None
        batch = Batch(taken.keys, taken.values, taken.timestamps, range(size), origin, order)
        return [(queue.source, batch)]

    def _interleave(self, most: int, until_ms: int) -> TaskBatch | None:
        while self._line:
            queue = self._line[0]
            if queue.available():
                self._by_time.offer(queue)
            self._line.pop(0)
        # What is taken is only noted here, and copied in one piece a queue: 0.9 us a record where
        # two topics alternate, 1.6 us with a copy of each record.
        by_time = self._by_time
        taken = _Taken()
        turns = taken.turns
        while len(by_time) and len(turns) < most:
            queue = by_time.poll()
            is_last = queue.head_time >= until_ms
            before, room = until_ms, 1
            if len(by_time) < 2 and not is_last:
                # As long as it is before the only other one, it would come out on top again: 0.2 us
                # a record.
                room = most - len(turns)
                if len(by_time):
                    before = min(before, by_time.peek().head_time)
            count, ready = queue.pass_before(before, room)
            turns += [queue] * count
            if ready:
                by_time.offer(queue)
            else:
                taken.add(queue)
                if not self._offer_again(queue):
                    break
            if is_last:
                break
        if not taken.turns:
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
            # The queue keeps the error and raises it again when the next batch begins: what was
            # taken before it is processed first.
            self._line.append(queue)
            return False
        self._by_time.offer(queue)
        return True


class _Taken:
    """The records of a batch that is taken from several partitions.

    Attributes:
        turns: the queue that each record is from, in the order of taking.
        parts: what was taken from each queue, in its order.
    """

    def __init__(self) -> None:
        self.turns: list[RecordQueue] = []
        self.parts: dict[RecordQueue, list[Taken]] = {}
        self._counted: dict[RecordQueue, int] = {}

    def add(self, queue: RecordQueue) -> None:
        """Take what was passed over in a queue."""
        part = queue.take_passed()
        self.parts.setdefault(queue, []).append(part)
        self._counted[queue] = self._counted.get(queue, 0) + len(part.keys)

    def add_rest(self) -> None:
        """Take what was passed over in any queue."""
        for queue, count in Counter(self.turns).items():
            if count > self._counted.get(queue, 0):
                self.add(queue)

    def batches(self, ordered: bool, stream_time: int) -> TaskBatch:
        """The records of each source, which know their place among all.

        Args:
            ordered: whether they must know it.
            stream_time: the stream time before them.
        """
        size = len(self.turns)
        rows: dict[RecordQueue, list[int]] = {queue: [] for queue in self.parts}
        for row, queue in enumerate(self.turns):
            rows[queue].append(row)
        offsets = [0] * size
        headers: list[Headers] = [()] * size
        for queue, parts in self.parts.items():
            _scatter(offsets, rows[queue], chain.from_iterable(part.offsets for part in parts))
            if any(part.headers is not None for part in parts):
                _scatter(headers, rows[queue], chain.from_iterable(map(_headers, parts)))
        origin = Origin(
            [queue.place for queue in self.turns],
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
        timestamps = [0] * len(self.turns)
        for queue, parts in self.parts.items():
            _scatter(
                timestamps, rows[queue], chain.from_iterable(part.timestamps for part in parts)
            )
        return _stream_times(before, timestamps)


def _stream_times(before: int, timestamps: Sequence[int]) -> list[int]:
    """The highest time up to each record, and before them all."""
    return list(islice(accumulate(timestamps, max, initial=before), 1, None))


def _headers(part: Taken) -> Sequence[Headers]:
    return [()] * len(part.keys) if part.headers is None else part.headers


def _scatter(column: list[T], rows: list[int], values: Iterable[T]) -> None:
    for row, value in zip(rows, values, strict=True):
        column[row] = value


def _batch(parts: list[Taken], rows: list[int], origin: Origin, ordered: bool) -> Batch:
    keys, values, timestamps = parts[0].keys, parts[0].values, parts[0].timestamps
    for part in parts[1:]:
        keys, values = keys + part.keys, values + part.values
        timestamps = timestamps + part.timestamps
    order: list[Order] | None = [(row,) for row in rows] if ordered else None
    return Batch(keys, values, timestamps, rows, origin, order)


def _in_row_order(batches: list[Batch]) -> Batch:
    """The records of several partitions of one source as one batch."""
    if len(batches) == 1:
        return batches[0]
    joined = merge_batches(batches)
    if joined.order is not None:
        return joined
    return joined.take(sorted(range(len(joined)), key=joined.rows.__getitem__))
