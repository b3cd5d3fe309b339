"""The base classes of the Processor API.

User code extends them to process single records. Semantics: Kafka Streams'
`org.apache.kafka.streams.processor.api` (KIP-478, KIP-820).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.processor.processor_context import FixedKeyProcessorContext, ProcessorContext
from millstream.record import FixedKeyRecord, Record

KIn = TypeVar("KIn")
VIn = TypeVar("VIn")
KOut = TypeVar("KOut")
VOut = TypeVar("VOut")


def _no_attribute(processor: object, name: str) -> AttributeError:
    kind = type(processor).__name__
    if name == "context":
        return AttributeError(
            f"{kind} has no context yet. Its init(context) must start with super().init(context)."
        )
    return AttributeError(f"'{kind}' object has no attribute '{name}'", name=name, obj=processor)


class Processor(Generic[KIn, VIn, KOut, VOut]):
    """The base class of custom processors, which process records one by one.

    Extend this class, and pass the subclass as the supplier. Each task creates its own processor,
    and uses it from one thread only. `init` is called first, with restored stores; `close` is
    called last. If the task moves, its next owner creates a new processor.

    Attributes:
        context: the context that `init` stores. A subclass that overrides `init` must call
            `super().init(context)` to set it.

    Example:
        >>> class Reverse(Processor[str, str, str, str]):
        ...     def process(self, record: Record[str, str]) -> None:
        ...         self.context.forward(record.with_value(record.value[::-1]))
        >>> words = StreamsBuilder().stream("words", key=STRING, value=STRING)
        >>> reversed_words = words.process(Reverse)
    """

    context: ProcessorContext[KOut, VOut]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise _no_attribute(self, name)

    def init(self, context: ProcessorContext[KOut, VOut]) -> None:
        """Initialize the processor.

        Called before the first record. An error stops the thread.

        Args:
            context: provides access to stores, time and children. The processor can use this object
                until `close`.

        Example:
            >>> class Count(Processor[str, str, str, int]):
            ...     def init(self, context: ProcessorContext[str, int]) -> None:
            ...         super().init(context)
            ...         self.counts = context.get_state_store("counts")
        """
        self.context = context

    def process(self, record: Record[KIn, VIn]) -> None:
        """Process a record. Errors are passed to the processing exception handler.

        Args:
            record: the record; its key and value may be None.

        Example:
            >>> class Reverse(Processor[str, str, str, str]):
            ...     def process(self, record: Record[str, str]) -> None:
            ...         self.context.forward(record.with_value(record.value[::-1]))
            >>> reverse = Reverse()
            >>> reverse.init(context)
            >>> reverse.process(Record("k", "stream", 0))
            >>> context.forwarded()[0].record.value
            'maerts'
        """
        raise NotImplementedError(f"{type(self).__qualname__} must define process(record).")

    def close(self) -> None:
        """Release resources when the task ends.

        Stores can still be used, but `forward` raises an error.

        Example:
            >>> class Announce(Processor[str, str, str, str]):
            ...     def process(self, record: Record[str, str]) -> None:
            ...         print(record.value)
            ...     def close(self) -> None:
            ...         print("over")
            >>> builder = StreamsBuilder()
            >>> _ = builder.stream("in", key=STRING, value=STRING).process(Announce)
            >>> with TopologyTestDriver(builder.build()) as driver:
            ...     driver.create_input_topic("in", key=STRING, value=STRING).pipe_value("hello")
            hello
            over
        """


class FixedKeyProcessor(Generic[KIn, VIn, VOut]):
    """A processor that does not change keys.

    Its output therefore needs no repartitioning.

    Attributes:
        context: the context that `init` stores. A subclass that overrides `init` must call
            `super().init(context)` to set it.

    Example:
        >>> class Number(FixedKeyProcessor[str, str, str]):
        ...     def init(self, context: FixedKeyProcessorContext[str, str]) -> None:
        ...         super().init(context)
        ...         self.seen = 0
        ...     def process(self, record: FixedKeyRecord[str, str]) -> None:
        ...         self.seen += 1
        ...         self.context.forward(record.with_value(f"{self.seen}: {record.value}"))
        >>> words = StreamsBuilder().stream("words", key=STRING, value=STRING)
        >>> numbered = words.process_values(Number)
    """

    context: FixedKeyProcessorContext[KIn, VOut]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise _no_attribute(self, name)

    def init(self, context: FixedKeyProcessorContext[KIn, VOut]) -> None:
        """Initialize the processor.

        Called before the first record. An error stops the thread.

        Args:
            context: provides access to stores, time and children. The processor can use this object
                until `close`.

        Example:
            >>> class Number(FixedKeyProcessor[str, str, str]):
            ...     def init(self, context: FixedKeyProcessorContext[str, str]) -> None:
            ...         super().init(context)
            ...         self.seen = 0
        """
        self.context = context

    def process(self, record: FixedKeyRecord[KIn, VIn]) -> None:
        """Process a record. Errors are passed to the processing exception handler.

        Args:
            record: the record; its key and value may be None.

        Example:
            >>> class Reverse(FixedKeyProcessor[str, str, str]):
            ...     def process(self, record: FixedKeyRecord[str, str]) -> None:
            ...         self.context.forward(record.with_value(record.value[::-1]))
            >>> reverse = Reverse()
            >>> reverse.init(context)
            >>> reverse.process(FixedKeyRecord("k", "stream", 0))
            >>> context.forwarded()[0].record.value
            'maerts'
        """
        raise NotImplementedError(f"{type(self).__qualname__} must define process(record).")

    def close(self) -> None:
        """Release resources when the task ends.

        Stores can still be used, but `forward` raises an error.

        Example:
            >>> class Sum(FixedKeyProcessor[str, int, int]):
            ...     total = 0
            ...     def process(self, record: FixedKeyRecord[str, int]) -> None:
            ...         self.total += record.value
            ...     def close(self) -> None:
            ...         print("total:", self.total)
            >>> builder = StreamsBuilder()
            >>> _ = builder.stream("in", key=STRING, value=LONG).process_values(Sum)
            >>> with TopologyTestDriver(builder.build()) as driver:
            ...     driver.create_input_topic("in", key=STRING, value=LONG).pipe_values([1, 2])
            total: 3
        """
