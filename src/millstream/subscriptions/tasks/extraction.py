"""Tasks taken out of consumed records, as many at a time as were fetched.

Follows Decaton's `DefaultTaskExtractor`, and the one that it puts around a user's for the retry
topic. A record that holds no task is told by itself; those around it are tasks all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from operator import is_
from typing import Any, Generic, NamedTuple, TypeVar

from millstream.errors import (
    BatchSerializationError,
    SerializationError,
    repr_of,
    summary_of,
)
from millstream.kafka.data.record_columns import RecordColumns
from millstream.record import Headers, TopicPartition
from millstream.serdes import BYTES, Serde
from millstream.subscriptions.tasks.metadata import DecatonMetadata, find_metadata, read_request
from millstream.unawaited import checked_result, name_of, refuse_deferred

T = TypeVar("T")


class ConsumedRecord(NamedTuple):
    """A record as it was consumed: what a task extractor of the user's is given.

    Args:
        topic: where it was read: the retry topic, if it was there.
        partition: of that topic.
        offset: in that partition.
        timestamp_ms: the record's own time, in milliseconds since the epoch; -1 if it has none.
        headers: pairs of a name and bytes, in order.
        key: its key in bytes, or None.
        value: its value in bytes, or None; of a retried task the bytes of the first try.

    Example:
        >>> ConsumedRecord("mails", 0, 7, 1_000, (), b"k", b"hello").value
        b'hello'
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    headers: Headers
    key: bytes | None
    value: bytes | None


class DecatonTask(NamedTuple, Generic[T]):
    """What is to be done about a record: Decaton's `DecatonTask`.

    Args:
        metadata: where it comes from, how often it was tried, when it is due.
        value: what is handed to the processor; not None.
        payload: the bytes of the record that a retry sends again; an extractor of the user's gives
            what it found as the record's value.

    Example:
        >>> def extract(record: ConsumedRecord) -> DecatonTask[str]:
        ...     metadata = DecatonMetadata(timestamp_ms=record.timestamp_ms)
        ...     return DecatonTask(metadata, record.value.decode(), record.value)
        >>> extract(ConsumedRecord("mails", 0, 7, 1_000, (), b"k", b"hello")).value
        'hello'
    """

    metadata: DecatonMetadata
    value: T
    payload: bytes


#: A function of the user's that makes a task of a record, or raises.
TaskExtractor = Callable[[ConsumedRecord], DecatonTask[Any]]

#: Tuples of a kind made in C: a fifth of what the constructors take.
_METADATA: partial[DecatonMetadata] = partial(tuple.__new__, DecatonMetadata)
_TASK: partial[DecatonTask[Any]] = partial(tuple.__new__, DecatonTask)


class ExtractedTasks(NamedTuple):
    """The tasks of consecutive records, and what is wrong with those that hold none.

    Args:
        tasks: for each record its task; None for one that failed.
        failures: by index the errors of those, which name topic, partition and offset.
    """

    tasks: list[DecatonTask[Any] | None]
    failures: dict[int, SerializationError]


@dataclass
class TaskReader:
    """Takes tasks out of records. Shipped by pickling, if its serde and function can be.

    Args:
        value: decodes what is handed to the processor; None for bytes.
        extractor: makes the tasks in its place; plain, not `async`. Called for each record of the
            origin topic with what was consumed, and for each of the retry topic with the bytes of
            the first try.
        legacy_parse_fallback: whether records without the header `dt_meta` are taken for those of
            clients before Decaton 9, which wrap tasks in a `DecatonTaskRequest`. May be changed at
            any time.

    Raises:
        TypeError: the extractor is asynchronous.
    """

    value: Serde[Any] | None = None
    extractor: TaskExtractor | None = None
    legacy_parse_fallback: bool = False

    def __post_init__(self) -> None:
        if self.extractor is not None:
            refuse_deferred("The subscription", "extractor", self.extractor)

    def read(
        self, place: TopicPartition, columns: RecordColumns, *, retried: bool = False
    ) -> ExtractedTasks:
        """The tasks of records of one partition.

        A record without headers takes 0.4 µs beside what the serde takes, one with `dt_meta` 2.

        Args:
            place: where they were read.
            columns: the records.
            retried: whether that is the retry topic. A task there is always one of Decaton's: what
                the extractor of the user's says of its metadata does not count.
        """
        batch = _Batch(place, columns)
        if self.extractor is None:
            metadata, payloads = self._unwrapped(batch)
            values = batch.decoded(self.value or BYTES, payloads)
            # As a list of what may be missing, which a list of tasks is none of to a type checker.
            tasks: list[Any] = list(map(_TASK, zip(metadata, values, payloads, strict=True)))
        elif retried:
            metadata, payloads = self._unwrapped(batch)
            tasks = batch.extracted(self.extractor, payloads, metadata)
        else:
            tasks = batch.extracted(self.extractor, columns.values, None)
        for index in batch.failures:
            tasks[index] = None
        return ExtractedTasks(tasks, batch.failures)

    def _unwrapped(self, batch: _Batch) -> tuple[Iterable[DecatonMetadata], Sequence[bytes | None]]:
        """For each record its metadata and the bytes of its task; None where that failed."""
        values, headers, times = (
            batch.columns.values,
            batch.columns.headers,
            batch.columns.timestamps,
        )
        nothing = repeat("")
        plain = map(_METADATA, zip(times, nothing, nothing, repeat(0), repeat(0), strict=False))
        if headers is None and not self.legacy_parse_fallback:
            return plain, values
        every: list[DecatonMetadata] = []
        payloads = list(values)
        for index, own in enumerate(plain):
            metadata = own
            try:
                found = find_metadata(headers[index]) if headers is not None else None
                if found is not None:
                    metadata = found
                elif self.legacy_parse_fallback and (value := values[index]) is not None:
                    metadata, payloads[index] = read_request(value)
            except SerializationError as error:
                batch.fail(index, error.message, error)
                payloads[index] = None
            every.append(metadata)
        return every, payloads


class _Batch:
    """Records of one partition, and which of them have failed."""

    def __init__(self, place: TopicPartition, columns: RecordColumns) -> None:
        self._place = place
        self.columns = columns
        self.failures: dict[int, SerializationError] = {}

    def fail(self, index: int, message: str, cause: BaseException | None) -> None:
        """Note the first thing that is wrong with a record."""
        error = SerializationError(
            message,
            topic=self._place.topic,
            partition=self._place.partition,
            offset=self.columns.offsets[index],
        )
        error.__cause__ = cause
        self.failures.setdefault(index, error)

    def decoded(self, serde: Serde[Any], payloads: Sequence[bytes | None]) -> list[Any]:
        """The value of each payload; None for those that failed."""
        values: list[Any] = []
        rest = payloads
        while True:
            try:
                values += serde.deserialize_many(self._place.topic, rest)
                break
            except BatchSerializationError as error:
                values += error.done
                self.fail(len(values), error.message, error.__cause__)
                values.append(None)
                rest = payloads[len(values) :]
        if any(map(is_, values, repeat(None))):
            for index, value in enumerate(values):
                if value is None:
                    self.fail(index, _no_task(serde, payloads[index]), None)
        return values

    def extracted(
        self,
        extractor: TaskExtractor,
        payloads: Sequence[bytes | None],
        metadata: Iterable[DecatonMetadata] | None,
    ) -> list[DecatonTask[Any] | None]:
        """What an extractor of the user's makes of each payload; None for those that failed.

        Args:
            extractor: the user's.
            payloads: what to give it as the records' values.
            metadata: what counts in place of what it says of each.
        """
        columns, (topic, partition) = self.columns, self._place
        known = repeat(None) if metadata is None else metadata
        headers: Iterable[Headers] = repeat(()) if columns.headers is None else columns.headers
        records = map(
            ConsumedRecord,
            repeat(topic),
            repeat(partition),
            columns.offsets,
            columns.timestamps,
            headers,
            columns.keys,
            payloads,
        )
        tasks: list[DecatonTask[Any] | None] = []
        for index, (record, told) in enumerate(zip(records, known, strict=False)):
            task = None
            # One that failed already has nothing to be given.
            if index not in self.failures:
                try:
                    task = _checked(extractor(record))
                    if told is not None:
                        task = task._replace(metadata=told)
                except SerializationError as error:
                    self.fail(index, error.message, error)
                except Exception as error:
                    told_by = f"{name_of(extractor)} cannot make a task of the record"
                    self.fail(index, f"{told_by}: {summary_of(error)}", error)
            tasks.append(task)
        return tasks


def _no_task(serde: Serde[Any], payload: bytes | None) -> str:
    """Follows Decaton, to which a record without a value is no task."""
    if payload is None:
        return "The record has no value, so there is no task in it."
    return f"{serde.name} makes None of the record's value, which is no task."


def _checked(made: Any) -> DecatonTask[Any]:
    task = checked_result(made)
    if not isinstance(task, DecatonTask):
        raise TypeError(f"it gave {repr_of(task)} in place of a DecatonTask")
    if any(part is None for part in task):
        raise ValueError(f"it gave {repr_of(task)}, of which no part may be None")
    return task
