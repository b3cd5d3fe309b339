"""An OpenTelemetry exporter. Requires the extra `millstream[otel]`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from millstream.clock import SystemClock
from millstream.errors import ConfigError
from millstream.metrics.values import Metrics, is_counter

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter, MeterProvider

with suppress(ImportError):
    from opentelemetry import metrics as api
    from opentelemetry.metrics import CallbackOptions, Observation

_SCOPE: Final = "millstream"
#: An instrument without values, which is therefore never exported.
_DISCOVERY_INSTRUMENT: Final = "millstream.looks-for-new-metrics"
#: How long a snapshot of the metrics is reused.
_SNAPSHOT_MS: Final = 500


class OpenTelemetryMetrics:
    """Exports metrics as observable instruments of a meter provider, one per name.

    An instrument is named after the group and the metric: `stream-thread-metrics.process-total`;
    for subscriptions, `decaton.tasks.processed`. Totals are observable counters; all other metrics
    are gauges. Labels are attributes. Strings and `nan` are not exported.

    A metric that is added later is first exported in the second collection after that.

    Args:
        metrics: returns the metrics, for example `streams.metrics`.
        provider: the meter provider; by default the global one of the process.

    Raises:
        ConfigError: the extra `otel` is not installed.

    Example:
        >>> from opentelemetry.sdk.metrics import MeterProvider
        >>> from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        >>> reader = InMemoryMetricReader()
        >>> one = Metric("process-total", {"thread-id": "t"}, 3.0, "stream-thread-metrics")
        >>> exporter = OpenTelemetryMetrics(lambda: Metrics([one]), MeterProvider([reader]))
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
                "OpenTelemetry metrics require an extra: run pip install 'millstream[otel]'."
            ) from None
        self._metrics: Callable[[], Metrics] | None = metrics
        self._meter: Meter = chosen.get_meter(_SCOPE)
        self._clock = SystemClock()
        # Only one thread at a time creates instruments. That thread must not hold `_lock`
        # meanwhile, because creating instruments requires the SDK's lock, which a collecting thread
        # holds.
        self._creation_lock = threading.Lock()
        self._lock = threading.Lock()
        self._creator: threading.Thread | None = None
        self._known: set[tuple[str, str]] = set()
        self._observations: dict[tuple[str, str], list[Observation]] = {}
        self._read_ms: int | None = None
        # Observed at each export, even if there are no other instruments.
        self._meter.create_observable_up_down_counter(_DISCOVERY_INSTRUMENT, [self._discover])
        self._create_instruments()

    def __enter__(self) -> OpenTelemetryMetrics:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop exporting. Can be called several times.

        OpenTelemetry cannot remove instruments, so they remain without values. The reference to the
        application is dropped.

        Example:
            >>> OpenTelemetryMetrics(lambda: Metrics([])).close()
        """
        with self._lock:
            self._metrics = None
            self._observations = {}

    def _create_instruments(self) -> None:
        """Create instruments for new names."""
        with self._creation_lock:
            for group, name in sorted(self._snapshot().keys() - self._known):
                self._known.add((group, name))
                observe = [partial(self._observe, (group, name))]
                if is_counter(name):
                    self._meter.create_observable_counter(_name(group, name), observe)
                else:
                    self._meter.create_observable_gauge(_name(group, name), observe)

    def _discover(self, _: CallbackOptions) -> Iterable[Observation]:
        """Return no values, but start the creation of instruments for new names."""
        current = self._snapshot()
        with self._lock:
            is_creating = self._creator is not None and self._creator.is_alive()
            if not is_creating and not self._known.issuperset(current):
                self._creator = threading.Thread(
                    target=self._create_instruments, name="millstream-instruments", daemon=True
                )
                self._creator.start()
        return ()

    def _observe(self, key: tuple[str, str], _: CallbackOptions) -> Iterable[Observation]:
        return self._snapshot().get(key, ())

    def _snapshot(self) -> dict[tuple[str, str], list[Observation]]:
        """Return all values. Those of one export were read at the same time."""
        with self._lock:
            if self._metrics is None:
                return {}
            now_ms = self._clock.monotonic_ms()
            if self._read_ms is not None and now_ms - self._read_ms < _SNAPSHOT_MS:
                return self._observations
            self._read_ms, self._observations = now_ms, {}
            for metric in self._metrics():
                value = metric.value
                if isinstance(value, str) or value != value:
                    continue
                observation = Observation(value, dict(metric.labels))
                self._observations.setdefault((metric.group, metric.name), []).append(observation)
            return self._observations


def _name(group: str, name: str) -> str:
    return f"decaton.{name}" if group == "subscription-metrics" else f"{group}.{name}"
