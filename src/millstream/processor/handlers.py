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
    """What a handler answers."""

    #: Stop the stream thread; nothing of the batch is committed.
    FAIL = "fail"
    #: Leave the record out and go on.
    CONTINUE = "continue"


FAIL = HandlerResponse.FAIL
CONTINUE = HandlerResponse.CONTINUE


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A record as it was read from Kafka, before or without deserialization."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    headers: Headers
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """Where an error happened: the input record's place, and the node that was working on it."""

    topic: str | None
    partition: int
    offset: int
    timestamp: int
    headers: Headers
    node: str
    task_id: TaskId

    @classmethod
    def of(cls, record: SourceRecord, node: str, task_id: TaskId) -> ErrorContext:
        """The context of a record that its source node could not read."""
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
    """A record that cannot be read stops the thread. The default."""

    def __call__(
        self, context: ErrorContext, record: SourceRecord, error: Exception
    ) -> HandlerResponse:
        logger.error("cannot read a record, giving up (%s): %s", context, error)
        return FAIL


class LogAndContinueExceptionHandler:
    """A record that cannot be read is logged, counted as dropped, and left out."""

    def __call__(
        self, context: ErrorContext, record: SourceRecord, error: Exception
    ) -> HandlerResponse:
        logger.warning("cannot read a record, leaving it out (%s): %s", context, error)
        return CONTINUE


class LogAndFailProcessingExceptionHandler:
    """A record that user code raises on stops the thread. The default."""

    def __call__(
        self, context: ErrorContext, record: Record[Any, Any], error: Exception
    ) -> HandlerResponse:
        logger.error("user code failed, giving up (%s): %r", context, error)
        return FAIL


class LogAndContinueProcessingExceptionHandler:
    """A record that user code raises on is logged, counted as dropped, and left out there."""

    def __call__(
        self, context: ErrorContext, record: Record[Any, Any], error: Exception
    ) -> HandlerResponse:
        logger.warning("user code failed, leaving the record out (%s): %r", context, error)
        return CONTINUE
