"""Input and output topics of a test driver."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Generic, NamedTuple, TypeVar

from millstream.errors import IllegalStateError, repr_of
from millstream.html_tables import html_table, mime_bundle
from millstream.kafka.clients.delivery import RejectionHandler
from millstream.record import Headers, Record, TaskId, TopicPartition
from millstream.serdes import Serde
from millstream.state.changelogs.store_changelog import ChangelogWriter

K = TypeVar("K")
V = TypeVar("V")

_Pipe = Callable[[str, bytes | None, bytes | None, int, Headers], None]


class CapturedRecord(NamedTuple):
    """A record as it was written to a topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int | None
    headers: Headers


class RawColumns(NamedTuple):
    """One record as parallel lists, the form in which tasks accept records."""

    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    offsets: list[int]
    headers: list[Headers] | None
    leader_epoch: int | None = None

    @classmethod
    def of(cls, record: CapturedRecord, offset: int) -> RawColumns:
        headers = [record.headers] if record.headers else None
        assert record.timestamp is not None, "only changelogs have records without a timestamp"
        return cls([record.key], [record.value], [record.timestamp], [offset], headers)


class CapturingCollector:
    """Collects the records that a task writes, in order.

    Args:
        partition_counts: the repartition topics with a fixed number of partitions. Other topics
            accept any partition, as in Kafka Streams' test driver.
    """

    def __init__(self, partition_counts: Mapping[str, int] | None = None) -> None:
        self._partition_counts = partition_counts or {}
        self._records: list[CapturedRecord] = []
        self._written: dict[TopicPartition, int] = {}

    def partition_count(self, topic: str) -> int | None:
        return self._partition_counts.get(topic)

    def send_many(
        self,
        topic: str,
        partitions: int | Sequence[int | None] | None,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int] | None,
        headers: Sequence[Headers] | None,
    ) -> None:
        place = TopicPartition(topic, 0)
        self._written[place] = self._written.get(place, -1) + len(keys)
        for index, key in enumerate(keys):
            of_record = () if headers is None else headers[index]
            timestamp = None if timestamps is None else timestamps[index]
            self._records.append(
                CapturedRecord(topic, key, values[index], timestamp, tuple(of_record))
            )

    def send_with_handler(
        self,
        topic: str,
        partitions: Sequence[int | None] | None,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None,
        handler: RejectionHandler,
    ) -> None:
        """Write records. Writes never fail, so the handler is not called."""
        self.send_many(topic, partitions, keys, values, timestamps, headers)

    def changelog_writer(self, task_id: TaskId, topics: Mapping[str, str]) -> ChangelogWriter:
        """Return the changelog writer of a task's stores."""
        return _CapturedChangelogs(self, topics)

    def acked_offsets(self) -> dict[TopicPartition, int]:
        """Return the last offset of each written topic."""
        return self._written

    def take(self) -> list[CapturedRecord]:
        """Remove and return the records that were written since the last call."""
        records, self._records = self._records, []
        return records


class _CapturedChangelogs:
    def __init__(self, collector: CapturingCollector, topics: Mapping[str, str]) -> None:
        self._collector = collector
        self._topics = topics

    def log_many(
        self,
        store_name: str,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int] | None,
        headers: Sequence[Headers] | None = None,
    ) -> None:
        topic = self._topics.get(store_name)
        if topic is not None:
            self._collector.send_many(topic, 0, keys, values, timestamps, headers)


class TestInputTopic(Generic[K, V]):
    """Writes to one topic of a test driver.

    Created by `TopologyTestDriver.create_input_topic`. Each input topic has its own clock for
    records without a timestamp. A call returns when all records have been processed. It raises the
    error if the topology fails, and ValueError if the topology does not read the topic or a
    timestamp is negative.

    The examples of the methods use `numbers` and `out` of this example, at a wall-clock time of 0.

    Example:
        >>> builder = StreamsBuilder()
        >>> builder.stream("in", key=STRING, value=LONG).to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     numbers = driver.create_input_topic("in", key=STRING, value=LONG)
        ...     out = driver.create_output_topic("out", key=STRING, value=LONG)
        ...     numbers.pipe_input("a", 1, timestamp=1_000)
        ...     numbers.pipe_key_values([("b", 2), ("c", 3)])
        ...     out.read_key_values()
        [('a', 1), ('b', 2), ('c', 3)]
    """

    __test__ = False

    def __init__(
        self,
        pipe: _Pipe,
        topic: str,
        key: Serde[K],
        value: Serde[V],
        start_ms: int,
        auto_advance: timedelta,
    ) -> None:
        self._pipe = pipe
        self._topic = topic
        self._key_serde = key
        self._value_serde = value
        self._next_ms = start_ms
        self._advance_ms = _milliseconds(auto_advance)

    def advance_time(self, step: timedelta) -> None:
        """Advance the clock of this input topic.

        Raises:
            ValueError: `step` is negative.

        Example:
            >>> numbers.advance_time(timedelta(seconds=5))
            >>> numbers.pipe_input("a", 1)
            >>> out.read_record().timestamp
            5000
        """
        self._next_ms += _milliseconds(step)

    def pipe_input(
        self, key: K | None, value: V | None, timestamp: int | None = None, headers: Headers = ()
    ) -> None:
        """Pipe one record.

        Args:
            timestamp: milliseconds since the epoch; by default the topic's clock, which then
                advances.
            headers: pairs of a name and bytes.

        Raises:
            StreamsError: the topology failed on the record.
            ValueError: the topology does not read the topic, or the timestamp is negative.

        Example:
            >>> numbers.pipe_input("a", 1, timestamp=1_000, headers=[("trace", b"7f")])
            >>> out.read_record()
            Record(key='a', value=1, timestamp=1000, headers=(('trace', b'7f'),))
        """
        if timestamp is None:
            timestamp = self._next_ms
            self._next_ms += self._advance_ms
        elif not isinstance(timestamp, int):
            raise TypeError(
                "pipe_input() takes a timestamp in whole milliseconds since the epoch, but got "
                f"{timestamp!r}."
            )
        # Record validates and copies its arguments.
        record = Record(key, value, timestamp, headers)
        self._pipe(
            self._topic,
            self._key_serde.serialize(self._topic, key),
            self._value_serde.serialize(self._topic, value),
            timestamp,
            record.headers,
        )

    def pipe_value(self, value: V | None, timestamp: int | None = None) -> None:
        """Pipe a record without a key.

        Example:
            >>> numbers.pipe_value(7)
            >>> out.read_key_value()
            (None, 7)
        """
        self.pipe_input(None, value, timestamp)

    def pipe_values(
        self,
        values: Iterable[V | None],
        start_ms: int | None = None,
        advance: timedelta | None = None,
    ) -> None:
        """Pipe records without keys. For timestamps, see `pipe_key_values`.

        Example:
            >>> numbers.pipe_values([7, 8], start_ms=0, advance=timedelta(seconds=1))
            >>> [(record.value, record.timestamp) for record in out.read_records()]
            [(7, 0), (8, 1000)]
        """
        self.pipe_key_values(((None, value) for value in values), start_ms, advance)

    def pipe_key_values(
        self,
        pairs: Iterable[tuple[K | None, V | None]],
        start_ms: int | None = None,
        advance: timedelta | None = None,
    ) -> None:
        """Pipe records in order.

        Args:
            start_ms: the timestamp of the first record; by default timestamps come from the topic's
                clock, which advances.
            advance: the time between two records, if `start_ms` is set; by default 0.

        Example:
            >>> numbers.pipe_key_values([("a", 1), ("b", 2)], start_ms=0)
            >>> out.read_key_values()
            [('a', 1), ('b', 2)]
        """
        step_ms = _milliseconds(advance or timedelta(0))
        for index, (key, value) in enumerate(pairs):
            self.pipe_input(key, value, None if start_ms is None else start_ms + index * step_ms)

    def pipe_records(self, records: Iterable[Record[Any, Any]]) -> None:
        """Pipe records with their own timestamps and headers, in order.

        Example:
            >>> numbers.pipe_records([Record("a", 1, 1_000), Record("b", 2, 2_000)])
            >>> out.read_record()
            Record(key='a', value=1, timestamp=1000, headers=())
        """
        for record in records:
            self.pipe_input(record.key, record.value, record.timestamp, record.headers)


class _RecordList(list[Record[K, V]]):
    """A list that notebooks show as a table."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        rows = (
            tuple(map(repr_of, (each.key, each.value, each.timestamp, each.headers)))
            for each in self
        )
        title = f"{len(self)} record{'' if len(self) == 1 else 's'}"
        heads = ["Key", "Value", "Timestamp", "Headers"]
        return mime_bundle(repr(self), html_table(title, heads, rows))


class TestOutputTopic(Generic[K, V]):
    """Reads one topic of a test driver.

    Created by `TopologyTestDriver.create_output_topic`. Each record is read once, in the order of
    writing. The examples of the methods use `numbers` and `out` of this example.

    Example:
        >>> builder = StreamsBuilder()
        >>> builder.stream("in", key=STRING, value=LONG).to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     numbers = driver.create_input_topic("in", key=STRING, value=LONG)
        ...     numbers.pipe_key_values([("a", 1), ("b", 2)])
        ...     out = driver.create_output_topic("out", key=STRING, value=LONG)
        ...     out.read_key_value(), out.size, out.read_value(), out.is_empty
        (('a', 1), 1, 2, True)
    """

    __test__ = False

    def __init__(
        self,
        topic: str,
        key: Serde[K],
        value: Serde[V],
        outputs: Mapping[str, deque[CapturedRecord]],
    ) -> None:
        self._topic = topic
        self._key_serde = key
        self._value_serde = value
        self._outputs = outputs

    def __repr__(self) -> str:
        return f"TestOutputTopic({self._topic!r}, {self.size} to read)"

    @property
    def size(self) -> int:
        """The number of records that have not been read yet."""
        return len(self._outputs.get(self._topic, ()))

    @property
    def is_empty(self) -> bool:
        """Whether every record has been read."""
        return not self.size

    def read_record(self) -> Record[K, V]:
        """Read the next record.

        Raises:
            LookupError: there is no record.
            SerializationError: the record cannot be deserialized.

        Example:
            >>> numbers.pipe_input("a", 1, timestamp=1_000)
            >>> out.read_record()
            Record(key='a', value=1, timestamp=1000, headers=())
        """
        waiting = self._outputs.get(self._topic)
        if not waiting:
            raise LookupError(self._why_empty())
        record = waiting.popleft()
        key: Any = self._key_serde.deserialize(self._topic, record.key)
        value: Any = self._value_serde.deserialize(self._topic, record.value)
        result = Record(key, value, record.timestamp or 0, record.headers)
        if record.timestamp is None:
            # As in Kafka Streams, the timestamp is None: a producer sets it when it sends a record.
            object.__setattr__(result, "timestamp", None)
        return result

    def read_value(self) -> V:
        """Read the next record's value.

        Raises:
            LookupError: there is no record.

        Example:
            >>> numbers.pipe_input("a", 1)
            >>> out.read_value()
            1
        """
        return self.read_record().value

    def read_key_value(self) -> tuple[K, V]:
        """Read the next record's key and value.

        Raises:
            LookupError: there is no record.

        Example:
            >>> numbers.pipe_input("a", 1)
            >>> out.read_key_value()
            ('a', 1)
        """
        record = self.read_record()
        return record.key, record.value

    def read_records(self) -> list[Record[K, V]]:
        """Read all remaining records. Notebooks show the list as a table.

        Example:
            >>> numbers.pipe_key_values([("a", 1), ("b", 2)], start_ms=0)
            >>> [record.key for record in out.read_records()]
            ['a', 'b']
        """
        return _RecordList([self.read_record() for _ in range(self.size)])

    def read_values(self) -> list[V]:
        """Read the values of all remaining records.

        Example:
            >>> numbers.pipe_values([7, 8])
            >>> out.read_values()
            [7, 8]
        """
        return [record.value for record in self.read_records()]

    def read_key_values(self) -> list[tuple[K, V]]:
        """Read the keys and values of all remaining records.

        Example:
            >>> numbers.pipe_key_values([("a", 1), ("b", 2)])
            >>> out.read_key_values()
            [('a', 1), ('b', 2)]
        """
        return [(record.key, record.value) for record in self.read_records()]

    def read_key_values_to_map(self) -> dict[K, V]:
        """Read all remaining records; return the last value of each key.

        Raises:
            IllegalStateError: a record has no key.

        Example:
            >>> numbers.pipe_key_values([("a", 1), ("b", 2), ("a", 3)])
            >>> out.read_key_values_to_map()
            {'a': 3, 'b': 2}
        """
        pairs = self.read_key_values()
        if any(key is None for key, _ in pairs):
            raise IllegalStateError(
                f"A record of topic '{self._topic}' has no key, so it cannot be added to a map. "
                "Read the topic with read_key_values() instead.",
                topic=self._topic,
            )
        return dict(pairs)

    def _why_empty(self) -> str:
        if self._topic in self._outputs:
            return f"Every record of topic '{self._topic}' has been read."
        written = ", ".join(sorted(self._outputs)) or "none"
        return f"No records have been written to topic '{self._topic}'. Written topics: {written}."


def _milliseconds(step: timedelta) -> int:
    milliseconds = step // timedelta(milliseconds=1)
    if milliseconds < 0:
        raise ValueError(f"Time can only move forward, but the step is {milliseconds} ms.")
    return milliseconds
