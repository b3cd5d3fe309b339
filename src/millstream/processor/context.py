"""What a processor may ask of the task it works in."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar

from millstream.config import StreamsConfig
from millstream.metrics.user import ContextMetrics
from millstream.processor.punctuation import Cancellable, PunctuationType, Punctuator
from millstream.record import FixedKeyRecord, Record, RecordMetadata, TaskId

KForward = TypeVar("KForward")
VForward = TypeVar("VForward")


class ProcessingContext(Protocol):
    """What every kind of user code in a task may ask (Kafka Streams' `ProcessingContext`).

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
        """The application's id."""
        ...

    @property
    def task_id(self) -> TaskId:
        """The task; `-1_-1` for the processor of a global store."""
        ...

    @property
    def state_dir(self) -> Path:
        """The directory of the task on this machine. It may not exist."""
        ...

    @property
    def config(self) -> StreamsConfig:
        """The application's settings."""
        ...

    @property
    def metrics(self) -> ContextMetrics:
        """What is counted for this task, and a way to count more; see `ContextMetrics`."""
        ...

    def record_metadata(self) -> RecordMetadata | None:
        """Where the record being processed was read: that of the source, all the way down.

        Where a cache is flushed it is the place of the record that made the change. In a punctuator
        the topic is None and partition and offset are -1.

        Returns:
            None while nothing is processed, as in `init`.

        Example:
            >>> class Number(Processor[str, str, str, int]):
            ...     def process(self, record: Record[str, str]) -> None:
            ...         place = self.context.record_metadata()
            ...         self.context.forward(record.with_value(place.offset if place else -1))
            >>> context = MockProcessorContext()
            >>> context.set_record_metadata("clicks", 0, 42)
            >>> number = Number()
            >>> number.init(context)
            >>> number.process(Record("ann", "/", 0))
            >>> context.forwarded()[0].record.value
            42
        """
        ...

    def current_stream_time_ms(self) -> int:
        """The highest timestamp of the task's input up to this record; -1 before the first.

        Example:
            >>> class OnTime(Processor[str, str, str, str]):
            ...     def process(self, record: Record[str, str]) -> None:
            ...         if record.timestamp >= self.context.current_stream_time_ms() - 60_000:
            ...             self.context.forward(record)
            >>> context = MockProcessorContext()
            >>> context.set_current_stream_time_ms(100_000)
            >>> on_time = OnTime()
            >>> on_time.init(context)
            >>> on_time.process(Record("ann", "late", 10_000))
            >>> context.forwarded()
            []
        """
        ...

    def current_system_time_ms(self) -> int:
        """Wall-clock time, in milliseconds since the epoch: the same during one record.

        Example:
            >>> class Stamp(Processor[str, str, str, str]):
            ...     def process(self, record: Record[str, str]) -> None:
            ...         now_ms = self.context.current_system_time_ms()
            ...         self.context.forward(record.with_timestamp(now_ms))
            >>> context = MockProcessorContext()
            >>> context.set_current_system_time_ms(5_000)
            >>> stamp = Stamp()
            >>> stamp.init(context)
            >>> stamp.process(Record("ann", "/", 0))
            >>> context.forwarded()[0].record.timestamp
            5000
        """
        ...

    def get_state_store(self, name: str) -> Any:
        """A store by its name, to be used by this processor alone, and in this task only.

        A global store need not be connected, but can be read only.

        Args:
            name: of a store that is connected to the processor, or of a global one.

        Raises:
            StreamsError: the store is not connected, or there is none of that name.

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
        ...

    def schedule(
        self,
        interval: timedelta,
        kind: PunctuationType,
        callback: Punctuator,
        *,
        start_ms: int | None = None,
    ) -> Cancellable:
        """Ask to be called again and again.

        By stream time the first call comes with the first record and then whenever stream time has
        reached a multiple of the interval; by wall clock, one interval from now. However much time
        has passed, a schedule is called once at a time; what was missed is not made up for.
        Schedules end with the task: make them in `init`.

        Args:
            interval: the time between two calls, at least a millisecond.
            kind: which clock to follow.
            callback: `callback(time_ms)`, called with the stream time or wall-clock time of that
                moment. Records it forwards need a timestamp of their own.
            start_ms: the time of the first call, from which the later ones are counted, in
                milliseconds since the epoch (KIP-1146).

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
            >>> context = MockProcessorContext()
            >>> Remind().init(context)
            >>> context.scheduled_punctuators()[0].punctuator(3_600_000)
            >>> context.forwarded()[0].record.value
            'an hour has passed'
        """
        ...

    def commit(self) -> None:
        """Ask for a commit as soon as the batch that is processed now is done.

        Example:
            >>> class CommitAtTheEndOfADay(Processor[str, str, str, str]):
            ...     def process(self, record: Record[str, str]) -> None:
            ...         if record.value == "end of day":
            ...             self.context.commit()
            >>> context = MockProcessorContext()
            >>> processor = CommitAtTheEndOfADay()
            >>> processor.init(context)
            >>> processor.process(Record("shop", "end of day", 0))
            >>> context.committed
            True
        """
        ...


class ProcessorContext(ProcessingContext, Protocol[KForward, VForward]):
    """What a `Processor` may ask (Kafka Streams' `ProcessorContext`).

    Example:
        >>> class Shout(Processor[str, str, str, str]):
        ...     def init(self, context: ProcessorContext[str, str]) -> None:
        ...         super().init(context)
        ...     def process(self, record: Record[str, str]) -> None:
        ...         self.context.forward(record.with_value(record.value.upper()))
        >>> words = StreamsBuilder().stream("words", key=STRING, value=STRING)
        >>> shouted = words.process(Shout)
    """

    def forward(self, record: Record[KForward, VForward], child: str | None = None) -> None:
        """Hand a record on, from `process` or a punctuator.

        Args:
            record: the record, with a timestamp of its own.
            child: the name of the only node to get it; by default all children do, in the order in
                which they were added.

        Raises:
            StreamsError: there is no child of that name, or nothing is processed just now.

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
        ...


class FixedKeyProcessorContext(ProcessingContext, Protocol[KForward, VForward]):
    """What a `FixedKeyProcessor` may ask (Kafka Streams' `FixedKeyProcessorContext`).

    Example:
        >>> class Shout(FixedKeyProcessor[str, str, str]):
        ...     def init(self, context: FixedKeyProcessorContext[str, str]) -> None:
        ...         super().init(context)
        ...     def process(self, record: FixedKeyRecord[str, str]) -> None:
        ...         self.context.forward(record.with_value(record.value.upper()))
        >>> words = StreamsBuilder().stream("words", key=STRING, value=STRING)
        >>> shouted = words.process_values(Shout)
    """

    def forward(self, record: FixedKeyRecord[KForward, VForward], child: str | None = None) -> None:
        """Hand a record on, under the key it came with.

        Args:
            record: made from the one being processed, by its `with_` methods.
            child: the name of the only node to get it; by default all children do, in the order in
                which they were added.

        Raises:
            TypeError: it is no `FixedKeyRecord`.
            StreamsError: there is no child of that name, or nothing is processed just now.

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
        ...
