"""Calls exception handlers and sends the dead letters that they return."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from millstream.metrics.registry import MetricsScope, detached_scope
from millstream.metrics.values import OWN_GROUP
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
from millstream.runtime.task.error_handling.handler_results import Handler, decision_of
from millstream.runtime.task.sinks import RecordCollector

logger = logging.getLogger(__name__)

#: The kinds of exception handlers, as in the names of their settings.
HandlerKind = Literal["deserialization", "processing", "production"]

_BUILT_IN = (
    DefaultProductionExceptionHandler,
    LogAndContinueExceptionHandler,
    LogAndContinueProcessingExceptionHandler,
    LogAndFailExceptionHandler,
    LogAndFailProcessingExceptionHandler,
)


class DeadLetterCounts:
    """Counts dead letters by node, kind of exception handler, and dead-letter topic.

    Adds the metric `dead-letters-total` with these labels to a scope.
    """

    def __init__(self, scope: MetricsScope) -> None:
        self._scope = scope
        self._counts: dict[tuple[str, HandlerKind, str], int] = {}

    def add(self, node: str, handler: HandlerKind, topic: str) -> None:
        key = (node, handler, topic)
        if key not in self._counts:
            self._counts[key] = 0
            part = self._scope.child(processor_node_id=node, exception_handler=handler, topic=topic)
            part.gauge(OWN_GROUP, "dead-letters-total", partial(self._counts.__getitem__, key))
        self._counts[key] += 1


class DeadLetters:
    """Wraps exception handlers so that their dead letters are sent.

    Dead letters are sent with the outputs; under exactly-once, in the same transaction. `topic` is
    the dead-letter topic of the built-in handlers, if any. `await_deliveries` waits for the
    delivery of dead letters before the thread fails, because a failure discards unsent records.
    """

    def __init__(
        self,
        collector: RecordCollector,
        topic: str | None,
        raw_of: Callable[[TopicPartition, int], tuple[bytes | None, bytes | None] | None],
        await_deliveries: Callable[[], None] = lambda: None,
        counts: DeadLetterCounts | None = None,
    ) -> None:
        self._collector = collector
        self._topic = topic
        self._raw_of = raw_of
        self._await_deliveries = await_deliveries
        self._counts = counts or DeadLetterCounts(detached_scope())

    @property
    def has_queue(self) -> bool:
        """Whether the built-in handlers send dead letters."""
        return self._topic is not None

    def may_send(self, *handlers: object) -> bool:
        """Return whether these handlers may send dead letters.

        None means the built-in handler.
        """
        own = [each for each in handlers if each is not None and not isinstance(each, _BUILT_IN)]
        return self.has_queue or bool(own)

    def wrap(self, handler: Handler, kind: HandlerKind, *, may_send: bool = True) -> Handler:
        """Wrap a handler to complete its error context and send its dead letters.

        Without `may_send`, the dead letters are dropped.
        """
        if self._topic is None and isinstance(handler, _BUILT_IN):
            return handler

        def handle(context: ErrorContext, record: Any, error: Exception) -> HandlerResponse:
            full_context = self.with_bytes(context)
            decision = self._decision(handler, full_context, record, error)
            if may_send:
                for letter in decision.dead_letters:
                    headers = [letter.headers] if letter.headers else None
                    columns = [letter.key], [letter.value], [letter.timestamp], headers
                    self._collector.send_many(letter.topic, None, *columns)
                    self._counts.add(context.node, kind, letter.topic)
                if decision.dead_letters and decision.response is not CONTINUE:
                    self._await_deliveries()
            elif decision.dead_letters:
                logger.warning(
                    "a dead letter is not sent because its transaction is aborted (%s)", context
                )
            return decision.response

        return handle

    def with_bytes(self, context: ErrorContext) -> ErrorContext:
        """Add the serialized input record to a context, if the record is available."""
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
        letters = decision.response is not RETRY and isinstance(handler, _BUILT_IN)
        if self._topic is not None and letters:
            letter = DeadLetter.of(context, error, self._topic)
            return decision.response.with_dead_letters(letter)
        return decision
