"""Who decides what happens to a record that cannot be read, that user code fails on, or that cannot
be written.

A handler is a callable `(context, record, error)` which gives a `HandlerResponse`, perhaps with
records for a dead-letter queue. Semantics: Kafka Streams' DeserializationExceptionHandler,
ProcessingExceptionHandler and ProductionExceptionHandler (KIP-161, KIP-1033, KIP-210, KIP-399,
KIP-1065), dead letters (KIP-1034).
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from millstream.errors import (
    SerializationError,
    StreamsError,
    summary_of,
    text_of,
    traceback_of,
)
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
    #: Do the work since the last commit again. Only an answer to a record that Kafka did not take,
    #: and only if its error is `retriable`; else it means FAIL.
    RETRY = "retry"

    def with_dead_letters(self, *letters: DeadLetter) -> HandlerDecision:
        """The same answer, and records that are sent somewhere for it.

        Example:
            >>> def keep(context, record, error):
            ...     letter = DeadLetter.of(context, error, "not-understood")
            ...     return HandlerResponse.CONTINUE.with_dead_letters(letter)
            >>> config = StreamsConfig(
            ...     application_id="shop",
            ...     bootstrap_servers="localhost:9092",
            ...     deserialization_exception_handler=keep,
            ... )
            >>> builder = StreamsBuilder()
            >>> builder.stream("clicks", key=STRING, value=LONG).to("out")
            >>> with TopologyTestDriver(builder.build(), config) as driver:
            ...     clicks = driver.create_input_topic("clicks", key=STRING, value=STRING)
            ...     clicks.pipe_value("seven")
            ...     dead = driver.create_output_topic("not-understood", key=STRING, value=STRING)
            ...     dead.read_value()
            'seven'
        """
        return HandlerDecision(self, letters)


FAIL = HandlerResponse.FAIL
CONTINUE = HandlerResponse.CONTINUE
RETRY = HandlerResponse.RETRY


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
class SinkRecord:
    """A record on its way to a topic, as the production exception handler is told of it.

    Args:
        topic: where it goes.
        partition: where it goes; None where its key decides.
        timestamp: milliseconds since the epoch.
        headers: of the record.
        key: bytes, or the object itself if it, or the value, could not be serialized.
        value: the same.
        unserialized: which of the two could not be serialized; None if Kafka did not take the
            record.

    Example:
        >>> record = SinkRecord("out", None, 1_000, (), b"ann", b"x" * 2_000_000)
        >>> record.unserialized is None, len(record.value)
        (True, 2000000)
    """

    topic: str
    partition: int | None
    timestamp: int
    headers: Headers
    key: Any
    value: Any
    unserialized: Literal["key", "value"] | None = None


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """Where an error happened: the input record's place, and the node that was working on it.

    `source_key` and `source_value` are the bytes of that input record; None where they are not at
    hand any more: in a punctuation, and behind a store that holds records back.
    `headers` and `timestamp` are those of the record that `node` was working on.

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
    source_key: bytes | None = None
    source_value: bytes | None = None

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
            record.key,
            record.value,
        )

    def __str__(self) -> str:
        return (
            f"task {self.task_id}, node {self.node}, topic {self.topic}, "
            f"partition {self.partition}, offset {self.offset}"
        )


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record for a dead-letter queue: bytes, since nobody could make more of it.

    Args:
        topic: where it goes; the topic must exist, and the application must not read it.
        key: serialized.
        value: serialized.
        timestamp: milliseconds since the epoch.
        headers: of the record.

    Example:
        >>> record = SourceRecord("clicks", 0, 42, 1_000, (), None, b"?")
        >>> context = ErrorContext.of(record, "read", TaskId(0, 0))
        >>> letter = DeadLetter.of(context, ValueError("not a click"), "not-understood")
        >>> letter.value, letter.timestamp
        (b'?', 1000)
        >>> dict(letter.headers)["__streams.errors.offset"]
        b'42'
    """

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()

    @classmethod
    def of(cls, context: ErrorContext, error: Exception, topic: str) -> DeadLetter:
        """The input record as it was read, with headers that tell what went wrong and where: what
        the ready-made handlers send to `errors_dead_letter_queue_topic_name` (KIP-1034).

        Example:
            >>> record = SourceRecord("clicks", 0, 42, 0, (), None, b"?")
            >>> context = ErrorContext.of(record, "read", TaskId(0, 0))
            >>> letter = DeadLetter.of(context, ValueError("not a click"), "not-understood")
            >>> dict(letter.headers)["__streams.errors.message"]
            b'not a click'
        """
        cause = error.__cause__ if isinstance(error, SerializationError) else None
        told = {
            "exception": _name_of(cause or error),
            "stacktrace": traceback_of(error),
            "message": text_of(error),
            "topic": context.topic or "",
            "partition": str(context.partition),
            "offset": str(context.offset),
        }
        headers = (
            *context.headers,
            *((f"__streams.errors.{name}", text.encode()) for name, text in told.items()),
        )
        timestamp = max(context.timestamp, 0)
        return cls(topic, context.source_key, context.source_value, timestamp, headers)


@dataclass(frozen=True, slots=True)
class HandlerDecision:
    """What a handler answers, and records that are sent somewhere for it; see
    `HandlerResponse.with_dead_letters`.

    Example:
        >>> HandlerResponse.CONTINUE.with_dead_letters().response
        <HandlerResponse.CONTINUE: 'continue'>
    """

    response: HandlerResponse
    dead_letters: tuple[DeadLetter, ...] = ()


#: What handlers give.
HandlerAnswer = HandlerResponse | HandlerDecision
DeserializationHandler = Callable[[ErrorContext, SourceRecord, Exception], HandlerAnswer]
ProcessingHandler = Callable[[ErrorContext, Record[Any, Any], Exception], HandlerAnswer]
ProductionHandler = Callable[[ErrorContext, SinkRecord, StreamsError], HandlerAnswer]


def _name_of(error: BaseException) -> str:
    kind = type(error)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


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
        logger.info("cannot read a record, giving up (%s): %s", context, text_of(error))
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
        logger.warning("cannot read a record, leaving it out (%s): %s", context, text_of(error))
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
        logger.info("user code failed, giving up (%s): %s", context, summary_of(error))
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
        logger.warning(
            "user code failed, leaving the record out (%s): %s", context, summary_of(error)
        )
        return CONTINUE


class DefaultProductionExceptionHandler:
    """A record that cannot be written stops the thread, unless trying again may help: then the work
    since the last commit is done again. The default. Kafka Streams' class of that name.

    Example:
        >>> place = SourceRecord("clicks", 0, 42, 0, (), None, b"?")
        >>> context = ErrorContext.of(place, "to-out", TaskId(0, 0))
        >>> record = SinkRecord("out", None, 1_000, (), b"ann", b"x" * 2_000_000)
        >>> error = ProductionError("too large", topic="out")
        >>> DefaultProductionExceptionHandler()(context, record, error)
        <HandlerResponse.FAIL: 'fail'>
    """

    def __call__(
        self, context: ErrorContext, record: SinkRecord, error: StreamsError
    ) -> HandlerResponse:
        if error.retriable:
            return RETRY
        # Not as an error: that is the exception which follows, and is told by whoever gets it.
        logger.info("cannot write a record, giving up (%s): %s", context, text_of(error))
        return FAIL
