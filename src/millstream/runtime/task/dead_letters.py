"""Asking exception handlers, and sending the dead letters that go with their answers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from millstream.processor.handlers import (
    CONTINUE,
    RETRY,
    DeadLetter,
    DefaultProductionExceptionHandler,
    ErrorContext,
    HandlerDecision,
    HandlerResponse,
    LogAndContinueExceptionHandler,
    LogAndContinueProcessingExceptionHandler,
    LogAndFailExceptionHandler,
    LogAndFailProcessingExceptionHandler,
)
from millstream.record import TopicPartition
from millstream.runtime.task.answers import Handler, decision_of
from millstream.runtime.task.sinks import Collector

logger = logging.getLogger(__name__)

_READY_MADE = (
    DefaultProductionExceptionHandler,
    LogAndContinueExceptionHandler,
    LogAndContinueProcessingExceptionHandler,
    LogAndFailExceptionHandler,
    LogAndFailProcessingExceptionHandler,
)


class DeadLetters:
    """Stands between a task and the handlers of the user.

    Args:
        collector: where dead letters go, with the outputs: under exactly-once in one transaction.
        topic: the dead-letter queue of the ready-made handlers; None if there is none.
        raw_of: key and value of an input record as they were read, if they are at hand.
        settle: waits until what was sent has arrived, since the thread is going to fail and to drop
            what has not.
    """

    def __init__(
        self,
        collector: Collector,
        topic: str | None,
        raw_of: Callable[[TopicPartition, int], tuple[bytes | None, bytes | None] | None],
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        self._collector = collector
        self._topic = topic
        self._raw_of = raw_of
        self._settle = settle

    @property
    def has_queue(self) -> bool:
        """Whether the ready-made handlers have letters to send."""
        return self._topic is not None

    def may_send(self, *handlers: object) -> bool:
        """Whether letters may come of these handlers, where None is a ready-made one."""
        own = [each for each in handlers if each is not None and not isinstance(each, _READY_MADE)]
        return self.has_queue or bool(own)

    def asking(self, handler: Handler, *, may_send: bool = True) -> Handler:
        """The handler, with all that it is told, whose dead letters are sent.

        Args:
            handler: to be asked.
            may_send: False to keep the letters from being sent.
        """
        if self._topic is None and isinstance(handler, _READY_MADE):
            return handler

        def ask(context: ErrorContext, record: Any, error: Exception) -> HandlerResponse:
            told = self.with_bytes(context)
            decision = self._decision(handler, told, record, error)
            if may_send:
                for letter in decision.dead_letters:
                    self._send(letter)
                if decision.dead_letters and decision.response is not CONTINUE:
                    self._settle()
            elif decision.dead_letters:
                logger.warning(
                    "a dead letter is not sent, since its transaction is lost (%s)", context
                )
            return decision.response

        return ask

    def with_bytes(self, context: ErrorContext) -> ErrorContext:
        """The context, with the bytes of the input record as far as they are at hand."""
        if context.topic is None or context.source_key is not None:
            return context
        raw = self._raw_of(TopicPartition(context.topic, context.partition), context.offset)
        if raw is None:
            return context
        return replace(context, source_key=raw[0], source_value=raw[1])

    def _decision(
        self, handler: Handler, context: ErrorContext, record: Any, error: Exception
    ) -> HandlerDecision:
        decision = decision_of(handler, context, record, error)
        letters = decision.response is not RETRY and isinstance(handler, _READY_MADE)
        if self._topic is not None and letters:
            letter = DeadLetter.of(context, error, self._topic)
            return decision.response.with_dead_letters(letter)
        return decision

    def _send(self, letter: DeadLetter) -> None:
        self._collector.send_many(
            letter.topic,
            None,
            [letter.key],
            [letter.value],
            [letter.timestamp],
            [letter.headers] if letter.headers else None,
        )
