"""The basic types of Kafka and Kafka Streams: partitions, tasks and records."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, index
from typing import Any, Final, Generic, NamedTuple, TypeVar

K = TypeVar("K")
V = TypeVar("V")

Header = tuple[str, bytes | None]
Headers = Sequence[Header]

#: Kafka's value for an unknown offset, partition or timestamp.
UNKNOWN = -1
#: The latest timestamp, Java's largest `long`. Also the end of unlimited windows.
MAX_TIME_MS: Final = (1 << 63) - 1


class TopicPartition(NamedTuple):
    """One partition of a topic. Sorts by topic name, then by partition number.

    Example:
        >>> str(TopicPartition("clicks", 3))
        'clicks-3'
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TaskId(NamedTuple):
    """The id of a task: a sub-topology and the partition that the task reads.

    Sorts by sub-topology, then by partition, as Kafka Streams' `TaskId` does.

    Example:
        >>> str(TaskId(subtopology=0, partition=3))
        '0_3'
    """

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"

    @classmethod
    def parse(cls, text: str) -> TaskId:
        """Parse a printed task id such as `0_3`.

        Raises:
            ValueError: `text` is not two numbers joined by an underscore.

        Example:
            >>> TaskId.parse("0_3")
            TaskId(subtopology=0, partition=3)
        """
        subtopology, _, partition = text.partition("_")
        return cls(int(subtopology), int(partition))


_fields = attrgetter("key", "value", "timestamp", "headers")


class Record(Generic[K, V]):
    """A key, a value, a timestamp and headers. Immutable.

    Args:
        value: None deletes the key from a table.
        timestamp: milliseconds since the epoch, not negative.
        headers: pairs of a name and bytes (or None), in order.

    Raises:
        ValueError: the timestamp is negative (a "malformed record" in Kafka Streams) or above
            2^63 - 1.
        TypeError: the timestamp is not an int, or the headers are not pairs of a name and bytes (or
            None).

    Example:
        >>> Record("alice", 1, 1_000).with_value(2)
        Record(key='alice', value=2, timestamp=1000, headers=())
    """

    __slots__ = ("headers", "key", "timestamp", "value")

    key: K
    value: V
    timestamp: int
    headers: Headers

    def __init__(self, key: K, value: V, timestamp: int, headers: Headers = ()) -> None:
        if type(timestamp) is not int or not 0 <= timestamp <= MAX_TIME_MS:
            timestamp = _checked_time(timestamp, key)
        if type(headers) is not tuple:
            headers = _checked_headers(headers)
        _set_key(self, key)
        _set_value(self, value)
        _set_timestamp(self, timestamp)
        _set_headers(self, headers)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"A Record cannot be changed; use record.with_{name}(...) to get a changed copy."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (Record, _fields(self))

    def __eq__(self, other: object) -> bool:
        return _fields(self) == _fields(other) if isinstance(other, Record) else NotImplemented

    def __hash__(self) -> int:
        return hash(_fields(self))

    def __repr__(self) -> str:
        return (
            f"Record(key={self.key!r}, value={self.value!r}, "
            f"timestamp={self.timestamp!r}, headers={self.headers!r})"
        )

    def with_key(self, key: Any) -> Record[Any, V]:
        """Return a copy with another key.

        Example:
            >>> Record("alice", 1, 1_000).with_key("bob").key
            'bob'
        """
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: Any) -> Record[K, Any]:
        """Return a copy with another value.

        Example:
            >>> Record("alice", 1, 1_000).with_value(2).value
            2
        """
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record[K, V]:
        """Return a copy with another timestamp, in milliseconds since the epoch.

        Example:
            >>> Record("alice", 1, 1_000).with_timestamp(2_000).timestamp
            2000
        """
        return Record(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers) -> Record[K, V]:
        """Return a copy with other headers.

        Example:
            >>> Record("alice", 1, 1_000).with_headers([("trace", b"7f")]).headers
            (('trace', b'7f'),)
        """
        return Record(self.key, self.value, self.timestamp, _checked_headers(headers))


def _checked_time(timestamp: Any, key: Any) -> int:
    advice = "Give the record a timestamp in whole milliseconds since the epoch."
    try:
        time = index(timestamp)
    except TypeError:
        raise TypeError(
            f"A record's timestamp must be an int, but is {timestamp!r} (key {key!r}). {advice}"
        ) from None
    if time < 0:
        raise ValueError(
            f"A record's timestamp must not be negative, but is {time} (key {key!r}). {advice}"
        )
    if time > MAX_TIME_MS:
        raise ValueError(
            f"A record's timestamp must be at most 2^63 - 1, but is {time} (key {key!r}). {advice}"
        )
    return time


def _checked_headers(headers: Any) -> tuple[Header, ...]:
    wrong: Any = headers
    try:
        given = tuple(headers)
        if isinstance(headers, dict | str | bytes):
            raise TypeError
        for header in given:
            wrong = header
            name, value = header
            if type(name) is not str or not (value is None or type(value) is bytes):
                raise TypeError
    except (TypeError, ValueError):
        raise TypeError(
            "A record's headers must be pairs of a str and bytes (or None), but got "
            f"{wrong!r}. Write, for example, [('trace', b'7f')]."
        ) from None
    return given


# Records are created in hot loops: the slots' setters save 0.2 us per call of object.__setattr__.
_set_key = vars(Record)["key"].__set__
_set_value = vars(Record)["value"].__set__
_set_timestamp = vars(Record)["timestamp"].__set__
_set_headers = vars(Record)["headers"].__set__


class FixedKeyRecord(Generic[K, V]):
    """A record with an immutable key, for `process_values`. Immutable.

    Args:
        timestamp: milliseconds since the epoch, not negative.
        headers: pairs of a name and bytes (or None), in order.

    Raises:
        ValueError: the timestamp is negative or above 2^63 - 1.
        TypeError: the timestamp is not an int, or the headers are not pairs of a name and bytes (or
            None).

    Example:
        >>> FixedKeyRecord("alice", 1, 1_000).with_timestamp(2_000)
        FixedKeyRecord(key='alice', value=1, timestamp=2000, headers=())
    """

    __slots__ = ("_record",)

    def __init__(self, key: K, value: V, timestamp: int, headers: Headers = ()) -> None:
        object.__setattr__(self, "_record", Record(key, value, timestamp, headers))

    _record: Record[K, V]

    @property
    def key(self) -> K:
        """The key."""
        return self._record.key

    @property
    def value(self) -> V:
        """The value."""
        return self._record.value

    @property
    def timestamp(self) -> int:
        """Milliseconds since the epoch."""
        return self._record.timestamp

    @property
    def headers(self) -> Headers:
        """Pairs of a name and bytes (or None), in order."""
        return self._record.headers

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "key":
            raise AttributeError(
                "The key of a FixedKeyRecord is fixed; use process() to change keys."
            )
        raise AttributeError(
            f"A FixedKeyRecord cannot be changed; use record.with_{name}(...) to get a changed "
            "copy."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (FixedKeyRecord, _fields(self))

    def __eq__(self, other: object) -> bool:
        return (
            self._record == other._record if isinstance(other, FixedKeyRecord) else NotImplemented
        )

    def __hash__(self) -> int:
        return hash(self._record)

    def __repr__(self) -> str:
        return f"FixedKey{self._record!r}"

    def with_value(self, value: Any) -> FixedKeyRecord[K, Any]:
        """Return a copy with another value.

        Example:
            >>> FixedKeyRecord("alice", 1, 1_000).with_value(2).value
            2
        """
        return FixedKeyRecord(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> FixedKeyRecord[K, V]:
        """Return a copy with another timestamp, in milliseconds since the epoch.

        Example:
            >>> FixedKeyRecord("alice", 1, 1_000).with_timestamp(2_000).timestamp
            2000
        """
        return FixedKeyRecord(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers) -> FixedKeyRecord[K, V]:
        """Return a copy with other headers.

        Example:
            >>> FixedKeyRecord("alice", 1, 1_000).with_headers([("trace", b"7f")]).headers
            (('trace', b'7f'),)
        """
        return FixedKeyRecord(self.key, self.value, self.timestamp, headers)


class RecordMetadata(NamedTuple):
    """The source of the record being processed.

    In a punctuator, `topic` is None and the numbers are -1.

    Example:
        >>> context = MockProcessorContext()
        >>> context.set_record_metadata("clicks", 3, 42)
        >>> context.record_metadata()
        RecordMetadata(topic='clicks', partition=3, offset=42)
    """

    topic: str | None
    partition: int
    offset: int


class VersionedRecord(NamedTuple):
    """A value of a versioned store, with its validity interval.

    Args:
        timestamp: the start of the validity interval, in milliseconds since the epoch.
        valid_to: the exclusive end of the validity interval; None if the value is still valid, and
            in results of `get` and `delete`, which do not provide the end.

    Example:
        >>> history = timedelta(hours=1)
        >>> prices = Stores.versioned_builder(
        ...     Stores.persistent_versioned("prices", history), STRING, LONG
        ... )
        >>> with MockProcessorContext() as context:
        ...     store = context.add_state_store(prices)
        ...     until = store.put("tea", 3, 1_000), store.put("tea", 4, 9_000)
        ...     store.get("tea", as_of=5_000)
        VersionedRecord(value=3, timestamp=1000, valid_to=None)
    """

    value: Any
    timestamp: int
    valid_to: int | None = None


class ValueAndTimestamp(NamedTuple):
    """A value and its timestamp, in milliseconds since the epoch.

    Example:
        >>> in_memory = Stores.in_memory_key_value("counts")
        >>> counts = Stores.timestamped_key_value_builder(in_memory, STRING, LONG)
        >>> store = MockProcessorContext().add_state_store(counts)
        >>> store.put("alice", ValueAndTimestamp(7, 1_000))
        >>> store.get("alice").value
        7
    """

    value: Any
    timestamp: int
