"""The records of one input partition that wait for their task."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any, Protocol

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
from millstream.runtime.task.answers import handlers_failure
from millstream.runtime.task.queues.pending_offsets import PendingOffsets
from millstream.runtime.task.queues.raw_records import RawPair, RawRecords, raw_pair, raw_part
from millstream.serdes import Serde
from millstream.topology.physical.nodes import TimestampExtractor
from millstream.unawaited import checked_result

logger = logging.getLogger(__name__)


class Consumed(Protocol):
    """Counts what is taken."""

    def took(self, raw: RawRecords, rows: Sequence[int], count: int) -> None: ...


class DecodeErrors(Protocol):
    """Decides about records that cannot be read."""

    def undecodable(self, context: ErrorContext, record: SourceRecord, error: Exception) -> bool:
        """True to leave the record out, False to fail."""
        ...

    def dropped(self, count: int, why: str) -> None: ...


class DecodePace(Protocol):
    """Bounds how many records are deserialized at once, by the time that it takes."""

    @property
    def limit(self) -> int:
        """How many records the next chunk may have."""
        ...

    def watch(self, count: int) -> AbstractContextManager[None]:
        """Measure the deserialization of so many records."""
        ...

    def guarded(self, items: list[Any]) -> list[Any]:
        """A list to iterate over that ends early when the time is over."""
        ...

    def done(self, count: int, offset: int) -> None:
        """A chunk is deserialized.

        Args:
            count: how many records were deserialized.
            offset: of the first one.
        """
        ...


class Chunk:
    """Records of one poll, decoded: parallel lists, and how many are taken."""

    __slots__ = (
        "end_offset",
        "headers",
        "kept",
        "keys",
        "offsets",
        "raw",
        "taken",
        "timestamps",
        "values",
    )

    def __init__(self, raw: RawRecords) -> None:
        self.raw = raw
        #: For each record its index in `raw`.
        self.kept: Sequence[int] = range(len(raw.offsets))
        self.end_offset = raw.offsets[-1] + 1
        self.keys: list[Any] = raw.keys
        self.values: list[Any] = raw.values
        self.timestamps = raw.timestamps
        self.offsets = raw.offsets
        self.headers = raw.headers
        self.taken = 0

    def leave_out(self, indices: Sequence[int]) -> None:
        if not indices:
            return
        gone = set(indices)
        keep = [i for i in range(len(self.kept)) if i not in gone]
        self._keep(keep)

    def cut(self, size: int) -> None:
        self._keep(range(size))

    def end_before(self, index: int) -> None:
        """Let the chunk end before a record, which belongs to the next chunk then."""
        behind = self.kept[index]
        self.cut(index)
        self.raw = raw_part(self.raw, 0, behind)
        self.end_offset = self.raw.offsets[-1] + 1

    def _keep(self, indices: Sequence[int]) -> None:
        self.kept = [self.kept[i] for i in indices]
        self.keys = [self.keys[i] for i in indices]
        self.values = [self.values[i] for i in indices]
        self.timestamps = [self.timestamps[i] for i in indices]
        self.offsets = [self.offsets[i] for i in indices]
        if self.headers is not None:
            self.headers = [self.headers[i] for i in indices]


class Taken:
    """Records taken from one queue, as parallel lists."""

    __slots__ = ("headers", "keys", "offsets", "timestamps", "values")

    def __init__(
        self,
        keys: list[Any],
        values: list[Any],
        timestamps: list[int],
        offsets: Sequence[int],
        headers: Sequence[Headers] | None,
    ) -> None:
        self.keys = keys
        self.values = values
        self.timestamps = timestamps
        self.offsets = offsets
        self.headers = headers


class RecordQueue:
    """First in, first out, for one input partition of one task.

    A chunk of records is deserialized when its first record becomes the head, as late as Kafka
    Streams does it, but all at once. A record that cannot be read and must not be left out stops
    the queue there: the records before it are processed first, then its error is raised.

    Args:
        place: the topic partition.
        source: the name of the source node, for errors.
        task_id: the task, for errors.
        key_serde: reads keys.
        value_serde: reads values.
        extractor: gives records their time; None takes Kafka's timestamp, which must not be
            negative (FailOnInvalidTimestamp).
        errors: decides about records that cannot be read.

    Attributes:
        pending: what was taken and is not finished; whoever takes records says when they are.
    """

    def __init__(
        self,
        place: TopicPartition,
        source: str,
        task_id: TaskId,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        extractor: TimestampExtractor | None,
        errors: DecodeErrors,
    ) -> None:
        self.place = place
        self.source = source
        #: The highest time read from this partition; -1 before the first record.
        self.partition_time = -1
        #: The time of the next record, if there is one (`available`).
        self.head_time = -1
        #: How many records wait, those included that will turn out to be unreadable.
        self.size = 0
        #: Where the queue puts itself when it gets records after having none; None if nobody asks.
        self.line: list[RecordQueue] | None = None
        self.pending = PendingOffsets()
        #: Told of what is taken; None if nobody counts.
        self.meter: Consumed | None = None
        #: Bounds how much is deserialized at once; None deserializes whole polls.
        self.pace: DecodePace | None = None
        #: What was committed before this queue began; None if nothing was.
        self.committed_offset: int | None = None
        self._task_id = task_id
        self._key_serde = key_serde
        self._value_serde = value_serde
        is_default = extractor is None or type(extractor) is FailOnInvalidTimestamp
        self._extractor = None if is_default else extractor
        self._keeps_valid = is_default or isinstance(extractor, KeepValidTimestamp)
        self._errors = errors
        self._raw: deque[RawRecords] = deque()
        # How many records of the first of these were deserialized already.
        self._raw_start = 0
        self._head: Chunk | None = None
        self._poison: StreamsError | None = None
        self._poison_offset = -1
        # By offset, for records that are deserialized again: whether to leave them out.
        self._answers: dict[int, bool] = {}
        self._next_offset: int | None = None
        self._last_epoch: int | None = None
        self._passed = 0
        # What was decoded, until it is finished: for errors.
        self._in_flight: list[RawRecords] = []

    def raw_of(self, offset: int) -> RawPair | None:
        """Key and value of a record in flight as they were read; None if they are not at hand."""
        return raw_pair(self._in_flight, offset)

    @property
    def in_flight(self) -> tuple[RawRecords, ...]:
        """What was decoded and is not finished, for those who look later than that."""
        return tuple(self._in_flight)

    def finish_all(self) -> None:
        """Everything that the records taken so far have caused is done."""
        self.pending.finish_all()
        # The one at the head may have more to give.
        del self._in_flight[: -1 if self._head is not None else None]

    def finish(self, offset: int) -> None:
        """Everything that a record taken has caused is done; nothing if that is known."""
        self.pending.finish(offset)

    def forget_finished(self) -> None:
        """Keep no bytes of what is done, for nobody will ask."""
        first = self.pending.first
        if first is None:
            first = self._in_flight[-1].offsets[-1] + 1 if self._in_flight else 0
        kept = [raw for raw in self._in_flight if raw.offsets[-1] >= first]
        if self._head is not None and self._head.raw not in kept:
            kept.append(self._head.raw)
        self._in_flight = kept

    def add(self, raw: RawRecords) -> None:
        """Queue the records of a poll; there is at least one."""
        if not self.size and self.line is not None:
            self.line.append(self)
        self._raw.append(raw)
        self.size += len(raw.offsets)

    def available(self) -> int:
        """How many records can be taken at once without decoding more.

        Raises:
            SerializationError, StreamsError: the head cannot be read and must not be left out.
        """
        head = self._readable_head()
        return 0 if head is None else len(head.offsets) - head.taken

    def pass_before(self, time_ms: int, most: int) -> tuple[int, bool]:
        """Pass over the next record, and those behind it that come before `time_ms`, at most
        `most`; `take_passed` will give them. There must be one.

        Returns:
            How many were passed over, and whether another one is ready behind them; if not,
            `take_passed` before anything else.
        """
        head = self._head
        assert head is not None
        times, start = head.timestamps, head.taken + self._passed
        behind = min(len(times), start + most)
        index = start + 1
        while index < behind and times[index] < time_ms:
            index += 1
        self._passed += index - start
        if index == len(times):
            return index - start, False
        self.head_time = times[index]
        return index - start, True

    def count_until(self, until_ms: int, most: int) -> int:
        """How many of the next `most` records there are up to the first that is so late."""
        head = self._head
        assert head is not None
        times = islice(head.timestamps, head.taken, head.taken + most)
        return next((n for n, time in enumerate(times, 1) if time >= until_ms), most)

    def take_passed(self) -> Taken:
        """The records passed over since the last call; at least one."""
        count, self._passed = self._passed, 0
        return self.take(count)

    def take(self, count: int) -> Taken:
        """The next `count` records, at most `available()`."""
        head = self._head
        assert head is not None
        start, end = head.taken, head.taken + count
        self.size -= count
        head.taken = end
        if start == 0 and end == len(head.offsets):
            taken = Taken(head.keys, head.values, head.timestamps, head.offsets, head.headers)
        else:
            taken = Taken(
                head.keys[start:end],
                head.values[start:end],
                head.timestamps[start:end],
                head.offsets[start:end],
                None if head.headers is None else head.headers[start:end],
            )
        if self.meter is not None:
            self.meter.took(head.raw, head.kept[start:end], count)
        self.pending.take(taken.offsets, head.raw.leader_epoch, taken.timestamps)
        if end == len(head.offsets):
            self._finish(head)
        else:
            self.head_time = head.timestamps[end]
        self.partition_time = max(self.partition_time, self.pending.latest)
        return taken

    def next_offset(self) -> int | None:
        """The offset from which to go on after a restart; None if nothing was queued yet.

        That is the first one's that is in flight, or, with none in flight, the next record's that
        waits, or, with none waiting, one past the last.
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

    def pass_over(self, offset: int) -> bool:
        """Nothing readable is left before an offset: behind the last record there are markers of
        transactions, or gaps; whether that is news.

        Without it, a topic that is read to its end would seem to have a lag for ever.
        """
        known = self.committed_offset if self._next_offset is None else self._next_offset
        if self.size or self.pending.in_flight or known is None or offset <= known:
            return False
        self._next_offset = offset
        return True

    def leader_epoch(self) -> int | None:
        """The leader epoch to commit beside `next_offset`; None when unknown.

        That of the last record finished, or of one that was polled together with it: a later epoch
        only means that a truncation within the poll goes unseen, an earlier one would feign some.
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
        """Deserialize the records that come next, as many as may be deserialized at once."""
        raw, start, pace = self._raw[0], self._raw_start, self.pace
        size = len(raw.offsets) - start
        limit = size if pace is None else min(size, pace.limit)
        chunk = Chunk(raw_part(raw, start, start + limit))
        offset = chunk.offsets[0]
        with nullcontext() if pace is None else pace.watch(limit):
            self._decode(chunk)
            self._extract_timestamps(chunk)
        # Only now: an error that is no Exception, such as SystemExit, leaves the records here.
        taken = len(chunk.raw.offsets)
        if taken == size:
            self._raw.popleft()
            self._raw_start = 0
        else:
            self._raw_start = start + taken
        if self._answers:
            end = chunk.end_offset
            self._answers = {at: answer for at, answer in self._answers.items() if at >= end}
        if pace is not None:
            pace.done(taken, offset)
        return chunk

    def _guarded(self, items: list[Any]) -> list[Any]:
        """A list to iterate over that ends early if it takes too long, though not at once."""
        return items if self.pace is None or len(items) < 2 else self.pace.guarded(items)

    def _interrupt(self, chunk: Chunk, index: int) -> None:
        """Deserialization has taken too long: the records from `index` on have their turn later.

        A record among them that cannot be read is found again then; its answer is known.
        """
        chunk.end_before(index)
        self._poison = None

    def _decode(self, chunk: Chunk) -> None:
        serde = self._key_serde
        chunk.keys = self._decode_column(chunk, "key", serde, chunk.keys)
        chunk.values = self._decode_column(chunk, "value", self._value_serde, chunk.values)

    def _decode_column(
        self, chunk: Chunk, what: str, serde: Serde[Any], raw: list[bytes | None]
    ) -> list[Any]:
        """The decoded column; records that cannot be read are taken out of the chunk."""
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
            if not self._leave_out(chunk, index, what, failure):
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
        chunk.leave_out(bad)
        gone = set(bad)
        return [item for index, item in enumerate(decoded) if index not in gone]

    def _deserialized(self, serde: Serde[Any], raw: list[bytes | None]) -> list[Any]:
        """The decoded elements: of some only, but at least one, where it takes too long."""
        topic = self.place.topic
        if type(serde).deserialize_many is not Serde.deserialize_many:
            # One of Millstream's: these are fast, and some count the elements beforehand.
            return serde.deserialize_many(topic, raw)
        return serde.deserialize_many(topic, self._guarded(raw)) or serde.deserialize_many(
            topic, raw[:1]
        )

    def _leave_out(self, chunk: Chunk, index: int, what: str, error: SerializationError) -> bool:
        offset = chunk.offsets[index]
        headers = () if chunk.headers is None else chunk.headers[index]
        record = SourceRecord(
            self.place.topic,
            self.place.partition,
            offset,
            chunk.timestamps[index],
            headers,
            chunk.raw.keys[chunk.kept[index]],
            chunk.raw.values[chunk.kept[index]],
        )
        context = ErrorContext.of(record, self.source, self._task_id)
        answer = self._answers.get(offset)
        if answer is None:
            answer = self._answers[offset] = self._errors.undecodable(context, record, error)
        if answer:
            return True
        self._stop_at(
            offset,
            SerializationError(
                f"The {what} of a record could not be deserialized. {error.message} Name the serde "
                f"that fits the topic's bytes where it is read ({what}=...), or set "
                "deserialization_exception_handler=LogAndContinueExceptionHandler() to leave such "
                f"records out.{handlers_failure(error)}",
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
        keys = self._guarded(chunk.keys) or chunk.keys[:1]
        for index, key in enumerate(keys):
            headers = () if chunk.headers is None else chunk.headers[index]
            record = _extractable(key, chunk.values[index], chunk.timestamps[index], headers)
            try:
                timestamp = self._extractor(record, highest)
                if type(timestamp) is not int or timestamp > MAX_TIME_MS:
                    _refuse_time(timestamp)
                is_valid = timestamp >= 0
            except Exception as error:
                offset = chunk.offsets[index]
                failure = StreamsError(_told_by_extractor(error), **self._where(offset))
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
            self._errors.dropped(len(skipped), "their timestamp extractor gave a negative time")
            chunk.leave_out(skipped)

    def _stop_at_invalid_timestamp(self, chunk: Chunk) -> None:
        index = next(i for i, timestamp in enumerate(chunk.timestamps) if timestamp < 0)
        offset = chunk.offsets[index]
        self._stop_at(
            offset,
            StreamsError(
                f"A record has the timestamp {chunk.timestamps[index]}, which is not a time; its "
                "producer is probably older than Kafka 0.10. Give the source a timestamp_extractor "
                "that finds the time elsewhere, or returns a negative number to leave it out.",
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
            "topic": self.place.topic,
            "partition": self.place.partition,
            "offset": offset,
            "node": self.source,
        }


def _told_by_extractor(error: Exception) -> str:
    if type(error) is StreamsError:
        # A ready-made one, which says what to do.
        return error.message
    return (
        f"The timestamp extractor failed: {summary_of(error)}. Let it return a time in "
        "whole milliseconds since the epoch, or a negative number to leave the record out."
    )


def _refuse_time(timestamp: Any) -> None:
    checked_result(timestamp)
    if type(timestamp) is int:
        raise ValueError(f"it gave {timestamp}, which is later than 2^63 - 1")
    raise TypeError(
        f"it gave {repr_of(timestamp)}, which is of type {type(timestamp).__name__} and no int"
    )


def _extractable(key: Any, value: Any, timestamp: int, headers: Headers) -> Record[Any, Any]:
    record = Record(key, value, max(timestamp, 0), headers)
    if timestamp < 0:
        # The one place where a record may have no valid time: the extractor is to find one.
        object.__setattr__(record, "timestamp", timestamp)
    return record
