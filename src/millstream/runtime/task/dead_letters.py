"""Asking exception handlers, and sending the dead letters that go with their answers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from millstream.processor.handlers import (
    FAIL,
    DeadLetter,
    ErrorContext,
    HandlerAnswer,
    HandlerDecision,
    HandlerResponse,
    LogAndContinueExceptionHandler,
    LogAndContinueProcessingExceptionHandler,
    LogAndFailExceptionHandler,
    LogAndFailProcessingExceptionHandler,
)
from millstream.record import TopicPartition
from millstream.runtime.task.sinks import Collector

logger = logging.getLogger(__name__)

_READY_MADE = (
    LogAndContinueExceptionHandler,
    LogAndContinueProcessingExceptionHandler,
    LogAndFailExceptionHandler,
    LogAndFailProcessingExceptionHandler,
)

Handler = Callable[[ErrorContext, Any, Exception], HandlerAnswer]


class DeadLetters:
    """Stands between a task and the handlers of the user.

    Args:
        collector: where dead letters go, with the outputs: under exactly-once in one transaction.
        topic: the dead-letter queue of the ready-made handlers; None if there is none.
        raw_of: key and value of an input record as they were read, if they are at hand.
    """

    def __init__(
        self,
        collector: Collector,
        topic: str | None,
        raw_of: Callable[[TopicPartition, int], tuple[bytes | None, bytes | None] | None],
    ) -> None:
        self._collector = collector
        self._topic = topic
        self._raw_of = raw_of

    def asking(self, handler: Handler) -> Handler:
        """The handler, with all that it is told, whose dead letters are sent."""
        if self._topic is None and isinstance(handler, _READY_MADE):
            return handler

        def ask(context: ErrorContext, record: Any, error: Exception) -> HandlerResponse:
            told = self._with_bytes(context)
            decision = self._decision(handler, told, record, error)
            for letter in decision.dead_letters:
                self._send(letter)
            return decision.response

        return ask

    def _with_bytes(self, context: ErrorContext) -> ErrorContext:
        if context.topic is None or context.source_key is not None:
            return context
        raw = self._raw_of(TopicPartition(context.topic, context.partition), context.offset)
        if raw is None:
            return context
        return replace(context, source_key=raw[0], source_value=raw[1])

    def _decision(
        self, handler: Handler, context: ErrorContext, record: Any, error: Exception
    ) -> HandlerDecision:
        answer = answer_of(handler, context, record, error)
        if isinstance(answer, HandlerDecision):
            return answer
        if self._topic is not None and isinstance(handler, _READY_MADE):
            return answer.with_dead_letters(DeadLetter.of(context, error, self._topic))
        return HandlerDecision(answer)

    def _send(self, letter: DeadLetter) -> None:
        self._collector.send_many(
            letter.topic,
            None,
            [letter.key],
            [letter.value],
            [letter.timestamp],
            [letter.headers] if letter.headers else None,
        )


def answer_of(
    handler: Handler, context: ErrorContext, record: Any, error: Exception
) -> HandlerAnswer:
    """What the handler says. One that fails itself, or answers nothing, means FAIL."""
    try:
        answer = handler(context, record, error)
    except Exception:
        logger.exception("the exception handler failed itself (%s)", context)
        return FAIL
    if not isinstance(answer, HandlerResponse | HandlerDecision):
        logger.error("the exception handler answered %r: taken as FAIL (%s)", answer, context)
        return FAIL
    return answer
