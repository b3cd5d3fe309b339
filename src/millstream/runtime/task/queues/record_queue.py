"""A queue of fetched records for one input partition of a task."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import islice
from typing import Any, NamedTuple, Protocol

from millstream.async_checks import checked_result
from millstream.errors import (
    BatchSerializationError,
    SerializationError,
    StreamsError,
    repr_of,
    summary_of,
)
from millstream.processor.handlers import ErrorContext, SourceRecord
from millstream.processor.timestamps import FailOnInvalidTimestamp, KeepValidTimestamp
from millstream.record import MAX_TIME_MS, Headers, Record, TaskId, TopicPartition
from millstream.runtime.task.error_handling.handler_results import handler_notes
from millstream.runtime.task.queues.pending_offsets import PendingOffsets
from millstream.runtime.task.queues.raw_records import (
    RawPair,
    RawRecords,
    raw_pair,
    raw_part,
    with_header_timestamps,
)
from millstream.runtime.task.task_meters import ConsumedMeter
from millstream.runtime.task.time_limits import ChunkPace
from millstream.serdes import Serde
from millstream.topology.physical.nodes import TimestampExtractor

logger = logging.getLogger(__name__)


class DecodeErrors(Protocol):
    """Decides whether to drop records that cannot be deserialized."""

    def undecodable(self, context: ErrorContext, record: SourceRecord, error: Exception) -> bool:
        """Return True to drop the record, False to fail."""

    def dropped(self, count: int, why: str) -> None: ...


class Chunk:
    """Decoded records of one poll as parallel lists, and the number already taken."""

    def __init__(self, raw: RawRecords) -> None:
        self.raw = raw
        #: The index of each record in `raw`.
        self.kept: Sequence[int] = range(len(raw.offsets))
        self.end_offset = raw.offsets[-1] + 1
        self.keys: list[Any] = raw.keys
        self.values: list[Any] = raw.values
        self.timestamps = raw.timestamps
        self.offsets = raw.offsets
        self.headers = raw.headers
        self.taken = 0

    def drop(self, indices: Sequence[int]) -> None:
        if not indices:
            return
        dropped = set(indices)
        self._keep([i for i in range(len(self.kept)) if i not in dropped])

    def cut(self, size: int) -> None:
        self._keep(range(size))

    def end_before(self, index: int) -> None:
        """Truncate the chunk before the record at `index`; the next chunk starts with it."""
        raw_end = self.kept[index]
        self.cut(index)
        self.raw = raw_part(self.raw, 0, raw_end)
        self.end_offset = self.raw.offsets[-1] + 1

    def _keep(self, indices: Sequence[int]) -> None:
        self.kept = [self.kept[i] for i in indices]
        self.keys = [self.keys[i] for i in indices]
        self.values = [self.values[i] for i in indices]
        self.timestamps = [self.timestamps[i] for i in indices]
        self.offsets = [self.offsets[i] for i in indices]
        if self.headers is not None:
            self.headers = [self.headers[i] for i in indices]


class TakenRecords(NamedTuple):
    """Records taken from one queue, as parallel lists."""

    keys: list[Any]
    values: list[Any]
    timestamps: list[int]
    offsets: Sequence[int]
    headers: Sequence[Headers] | None


class RecordQueue:
    """A FIFO queue for one input partition of one task.

    A chunk of records is deserialized when its first record becomes the head: as late as in Kafka
    Streams, but all records of the chunk together. A record that cannot be deserialized and must
    not be dropped stops the queue: the records before it are processed first, then its error is
    raised.

    Without an extractor, record timestamps must not be negative (`FailOnInvalidTimestamp`).
    """

    def __init__(
        self,
        partition: TopicPartition,
        source: str,
        task_id: TaskId,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        extractor: TimestampExtractor | None,
        errors: DecodeErrors,
    ) -> None:
        self.partition = partition
        self.source = source
        #: The highest timestamp taken from this partition; -1 before the first record.
        self.partition_time = -1
        #: The timestamp of the next record; only valid if one is `available`.
        self.head_time = -1
        #: The number of queued records, including those that cannot be deserialized.
        self.size = 0
        #: The list to which an empty queue adds itself when it gets records; None if not needed.
        self.ready_queues: list[RecordQueue] | None = None
        #: The offsets in flight. The caller that takes records must also mark them as finished.
        self.pending = PendingOffsets()
        #: Counts the records taken; None disables counting.
        self.meter: ConsumedMeter | None = None
        #: Limits how many records are deserialized together; None deserializes whole polls.
        self.pace: ChunkPace | None = None
        #: The offset committed before this queue was created; None if there is none.
        self.committed_offset: int | None = None
        self._task_id = task_id
        self._key_serde = key_serde
        self._value_serde = value_serde
        is_default = extractor is None or type(extractor) is FailOnInvalidTimestamp
        self._extractor = None if is_default else extractor
        self._keeps_valid = is_default or isinstance(extractor, KeepValidTimestamp)
        self._errors = errors
        self._raw: deque[RawRecords] = deque()
        # The number of records of `_raw[0]` that are already deserialized.
        self._raw_start = 0
        self._head: Chunk | None = None
        self._poison: StreamsError | None = None
        self._poison_offset = -1
        # By offset: whether to drop a record that is deserialized again.
        self._decisions: dict[int, bool] = {}
        self._next_offset: int | None = None
        self._last_epoch: int | None = None
        self._marked = 0
        # The serialized data of decoded records that are not finished, for error handlers.
        self._in_flight: list[RawRecords] = []

    def raw_of(self, offset: int) -> RawPair | None:
        """Return the serialized key and value of a record in flight, if available."""
        return raw_pair(self._in_flight, offset)

    def raw_in_flight(self) -> list[RawRecords]:
        """Return the serialized data of unfinished decoded records, as a new list."""
        return list(self._in_flight)

    def finish_all(self) -> None:
        """Mark all records taken so far, and their results, as finished."""
        self.pending.finish_all()
        # The chunk at the head may contain records that are not taken yet.
        del self._in_flight[: -1 if self._head is not None else None]

    def discard_finished(self) -> None:
        """Discard the serialized data of finished records."""
        first = self.pending.first
        if first is None:
            first = self._in_flight[-1].offsets[-1] + 1 if self._in_flight else 0
        kept = [raw for raw in self._in_flight if raw.offsets[-1] >= first]
        if self._head is not None and self._head.raw not in kept:
            kept.append(self._head.raw)
        self._in_flight = kept

    def add(self, raw: RawRecords) -> None:
        """Add the records of a poll; there must be at least one."""
        if not self.size and self.ready_queues is not None:
            self.ready_queues.append(self)
        self._raw.append(raw)
        self.size += len(raw.offsets)

    def available(self) -> int:
        """Return how many records can be taken without deserializing more.

        Raises StreamsError if the head cannot be deserialized and must not be dropped.
        """
        head = self._readable_head()
        return 0 if head is None else len(head.offsets) - head.taken

    def mark_before(self, time_ms: int, max_records: int) -> tuple[int, bool]:
        """Mark the next record, and following ones before `time_ms`, for `take_marked`.

        The queue must not be empty. Returns the number of records marked, at most `max_records`,
        and whether another decoded record follows. If none does, call `take_marked` next.
        """
        head = self._head
        assert head is not None
        times, start = head.timestamps, head.taken + self._marked
        end = min(len(times), start + max_records)
        index = start + 1
        while index < end and times[index] < time_ms:
            index += 1
        self._marked += index - start
        if index == len(times):
            return index - start, False
        self.head_time = times[index]
        return index - start, True

    def count_until(self, until_ms: int, max_records: int) -> int:
        """Count the records up to and including the first at or after `until_ms`.

        The count is at most `max_records`.
        """
        head = self._head
        assert head is not None
        times = islice(head.timestamps, head.taken, head.taken + max_records)
        return next((n for n, time in enumerate(times, 1) if time >= until_ms), max_records)

    def take_marked(self) -> TakenRecords:
        """Take the marked records; at least one must be marked."""
        count, self._marked = self._marked, 0
        return self.take(count)

    def take(self, count: int) -> TakenRecords:
        """Take the next `count` records, which must be available."""
        head = self._head
        assert head is not None
        start, end = head.taken, head.taken + count
        self.size -= count
        head.taken = end
        if start == 0 and end == len(head.offsets):
            taken = TakenRecords(
                head.keys, head.values, head.timestamps, head.offsets, head.headers
            )
        else:
            taken = TakenRecords(
                head.keys[start:end],
                head.values[start:end],
                head.timestamps[start:end],
                head.offsets[start:end],
                None if head.headers is None else head.headers[start:end],
            )
        if self.meter is not None:
            self.meter.record(head.raw, head.kept[start:end], count)
        self.pending.take(taken.offsets, head.raw.leader_epoch, taken.timestamps)
        if end == len(head.offsets):
            self._finish(head)
        else:
            self.head_time = head.timestamps[end]
        self.partition_time = max(self.partition_time, self.pending.latest)
        return taken

    def next_offset(self) -> int | None:
        """Return the offset to resume from after a restart; None if nothing was queued.

        This is the first offset in flight, or else the offset of the next queued record, or else
        the offset after the last record.
        """
        first = self.pending.first
        if first is not None:
            return first
        if self._head is not None:
            return self._head.offsets[self._head.taken]
        if self._poison is not None:
            return self._poison_offset
        if self._raw:
            return self._raw[0].offsets[self._raw_start]
        return self._next_offset

    def skip_to(self, offset: int) -> bool:
        """Skip transaction markers and gaps before `offset`.

        Returns whether the committable offset has changed. Without skipping, a topic that was read
        to its end would show a lag forever.
        """
        known = self.committed_offset if self._next_offset is None else self._next_offset
        if self.size or self.pending.in_flight or known is None or offset <= known:
            return False
        self._next_offset = offset
        return True

    def leader_epoch(self) -> int | None:
        """Return the leader epoch to commit with `next_offset`; None if unknown.

        The epoch is that of the last finished record, or of a record in the same poll. An epoch
        that is too high only hides a truncation within the poll; one that is too low would report a
        truncation that did not happen.
        """
        if self.pending.in_flight:
            return self.pending.leader_epoch
        head = self._head
        return self._last_epoch if head is None or not head.taken else head.raw.leader_epoch

    def _finish(self, chunk: Chunk) -> None:
        self._head = None
        self._next_offset = chunk.end_offset
        self._last_epoch = chunk.raw.leader_epoch

    def _readable_head(self) -> Chunk | None:
        while self._head is None:
            if self._poison is not None:
                raise self._poison
            if not self._raw:
                return None
            chunk = self._next_chunk()
            raw, left = chunk.raw, len(chunk.offsets)
            if self._poison is None:
                self.size -= len(raw.offsets) - left
            if left:
                self._in_flight.append(raw)
                self._head = chunk
                self.head_time = chunk.timestamps[0]
            elif self._poison is None:
                self._finish(chunk)
        return self._head

    def _next_chunk(self) -> Chunk:
        """Deserialize the next records, as many as the limit allows."""
        raw, start, pace = self._raw[0], self._raw_start, self.pace
        size = len(raw.offsets) - start
        limit = size if pace is None else min(size, pace.limit)
        chunk = Chunk(raw_part(raw, start, start + limit))
        offset = chunk.offsets[0]
        with nullcontext() if pace is None else pace.watch(limit):
            chunk.keys = self._decode_column(chunk, "key", self._key_serde, chunk.keys)
            chunk.values = self._decode_column(chunk, "value", self._value_serde, chunk.values)
            self._extract_timestamps(chunk)
        # Dequeue only now, so that the records stay queued after an error that is not an Exception,
        # such as SystemExit.
        taken = len(chunk.raw.offsets)
        if taken == size:
            self._raw.popleft()
            self._raw_start = 0
        else:
            self._raw_start = start + taken
        if self._decisions:
            end = chunk.end_offset
            self._decisions = {
                at: may_drop for at, may_drop in self._decisions.items() if at >= end
            }
        if pace is not None:
            pace.done(taken, offset)
        return chunk

    def _interruptible(self, items: list[Any]) -> list[Any]:
        """Return a list whose iteration stops early if it takes too long."""
        return items if self.pace is None or len(items) < 2 else self.pace.interruptible(items)

    def _interrupt(self, chunk: Chunk, index: int) -> None:
        """End the chunk before `index`, because deserialization took too long.

        If a later record could not be deserialized, it fails again in the next chunk; the decision
        whether to drop it is stored.
        """
        chunk.end_before(index)
        self._poison = None

    def _decode_column(
        self, chunk: Chunk, what: str, serde: Serde[Any], raw: list[bytes | None]
    ) -> list[Any]:
        """Deserialize a column, and remove failed records from the chunk."""
        try:
            decoded = self._deserialized(serde, raw)
            if len(decoded) < len(raw):
                self._interrupt(chunk, len(decoded))
            return decoded
        except BatchSerializationError as error:
            failure = error
        decoded = []
        bad: list[int] = []
        start = 0
        while True:
            index = start + failure.index
            decoded += failure.done
            if not self._should_drop(chunk, index, what, failure):
                chunk.cut(index)
                break
            bad.append(index)
            decoded.append(None)
            start = index + 1
            try:
                if start < len(raw):
                    decoded += self._deserialized(serde, raw[start:])
                if len(decoded) < len(raw):
                    self._interrupt(chunk, len(decoded))
                break
            except BatchSerializationError as error:
                failure = error
        chunk.drop(bad)
        dropped = set(bad)
        return [item for index, item in enumerate(decoded) if index not in dropped]

    def _deserialized(self, serde: Serde[Any], raw: list[bytes | None]) -> list[Any]:
        """Deserialize all elements, or fewer (at least one) if that takes too long."""
        topic = self.partition.topic
        if type(serde).deserialize_many is not Serde.deserialize_many:
            # Built-in serdes are fast, and some need the number of elements in advance.
            return serde.deserialize_many(topic, raw)
        return serde.deserialize_many(topic, self._interruptible(raw)) or serde.deserialize_many(
            topic, raw[:1]
        )

    def _should_drop(self, chunk: Chunk, index: int, what: str, error: SerializationError) -> bool:
        offset = chunk.offsets[index]
        headers = () if chunk.headers is None else chunk.headers[index]
        record = SourceRecord(
            self.partition.topic,
            self.partition.partition,
            offset,
            chunk.timestamps[index],
            headers,
            chunk.raw.keys[chunk.kept[index]],
            chunk.raw.values[chunk.kept[index]],
        )
        context = ErrorContext.of(record, self.source, self._task_id)
        may_drop = self._decisions.get(offset)
        if may_drop is None:
            may_drop = self._decisions[offset] = self._errors.undecodable(context, record, error)
        if may_drop:
            return True
        self._stop_at(
            offset,
            SerializationError(
                f"The {what} of a record could not be deserialized. {error.message} Pass the serde "
                f"that matches the topic's data where the topic is read ({what}=...), or set "
                "deserialization_exception_handler=LogAndContinueExceptionHandler() to skip such "
                f"records.{handler_notes(error)}",
                **self._where(offset),
            ),
            error.__cause__ or error,
        )
        return False

    def _extract_timestamps(self, chunk: Chunk) -> None:
        if not chunk.offsets:
            return
        if self._keeps_valid and min(chunk.timestamps) >= 0:
            return
        if self._extractor is None:
            self._stop_at_invalid_timestamp(chunk)
            return
        highest = self.partition_time
        timestamps: list[int] = []
        skipped: list[int] = []
        keys = self._interruptible(chunk.keys) or chunk.keys[:1]
        for index, key in enumerate(keys):
            headers = () if chunk.headers is None else chunk.headers[index]
            record = _extractable(key, chunk.values[index], chunk.timestamps[index], headers)
            try:
                timestamp = self._extractor(record, highest)
                if type(timestamp) is not int or timestamp > MAX_TIME_MS:
                    _reject_timestamp(timestamp)
                is_valid = timestamp >= 0
            except Exception as error:
                offset = chunk.offsets[index]
                failure = StreamsError(_extractor_message(error), **self._where(offset))
                self._stop_at(offset, failure, error)
                chunk.timestamps = timestamps + chunk.timestamps[index:]
                chunk.cut(index)
                break
            if is_valid:
                highest = max(highest, timestamp)
            else:
                skipped.append(index)
            timestamps.append(timestamp)
        else:
            if len(timestamps) < len(chunk.offsets):
                self._interrupt(chunk, len(timestamps))
            chunk.timestamps = timestamps
        if skipped:
            self._errors.dropped(len(skipped), "the timestamp extractor returned a negative time")
            chunk.drop(skipped)

    def _stop_at_invalid_timestamp(self, chunk: Chunk) -> None:
        index = next(i for i, timestamp in enumerate(chunk.timestamps) if timestamp < 0)
        offset = chunk.offsets[index]
        self._stop_at(
            offset,
            StreamsError(
                f"A record has the invalid timestamp {chunk.timestamps[index]}. Its producer is "
                "probably older than Kafka 0.10. Give the source a timestamp_extractor that takes "
                "the time from elsewhere, or returns a negative number to skip the record.",
                **self._where(offset),
            ),
        )
        chunk.cut(index)

    def _stop_at(
        self, offset: int, error: StreamsError, cause: BaseException | None = None
    ) -> None:
        error.__cause__ = cause
        self._poison = error
        self._poison_offset = offset

    def _where(self, offset: int) -> dict[str, Any]:
        return {
            "task_id": self._task_id,
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "offset": offset,
            "node": self.source,
        }


class HeaderTimestampQueue(RecordQueue):
    """A queue that takes each record's timestamp from its last header.

    The header is removed.
    """

    def add(self, raw: RawRecords) -> None:
        super().add(with_header_timestamps(raw))


def _extractor_message(error: Exception) -> str:
    if type(error) is StreamsError:
        # The messages of built-in extractors already contain the remedy.
        return error.message
    return (
        f"The timestamp extractor failed: {summary_of(error)}. It must return a time in whole "
        "milliseconds since the epoch, or a negative number to skip the record."
    )


def _reject_timestamp(timestamp: Any) -> None:
    checked_result(timestamp)
    if type(timestamp) is int:
        raise ValueError(f"it returned {timestamp}, which is greater than 2^63 - 1")
    raise TypeError(
        f"it returned {repr_of(timestamp)} of type {type(timestamp).__name__}, not an int"
    )


def _extractable(key: Any, value: Any, timestamp: int, headers: Headers) -> Record[Any, Any]:
    record = Record(key, value, max(timestamp, 0), headers)
    if timestamp < 0:
        # A record may have an invalid timestamp only here: the extractor replaces it.
        object.__setattr__(record, "timestamp", timestamp)
    return record
