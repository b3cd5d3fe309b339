"""Who decides what happens to a record that cannot be read or that user code fails on.

A handler is a callable `(context, record, error) -> HandlerResponse`. Semantics: Kafka Streams'
DeserializationExceptionHandler and ProcessingExceptionHandler (KIP-161, KIP-1033).
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millstream.record import Headers, Record, TaskId

logger = logging.getLogger("millstream.processor")


class HandlerResponse(enum.Enum):
    """What a handler answers.

    Example:
        >>> def only_clicks_may_fail(context, record, error):
        ...     if context.topic == "clicks":
        ...         return HandlerResponse.CONTINUE
        ...     return HandlerResponse.FAIL
        >>> config = StreamsConfig(
        ...     application_id="shop",
        ...     bootstrap_servers="localhost:9092",
        ...     processing_exception_handler=only_clicks_may_fail,
        ... )
        >>> builder = StreamsBuilder()
        >>> builder.stream("clicks", key=STRING, value=STRING).map_values(int).to("out", value=LONG)
        >>> with TopologyTestDriver(builder.build(), config) as driver:
        ...     clicks = driver.create_input_topic("clicks", key=STRING, value=STRING)
        ...     clicks.pipe_values(["one", "2"])
        ...     driver.create_output_topic("out", key=STRING, value=LONG).read_values()
        [2]
    """

    #: Stop the stream thread; nothing of the batch is committed.
    FAIL = "fail"
    #: Leave the record out and go on.
    CONTINUE = "continue"


FAIL = HandlerResponse.FAIL
CONTINUE = HandlerResponse.CONTINUE


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A record as it was read from Kafka, before or without deserialization.

    Example:
        >>> record = SourceRecord("clicks", 0, 42, 0, (), None, b"?")
        >>> context = ErrorContext.of(record, "KSTREAM-SOURCE-0000000000", TaskId(0, 0))
        >>> LogAndContinueExceptionHandler()(context, record, ValueError("not a click"))
        <HandlerResponse.CONTINUE: 'continue'>
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    headers: Headers
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """Where an error happened: the input record's place, and the node that was working on it.

    Example:
        >>> def tell(context, record, error):
        ...     print(context)
        ...     return HandlerResponse.CONTINUE
        >>> config = StreamsConfig(
        ...     application_id="shop",
        ...     bootstrap_servers="localhost:9092",
        ...     deserialization_exception_handler=tell,
        ... )
        >>> builder = StreamsBuilder()
        >>> builder.stream("clicks", key=STRING, value=LONG, name="clicks").to("out")
        >>> with TopologyTestDriver(builder.build(), config) as driver:
        ...     driver.create_input_topic("clicks", key=STRING, value=STRING).pipe_value("seven")
        task 0_0, node clicks, topic clicks, partition 0, offset 0
    """

    topic: str | None
    partition: int
    offset: int
    timestamp: int
    headers: Headers
    node: str
    task_id: TaskId

    @classmethod
    def of(cls, record: SourceRecord, node: str, task_id: TaskId) -> ErrorContext:
        """The context of a record that its source node could not read.

        Example:
            >>> record = SourceRecord("clicks", 0, 42, 0, (), None, b"?")
            >>> ErrorContext.of(record, "read", TaskId(0, 0)).offset
            42
        """
        return cls(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp,
            record.headers,
            node,
            task_id,
        )

    def __str__(self) -> str:
        return (
            f"task {self.task_id}, node {self.node}, topic {self.topic}, "
            f"partition {self.partition}, offset {self.offset}"
        )


DeserializationHandler = Callable[[ErrorContext, SourceRecord, Exception], HandlerResponse]
ProcessingHandler = Callable[[ErrorContext, Record[Any, Any], Exception], HandlerResponse]


class LogAndFailExceptionHandler:
    """A record that cannot be read stops the thread. The default.

    Example:
        >>> record = SourceRecord("clicks", 0, 42, 0, (), None, b"?")
        >>> context = ErrorContext.of(record, "read", TaskId(0, 0))
        >>> LogAndFailExceptionHandler()(context, record, ValueError("not a click"))
        <HandlerResponse.FAIL: 'fail'>
    """

    def __call__(
        self, context: ErrorContext, record: SourceRecord, error: Exception
    ) -> HandlerResponse:
        # Not as an error: that is the exception which follows, and is told by whoever gets it.
        logger.info("cannot read a record, giving up (%s): %s", context, error)
        return FAIL


class LogAndContinueExceptionHandler:
    """A record that cannot be read is logged, counted as dropped, and left out.

    Example:
        >>> builder = StreamsBuilder()
        >>> builder.stream("in", key=STRING, value=LONG).to("out")
        >>> config = StreamsConfig(
        ...     application_id="shop",
        ...     bootstrap_servers="localhost:9092",
        ...     deserialization_exception_handler=LogAndContinueExceptionHandler(),
        ... )
        >>> with TopologyTestDriver(builder.build(), config) as driver:
        ...     driver.create_input_topic("in", key=STRING, value=STRING).pipe_value("seven")
        ...     driver.create_output_topic("out", key=STRING, value=LONG).is_empty
        True
    """

    def __call__(
        self, context: ErrorContext, record: SourceRecord, error: Exception
    ) -> HandlerResponse:
        logger.warning("cannot read a record, leaving it out (%s): %s", context, error)
        return CONTINUE


class LogAndFailProcessingExceptionHandler:
    """A record that user code raises on stops the thread. The default.

    Example:
        >>> place = SourceRecord("clicks", 0, 42, 0, (), None, b"?")
        >>> context = ErrorContext.of(place, "map", TaskId(0, 0))
        >>> record = Record("ann", 0, 1_000)
        >>> LogAndFailProcessingExceptionHandler()(context, record, ZeroDivisionError())
        <HandlerResponse.FAIL: 'fail'>
    """

    def __call__(
        self, context: ErrorContext, record: Record[Any, Any], error: Exception
    ) -> HandlerResponse:
        # Not as an error: that is the exception which follows, and is told by whoever gets it.
        logger.info("user code failed, giving up (%s): %r", context, error)
        return FAIL


class LogAndContinueProcessingExceptionHandler:
    """A record that user code raises on is logged, counted as dropped, and left out there.

    Example:
        >>> builder = StreamsBuilder()
        >>> numbers = builder.stream("in", key=STRING, value=LONG)
        >>> numbers.map_values(lambda number: 100 // number).to("out", value=LONG)
        >>> config = StreamsConfig(
        ...     application_id="shop",
        ...     bootstrap_servers="localhost:9092",
        ...     processing_exception_handler=LogAndContinueProcessingExceptionHandler(),
        ... )
        >>> with TopologyTestDriver(builder.build(), config) as driver:
        ...     driver.create_input_topic("in", key=STRING, value=LONG).pipe_values([0, 4])
        ...     driver.create_output_topic("out", key=STRING, value=LONG).read_values()
        [25]
    """

    def __call__(
        self, context: ErrorContext, record: Record[Any, Any], error: Exception
    ) -> HandlerResponse:
        logger.warning("user code failed, leaving the record out (%s): %r", context, error)
        return CONTINUE
