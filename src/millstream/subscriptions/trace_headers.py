"""The headers in which OpenTelemetry's traces travel; only with the extra `otel`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from millstream.errors import ConfigError
from millstream.record import Header

if TYPE_CHECKING:
    from opentelemetry.context import Context

try:
    from opentelemetry import propagate

    _IS_THERE = True
except ImportError:
    _IS_THERE = False


def require_opentelemetry() -> None:
    """
    Raises:
        ConfigError: the extra is not installed.
    """
    if not _IS_THERE:
        raise ConfigError(
            "OpenTelemetry is not installed: pip install 'millstream[otel]', and a SDK with an "
            "exporter."
        )


def trace_headers(context: Context | None = None) -> tuple[Header, ...]:
    """Headers that tell a trace.

    Args:
        context: where the trace is; None for the current one.
    """
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context)
    return tuple((name, value.encode()) for name, value in carrier.items())


def traced_context(headers: Iterable[Header]) -> Context:
    """What headers tell; of several of a name the last one counts, as with Kafka's clients."""
    carrier = {name.lower(): value.decode("utf-8", "replace") for name, value in headers if value}
    return propagate.extract(carrier)
