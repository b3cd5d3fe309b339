"""Metrics as OpenTelemetry collects them; needs the extra `millstream[otel]`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from millstream.clock import SystemClock
from millstream.errors import ConfigError
from millstream.export.kinds import is_counter
from millstream.metrics.values import Metrics

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter, MeterProvider

with suppress(ImportError):
    from opentelemetry import metrics as api
    from opentelemetry.metrics import CallbackOptions, Observation

_SCOPE: Final = "millstream"
#: An instrument that is never exported, as it has no values.
_LOOKS: Final = "millstream.looks-for-new-metrics"
#: How long one reading may serve.
_ONE_EXPORT_MS: Final = 500


class OpenTelemetryMetrics:
    """Observable instruments of a meter provider, one for each name: it asks when it exports.

    An instrument is called as the metric, after its group: `stream-thread-metrics.process-total`;
    of subscriptions `decaton.tasks.processed`. Totals are observable counters, all others gauges.
    Labels are attributes. Texts, and what was not measured, are left out.

    Names that come later, with work, are exported with the next but one reading.

    Args:
        metrics: gives them, for example `streams.metrics`.
        provider: where the instruments are made; by default the process's global one.

    Raises:
        ConfigError: the extra is not installed.

    Example:
        >>> from opentelemetry.sdk.metrics import MeterProvider
        >>> from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        >>> reader = InMemoryMetricReader()
        >>> one = Metric("process-total", {"thread-id": "t"}, 3.0, "stream-thread-metrics")
        >>> told = OpenTelemetryMetrics(lambda: Metrics([one]), MeterProvider([reader]))
        >>> found = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
        >>> [(each.name, each.data.data_points[0].value) for each in found]
        [('stream-thread-metrics.process-total', 3.0)]
    """

    def __init__(
        self, metrics: Callable[[], Metrics], provider: MeterProvider | None = None
    ) -> None:
        try:
            chosen = provider or api.get_meter_provider()
        except NameError:
            raise ConfigError(
                "Metrics for OpenTelemetry need the extra: pip install 'millstream[otel]'."
            ) from None
        self._metrics: Callable[[], Metrics] | None = metrics
        self._meter: Meter = chosen.get_meter(_SCOPE)
        self._clock = SystemClock()
        # One thread at a time makes instruments; the other lock it does not hold then, since who
        # collects holds the one of the SDK that new instruments need.
        self._making = threading.Lock()
        self._lock = threading.Lock()
        self._maker: threading.Thread | None = None
        self._known: set[tuple[str, str]] = set()
        self._read: dict[tuple[str, str], list[Observation]] = {}
        self._read_ms: int | None = None
        # Asked at each export, also while there is nothing else to export.
        self._meter.create_observable_up_down_counter(_LOOKS, [self._look])
        self._follow()

    def __enter__(self) -> OpenTelemetryMetrics:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Tell nothing any more. Does nothing the second time.

        The instruments stay, since OpenTelemetry has no way to give them up, but without values;
        the application is let go.

        Example:
            >>> OpenTelemetryMetrics(lambda: Metrics([])).close()
        """
        with self._lock:
            self._metrics = None
            self._read = {}

    def _follow(self) -> None:
        """Make instruments for the names that are new."""
        with self._making:
            for group, name in sorted(self._now().keys() - self._known):
                self._known.add((group, name))
                observe = [partial(self._observe, (group, name))]
                if is_counter(name):
                    self._meter.create_observable_counter(_name(group, name), observe)
                else:
                    self._meter.create_observable_gauge(_name(group, name), observe)

    def _look(self, _: CallbackOptions) -> Iterable[Observation]:
        """Tell nothing, but see to it that what is new gets its instruments."""
        there = self._now()
        with self._lock:
            is_making = self._maker is not None and self._maker.is_alive()
            if not is_making and not self._known.issuperset(there):
                self._maker = threading.Thread(
                    target=self._follow, name="millstream-instruments", daemon=True
                )
                self._maker.start()
        return ()

    def _observe(self, which: tuple[str, str], _: CallbackOptions) -> Iterable[Observation]:
        return self._now().get(which, ())

    def _now(self) -> dict[tuple[str, str], list[Observation]]:
        """All of them; those of one export are of one moment."""
        with self._lock:
            if self._metrics is None:
                return {}
            now_ms = self._clock.monotonic_ms()
            if self._read_ms is not None and now_ms - self._read_ms < _ONE_EXPORT_MS:
                return self._read
            self._read_ms, self._read = now_ms, {}
            for metric in self._metrics():
                value = metric.value
                if isinstance(value, str) or value != value:
                    continue
                seen = Observation(value, dict(metric.labels))
                self._read.setdefault((metric.group, metric.name), []).append(seen)
            return self._read


def _name(group: str, name: str) -> str:
    return f"decaton.{name}" if group == "subscription-metrics" else f"{group}.{name}"
