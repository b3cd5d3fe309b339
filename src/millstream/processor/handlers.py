"""Exception handlers for records that cannot be read, processed or written.

A handler is a callable `(context, record, error)` that returns a `HandlerResponse`, optionally with
records for a dead-letter queue. Semantics: Kafka Streams' DeserializationExceptionHandler,
ProcessingExceptionHandler and ProductionExceptionHandler (KIP-161, KIP-1033, KIP-210, KIP-399,
KIP-1065), and dead letters (KIP-1034). The examples use `record`, a `SourceRecord` with the value
`b"?"`, its `context`, and the `config` of an application.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from millstream.errors import SerializationError, StreamsError, summary_of, text_of, traceback_of
from millstream.record import Headers, Record, TaskId

logger = logging.getLogger("millstream.processor")


class HandlerResponse(enum.Enum):
    """The decision of an exception handler.

    Example:
        >>> def only_clicks_may_fail(context, record, error):
        ...     if context.topic == "clicks":
        ...         return HandlerResponse.CONTINUE
        ...     return HandlerResponse.FAIL
        >>> config = config.replace(processing_exception_handler=only_clicks_may_fail)
        >>> builder = StreamsBuilder()
        >>> builder.stream("clicks", key=STRING, value=STRING).map_values(int).to("out", value=LONG)
        >>> with TopologyTestDriver(builder.build(), config) as driver:
        ...     clicks = driver.create_input_topic("clicks", key=STRING, value=STRING)
        ...     clicks.pipe_values(["one", "2"])
        ...     driver.create_output_topic("out", key=STRING, value=LONG).read_values()
        [2]
    """

    #: Stop the stream thread. The batch is not committed.
    FAIL = "fail"
    #: Drop the record and continue.
    CONTINUE = "continue"
    #: Repeat the work since the last commit. This response is only valid for a record that Kafka
    #: rejected with a `retriable` error; in other cases, it is treated as FAIL.
    RETRY = "retry"

    def with_dead_letters(self, *letters: DeadLetter) -> HandlerDecision:
        """Return this response, with dead letters to send.

        Example:
            >>> def keep(context, record, error):
            ...     letter = DeadLetter.of(context, error, "not-understood")
            ...     return HandlerResponse.CONTINUE.with_dead_letters(letter)
            >>> config = config.replace(deserialization_exception_handler=keep)
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
    """A record as fetched from Kafka, with its serialized key and value.

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
    """A record to be written, as passed to the production exception handler.

    Args:
        topic: the destination topic.
        partition: the destination partition; None if the key determines it.
        timestamp: milliseconds since the epoch.
        headers: the headers of the record.
        key: bytes, or the object itself if key or value could not be serialized.
        value: bytes, or the object itself if key or value could not be serialized.
        unserialized: the part that could not be serialized; None if Kafka rejected the record.

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
    """The location of an error: the input record's position and the node that failed.

    `source_key` and `source_value` are the serialized key and value of the input record. They are
    None if the input record is no longer available: in a punctuation, and downstream of a store
    that delays records. `headers` and `timestamp` are those of the record that `node` was
    processing.

    Example:
        >>> def print_context(context, record, error):
        ...     print(context)
        ...     return HandlerResponse.CONTINUE
        >>> config = config.replace(deserialization_exception_handler=print_context)
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
        """Create the context of a record that its source node could not deserialize.

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
    """A serialized record for a dead-letter queue.

    Args:
        topic: the destination; the topic must exist, and the application must not read it.
        key: the serialized key.
        value: the serialized value.
        timestamp: milliseconds since the epoch.
        headers: the headers of the record.

    Example:
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
        """Create a dead letter from the input record.

        Its headers describe the error. The built-in handlers send such dead letters to
        `errors_dead_letter_queue_topic_name` (KIP-1034).

        Example:
            >>> letter = DeadLetter.of(context, ValueError("not a click"), "not-understood")
            >>> dict(letter.headers)["__streams.errors.message"]
            b'not a click'
        """
        cause = error.__cause__ if isinstance(error, SerializationError) else None
        details = {
            "exception": _name_of(cause or error),
            "stacktrace": traceback_of(error),
            "message": text_of(error),
            "topic": context.topic or "",
            "partition": str(context.partition),
            "offset": str(context.offset),
        }
        headers = (
            *context.headers,
            *((f"__streams.errors.{name}", text.encode()) for name, text in details.items()),
        )
        timestamp = max(context.timestamp, 0)
        return cls(topic, context.source_key, context.source_value, timestamp, headers)


@dataclass(frozen=True, slots=True)
class HandlerDecision:
    """A handler's response with dead letters.

    See `HandlerResponse.with_dead_letters`.

    Example:
        >>> HandlerResponse.CONTINUE.with_dead_letters().response
        <HandlerResponse.CONTINUE: 'continue'>
    """

    response: HandlerResponse
    dead_letters: tuple[DeadLetter, ...] = ()


#: The result of a handler.
HandlerResult = HandlerResponse | HandlerDecision
DeserializationHandler = Callable[[ErrorContext, SourceRecord, Exception], HandlerResult]
ProcessingHandler = Callable[[ErrorContext, Record[Any, Any], Exception], HandlerResult]
ProductionHandler = Callable[[ErrorContext, SinkRecord, StreamsError], HandlerResult]


def _name_of(error: BaseException) -> str:
    kind = type(error)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


class LogAndFailExceptionHandler:
    """The default deserialization exception handler, which stops the thread.

    Example:
        >>> LogAndFailExceptionHandler()(context, record, ValueError("not a click"))
        <HandlerResponse.FAIL: 'fail'>
    """

    def __call__(
        self, context: ErrorContext, record: SourceRecord, error: Exception
    ) -> HandlerResponse:
        # Not logged as an error, because the caller reports the exception that follows.
        logger.info("cannot deserialize a record, failing (%s): %s", context, text_of(error))
        return FAIL


class LogAndContinueExceptionHandler:
    """A handler that logs and drops records that cannot be deserialized.

    Example:
        >>> builder = StreamsBuilder()
        >>> builder.stream("in", key=STRING, value=LONG).to("out")
        >>> handler = LogAndContinueExceptionHandler()
        >>> config = config.replace(deserialization_exception_handler=handler)
        >>> with TopologyTestDriver(builder.build(), config) as driver:
        ...     driver.create_input_topic("in", key=STRING, value=STRING).pipe_value("seven")
        ...     driver.create_output_topic("out", key=STRING, value=LONG).is_empty
        True
    """

    def __call__(
        self, context: ErrorContext, record: SourceRecord, error: Exception
    ) -> HandlerResponse:
        logger.warning("cannot deserialize a record, skipping it (%s): %s", context, text_of(error))
        return CONTINUE


class LogAndFailProcessingExceptionHandler:
    """The default processing exception handler, which stops the thread.

    Example:
        >>> record = Record("ann", 0, 1_000)
        >>> LogAndFailProcessingExceptionHandler()(context, record, ZeroDivisionError())
        <HandlerResponse.FAIL: 'fail'>
    """

    def __call__(
        self, context: ErrorContext, record: Record[Any, Any], error: Exception
    ) -> HandlerResponse:
        # Not logged as an error, because the caller reports the exception that follows.
        logger.info("user code failed on a record, failing (%s): %s", context, summary_of(error))
        return FAIL


class LogAndContinueProcessingExceptionHandler:
    """A handler that logs and drops records for which user code raises an exception.

    A record is dropped at the node that failed.

    Example:
        >>> builder = StreamsBuilder()
        >>> numbers = builder.stream("in", key=STRING, value=LONG)
        >>> numbers.map_values(lambda number: 100 // number).to("out", value=LONG)
        >>> handler = LogAndContinueProcessingExceptionHandler()
        >>> config = config.replace(processing_exception_handler=handler)
        >>> with TopologyTestDriver(builder.build(), config) as driver:
        ...     driver.create_input_topic("in", key=STRING, value=LONG).pipe_values([0, 4])
        ...     driver.create_output_topic("out", key=STRING, value=LONG).read_values()
        [25]
    """

    def __call__(
        self, context: ErrorContext, record: Record[Any, Any], error: Exception
    ) -> HandlerResponse:
        logger.warning(
            "user code failed on a record, skipping it (%s): %s", context, summary_of(error)
        )
        return CONTINUE


class DefaultProductionExceptionHandler:
    """The default production exception handler.

    It retries after retriable errors, and otherwise stops the thread. A retry repeats the work
    since the last commit. Kafka Streams' class of the same name.

    Example:
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
        # Not logged as an error, because the caller reports the exception that follows.
        logger.info("cannot write a record, failing (%s): %s", context, text_of(error))
        return FAIL
