"""Contexts: the interface between processors and their task."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar

from millstream.config.streams_config import StreamsConfig
from millstream.metrics.user import ContextMetrics
from millstream.processor.punctuation import Cancellable, PunctuationType, Punctuator
from millstream.record import FixedKeyRecord, Record, RecordMetadata, TaskId

KForward = TypeVar("KForward")
VForward = TypeVar("VForward")


class ProcessingContext(Protocol):
    """The context of all user code in a task (Kafka Streams' `ProcessingContext`).

    Example:
        >>> class Where(Processor[str, str, str, str]):
        ...     def process(self, record: Record[str, str]) -> None:
        ...         task, place = self.context.task_id, self.context.record_metadata()
        ...         self.context.forward(record.with_value(f"{task} reads {place.topic}"))
        >>> builder = StreamsBuilder()
        >>> places = builder.stream("in", key=STRING, value=STRING).process(Where)
        >>> places.to("out", key=STRING, value=STRING)
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("in", key=STRING, value=STRING).pipe_value("a")
        ...     driver.create_output_topic("out", key=STRING, value=STRING).read_value()
        '0_0 reads in'
    """

    @property
    def application_id(self) -> str:
        """The application id."""

    @property
    def task_id(self) -> TaskId:
        """The id of the task; `-1_-1` for the processor of a global store."""

    @property
    def state_dir(self) -> Path:
        """The state directory of the task on this machine. It may not exist."""

    @property
    def config(self) -> StreamsConfig:
        """The application's settings."""

    @property
    def metrics(self) -> ContextMetrics:
        """The metrics of this task, to which user code can add its own.

        See `ContextMetrics`.
        """

    def record_metadata(self) -> RecordMetadata | None:
        """Return the topic, partition and offset of the input record.

        During a cache flush, the values are those of the record that made the change. In a
        punctuator, the topic is None, and the partition and offset are -1.

        Returns:
            The metadata; None while no record is being processed, for example in `init`.

        Example:
            >>> class Number(Processor[str, str, str, int]):
            ...     def process(self, record: Record[str, str]) -> None:
            ...         place = self.context.record_metadata()
            ...         self.context.forward(record.with_value(place.offset if place else -1))
            >>> context.set_record_metadata("clicks", 0, 42)
            >>> number = Number()
            >>> number.init(context)
            >>> number.process(Record("ann", "/", 0))
            >>> context.forwarded()[0].record.value
            42
        """

    def current_stream_time_ms(self) -> int:
        """Return the highest timestamp of the task's input up to the current record.

        The result is -1 before the first record.

        Example:
            >>> class OnTime(Processor[str, str, str, str]):
            ...     def process(self, record: Record[str, str]) -> None:
            ...         if record.timestamp >= self.context.current_stream_time_ms() - 60_000:
            ...             self.context.forward(record)
            >>> context.set_current_stream_time_ms(100_000)
            >>> on_time = OnTime()
            >>> on_time.init(context)
            >>> on_time.process(Record("ann", "late", 10_000))
            >>> context.forwarded()
            []
        """

    def current_system_time_ms(self) -> int:
        """Return the wall-clock time in milliseconds since the epoch.

        The time does not change while a record is processed.

        Example:
            >>> class Stamp(Processor[str, str, str, str]):
            ...     def process(self, record: Record[str, str]) -> None:
            ...         now_ms = self.context.current_system_time_ms()
            ...         self.context.forward(record.with_timestamp(now_ms))
            >>> context.set_current_system_time_ms(5_000)
            >>> stamp = Stamp()
            >>> stamp.init(context)
            >>> stamp.process(Record("ann", "/", 0))
            >>> context.forwarded()[0].record.timestamp
            5000
        """

    def get_state_store(self, name: str) -> Any:
        """Return a store, which must only be used by this processor in this task.

        Global stores do not need to be connected, but are read-only.

        Args:
            name: the name of a store that is connected to the processor, or of a global store.

        Raises:
            StreamsError: the store does not exist or is not connected.

        Example:
            >>> class Count(Processor[str, str, str, int]):
            ...     def init(self, context: ProcessorContext[str, int]) -> None:
            ...         super().init(context)
            ...         self.counts: KeyValueStore[str, int] = context.get_state_store("counts")
            ...     def process(self, record: Record[str, str]) -> None:
            ...         self.counts.put(record.key, (self.counts.get(record.key) or 0) + 1)
            >>> in_memory = Stores.in_memory_key_value("counts")
            >>> counts = Stores.key_value_builder(in_memory, STRING, LONG)
            >>> builder = StreamsBuilder().add_state_store(counts)
            >>> clicks = builder.stream("clicks", key=STRING, value=STRING)
            >>> counted = clicks.process(Count, stores=["counts"])
        """

    def schedule(
        self,
        interval: timedelta,
        kind: PunctuationType,
        callback: Punctuator,
        *,
        start_ms: int | None = None,
    ) -> Cancellable:
        """Schedule periodic calls of a punctuator.

        With stream time, the first call is made at the first record, and later calls are made when
        stream time reaches a multiple of the interval. With wall-clock time, the first call is made
        one interval from now. If several intervals have passed, only one call is made: missed calls
        are skipped. Schedules end with the task, so create them in `init`.

        Args:
            interval: the time between two calls, at least a millisecond.
            kind: the clock to follow.
            callback: `callback(time_ms)`, called with the current stream time or wall-clock time.
                Records that it forwards need their own timestamps.
            start_ms: the time of the first call in milliseconds since the epoch, to which later
                calls are aligned (KIP-1146).

        Raises:
            ValueError: the interval is too short, or the start is negative.

        Example:
            >>> class Remind(Processor[str, str, str, str]):
            ...     def init(self, context: ProcessorContext[str, str]) -> None:
            ...         super().init(context)
            ...         hour = timedelta(hours=1)
            ...         context.schedule(hour, PunctuationType.WALL_CLOCK_TIME, self.remind)
            ...     def remind(self, time_ms: int) -> None:
            ...         self.context.forward(Record("reminder", "an hour has passed", time_ms))
            >>> Remind().init(context)
            >>> context.scheduled_punctuators()[0].punctuator(3_600_000)
            >>> context.forwarded()[0].record.value
            'an hour has passed'
        """

    def commit(self) -> None:
        """Request a commit after the current batch.

        Example:
            >>> class CommitAtTheEndOfADay(Processor[str, str, str, str]):
            ...     def process(self, record: Record[str, str]) -> None:
            ...         if record.value == "end of day":
            ...             self.context.commit()
            >>> processor = CommitAtTheEndOfADay()
            >>> processor.init(context)
            >>> processor.process(Record("shop", "end of day", 0))
            >>> context.committed
            True
        """


class ProcessorContext(ProcessingContext, Protocol[KForward, VForward]):
    """The context of a `Processor` (Kafka Streams' `ProcessorContext`).

    Example:
        >>> class Shout(Processor[str, str, str, str]):
        ...     def process(self, record: Record[str, str]) -> None:
        ...         self.context.forward(record.with_value(record.value.upper()))
        >>> words = StreamsBuilder().stream("words", key=STRING, value=STRING)
        >>> shouted = words.process(Shout)
    """

    def forward(self, record: Record[KForward, VForward], child: str | None = None) -> None:
        """Forward a record, from `process` or a punctuator.

        Args:
            record: the record, with its own timestamp.
            child: the name of the only child to receive the record; by default, all children
                receive the record, in the order in which they were added.

        Raises:
            StreamsError: there is no child with this name, or no record is being processed.

        Example:
            >>> class Sort(Processor[str, int, str, int]):
            ...     def process(self, record: Record[str, int]) -> None:
            ...         size = "large" if record.value > 99 else "small"
            ...         self.context.forward(record, child=size)
            >>> topology = Topology().add_source("read", "in", key=STRING, value=LONG)
            >>> _ = topology.add_processor("sort", Sort, "read")
            >>> _ = topology.add_sink("large", "large-orders", "sort", key=STRING, value=LONG)
            >>> _ = topology.add_sink("small", "small-orders", "sort", key=STRING, value=LONG)
            >>> with TopologyTestDriver(topology) as driver:
            ...     orders = driver.create_input_topic("in", key=STRING, value=LONG)
            ...     orders.pipe_key_values([("ann", 7), ("bob", 700)])
            ...     large = driver.create_output_topic("large-orders", key=STRING, value=LONG)
            ...     large.read_key_values()
            [('bob', 700)]
        """


class FixedKeyProcessorContext(ProcessingContext, Protocol[KForward, VForward]):
    """The context of a `FixedKeyProcessor`.

    Kafka Streams' `FixedKeyProcessorContext`.

    Example:
        >>> class Shout(FixedKeyProcessor[str, str, str]):
        ...     def process(self, record: FixedKeyRecord[str, str]) -> None:
        ...         self.context.forward(record.with_value(record.value.upper()))
        >>> words = StreamsBuilder().stream("words", key=STRING, value=STRING)
        >>> shouted = words.process_values(Shout)
    """

    def forward(self, record: FixedKeyRecord[KForward, VForward], child: str | None = None) -> None:
        """Forward a record with its original key.

        Args:
            record: the record, created from the current record with its `with_` methods.
            child: the name of the only child to receive the record; by default, all children
                receive the record, in the order in which they were added.

        Raises:
            TypeError: the record is not a `FixedKeyRecord`.
            StreamsError: there is no child with this name, or no record is being processed.

        Example:
            >>> class Twice(FixedKeyProcessor[str, int, int]):
            ...     def process(self, record: FixedKeyRecord[str, int]) -> None:
            ...         self.context.forward(record)
            ...         self.context.forward(record.with_value(-record.value))
            >>> builder = StreamsBuilder()
            >>> numbers = builder.stream("in", key=STRING, value=LONG).process_values(Twice)
            >>> numbers.to("out", value=LONG)
            >>> with TopologyTestDriver(builder.build()) as driver:
            ...     driver.create_input_topic("in", key=STRING, value=LONG).pipe_input("a", 7)
            ...     driver.create_output_topic("out", key=STRING, value=LONG).read_key_values()
            [('a', 7), ('a', -7)]
        """
