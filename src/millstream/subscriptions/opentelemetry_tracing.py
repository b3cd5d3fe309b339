"""OpenTelemetry traces of tasks. Requires the extra `otel`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ConfigError, summary_of
from millstream.record import Header, Headers
from millstream.subscriptions.processing_context import ProcessingContext

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, TracerProvider

try:
    from opentelemetry import propagate, trace

    _IS_INSTALLED = True
except ImportError:
    _IS_INSTALLED = False

_SCOPE: Final = "millstream"


class OpenTelemetryTracing:
    """Creates a span for each task, as a child of the trace in its record's headers.

    The span starts when the task is taken and ends when it is completed. The parent is read from
    W3C's `traceparent` header, or from the headers that OpenTelemetry's propagator is configured
    for.

    The span is the current span while the processors run. A retry continues the trace as a child of
    the previous attempt. Semantics: Decaton's `MicrometerTracingProvider`, whose spans are named
    "decaton" as well.

    Args:
        provider: returns the tracer provider. Called once per process, because tasks are processed
            in Spark's Python workers. By default, the global tracer provider of the process.

    Raises:
        ConfigError: the extra `otel` is not installed.

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
        """Start the span of a task."""
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
    """The span of one task; implements `TaskTrace`."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def processing(self) -> AbstractContextManager[Any]:
        # `completed` sets the error status.
        return trace.use_span(self._span, record_exception=False, set_status_on_exception=False)

    def completed(self, outcome: str, error: BaseException | None) -> None:
        span = self._span
        span.set_attribute("decaton.outcome", outcome)
        if error is not None:
            span.record_exception(error)
            span.set_status(trace.StatusCode.ERROR, summary_of(error))
        span.end()

    def retry_headers(self) -> Headers:
        """Return headers that make the span the parent of the retry."""
        return trace_headers(trace.set_span_in_context(self._span))


def require_opentelemetry() -> None:
    """Raise a ConfigError if the extra `otel` is not installed."""
    if not _IS_INSTALLED:
        raise ConfigError(
            "OpenTelemetry is not installed. Run pip install 'millstream[otel]', and install an "
            "SDK with an exporter."
        )


def trace_headers(context: Context | None = None) -> tuple[Header, ...]:
    """Return the headers that propagate a trace. None means the current context."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context)
    return tuple((name, value.encode()) for name, value in carrier.items())


def traced_context(headers: Iterable[Header]) -> Context:
    """Extract the trace context from headers.

    The last header of each name is used, as in Kafka's clients.
    """
    carrier = {name.lower(): value.decode("utf-8", "replace") for name, value in headers if value}
    return propagate.extract(carrier)
