"""Traces of tasks with OpenTelemetry: the extra `otel`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import summary_of
from millstream.record import Headers
from millstream.subscriptions.context import ProcessingContext
from millstream.subscriptions.trace_headers import (
    require_opentelemetry,
    trace_headers,
    traced_context,
)

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

with suppress(ImportError):
    from opentelemetry import trace

_SCOPE: Final = "millstream"


class OpenTelemetryTracing:
    """A span for each task, from where it is taken to where it is complete, as a part of the trace
    that its record's headers tell (W3C's `traceparent`, or what else OpenTelemetry is set up for).

    While its processors run, the span is the current one: what they do belongs to it. A retry goes
    on in the same trace, as a child of the attempt before. Semantics: Decaton's
    `MicrometerTracingProvider`, whose span is named "decaton" as well.

    Args:
        provider: gives where spans go; called once in each process, since tasks are processed in
            Spark's Python workers. By default the process's global one.

    Raises:
        ConfigError: the extra is not installed.

    Example:
        >>> def provider():
        ...     exporter = OTLPSpanExporter()
        ...     provider = TracerProvider(resource=Resource.create({"service.name": "mailer"}))
        ...     provider.add_span_processor(BatchSpanProcessor(exporter))
        ...     return provider
        >>> tracing = OpenTelemetryTracing(provider)
    """

    def __init__(self, provider: Callable[[], TracerProvider] | None = None) -> None:
        require_opentelemetry()
        self._provider = provider
        self._tracer: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_provider": self._provider, "_tracer": None}

    def trace_for(self, context: ProcessingContext, subscription: str) -> OpenTelemetryTrace:
        """Begin the span of a task."""
        if self._tracer is None:
            provider = None if self._provider is None else self._provider()
            self._tracer = trace.get_tracer(_SCOPE, tracer_provider=provider)
        place = context.place
        span = self._tracer.start_span(
            "decaton",
            context=traced_context(context.headers),
            kind=trace.SpanKind.CONSUMER,
            attributes={
                "subscriptionId": subscription,
                "messaging.system": "kafka",
                "messaging.destination.name": place.topic,
                "messaging.destination.partition.id": str(place.partition),
                "messaging.kafka.message.offset": context.offset,
                "decaton.retry_count": context.metadata.retry_count,
            },
        )
        return OpenTelemetryTrace(span)


class OpenTelemetryTrace:
    """The span of one task. It is `TaskTrace`.

    Args:
        span: it.
    """

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def processing(self) -> AbstractContextManager[Any]:
        """The span is the current one."""
        # Whether the task has failed is told when it is complete.
        return trace.use_span(self._span, record_exception=False, set_status_on_exception=False)

    def completed(self, outcome: str, error: BaseException | None) -> None:
        """End the span."""
        span = self._span
        span.set_attribute("decaton.outcome", outcome)
        if error is not None:
            span.record_exception(error)
            span.set_status(trace.StatusCode.ERROR, summary_of(error))
        span.end()

    def retry_headers(self) -> Headers:
        """The span as the parent of the retry."""
        return trace_headers(trace.set_span_in_context(self._span))
