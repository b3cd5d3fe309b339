"""Metrics as Prometheus reads them; needs the extra `millstream[prometheus]`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from millstream.errors import ConfigError
from millstream.export.kinds import is_counter
from millstream.export.prometheus_names import TEXT_LABEL, NamesGiven, label_names
from millstream.export.scrape_server import ScrapeServer
from millstream.metrics.values import Metric, Metrics

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

with suppress(ImportError):
    from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

#: The content type of `prometheus_text`.
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

#: Texts that say nothing as a label.
_LEFT_OUT: Final = frozenset({"topology-description"})


def prometheus_text(metrics: Metrics) -> str:
    """The text that a scrape gets.

    Args:
        metrics: what to tell, for example `streams.metrics()`.

    Raises:
        ConfigError: the extra is not installed.

    Example:
        >>> one = Metric("process-total", {"thread-id": "t"}, 3.0, "stream-thread-metrics")
        >>> metrics = Metrics([one])
        >>> print(prometheus_text(metrics).splitlines()[-1])
        kafka_streams_stream_thread_metrics_process_total{thread_id="t"} 3.0
    """
    _require_prometheus()
    return generate_latest(prometheus_registry(lambda: metrics)).decode()


def prometheus_registry(metrics: Callable[[], Metrics]) -> CollectorRegistry:
    """A registry of `prometheus-client` that asks at each scrape, for an exporter of your own.

    Args:
        metrics: gives them, for example `streams.metrics`.

    Raises:
        ConfigError: the extra is not installed.

    Example:
        >>> one = Metric("put-rate", {}, 2.0, "stream-state-metrics")
        >>> registry = prometheus_registry(lambda: Metrics([one]))
        >>> registry.get_sample_value("kafka_streams_stream_state_metrics_put_rate")
        2.0
    """
    _require_prometheus()
    registry = CollectorRegistry()
    registry.register(_Collector(metrics))
    return registry


class PrometheusPort:
    """A port where Prometheus reads metrics, at any path. Without a password and unencrypted: who
    may connect may read.

    Args:
        host: the address to listen at.
        port: the port; 0 for any free one.
        metrics: gives what is told, on a thread of its own.

    Raises:
        ConfigError: the extra is not installed.
        OSError: the port is taken.

    Example:
        >>> with PrometheusPort("127.0.0.1", 0, lambda: Metrics([])) as prometheus:
        ...     prometheus.port > 0
        True
    """

    def __init__(self, host: str, port: int, metrics: Callable[[], Metrics]) -> None:
        registry = prometheus_registry(metrics)
        self._server = ScrapeServer(host, port, make_wsgi_app(registry))
        #: The port that it listens at.
        self.port: int = self._server.server_port

    def __enter__(self) -> PrometheusPort:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Listen no more. Does nothing the second time.

        Example:
            >>> PrometheusPort("127.0.0.1", 0, lambda: Metrics([])).close()
        """
        self._server.close()


class _Collector:
    """Asks for the metrics at each scrape."""

    def __init__(self, metrics: Callable[[], Metrics]) -> None:
        self._metrics = metrics
        self._names = NamesGiven()

    def describe(self) -> list[Family]:
        """Which there will be nobody knows: they come and go with tasks."""
        return []

    def collect(self) -> Iterator[Family]:
        """All of them, by name."""
        families: dict[str, list[Metric]] = {}
        for metric in self._metrics():
            if metric.name not in _LEFT_OUT:
                families.setdefault(self._names.of(metric), []).append(metric)
        for name, metrics in families.items():
            yield _family(name, metrics)


def _family(name: str, metrics: list[Metric]) -> Family:
    is_text = any(isinstance(metric.value, str) for metric in metrics)
    labels = label_names({each for metric in metrics for each in metric.labels}, with_text=is_text)
    described = f"{metrics[0].name} of {metrics[0].group}"
    names = [*labels.values(), *([TEXT_LABEL] if is_text else [])]
    family: CounterMetricFamily | GaugeMetricFamily
    if is_counter(metrics[0].name):
        family = CounterMetricFamily(name.removesuffix("_total"), described, labels=names)
    else:
        family = GaugeMetricFamily(name, described, labels=names)
    for metric in metrics:
        at = [metric.labels.get(label, "") for label in labels]
        if isinstance(metric.value, str):
            family.add_metric([*at, metric.value], 1.0)
        else:
            family.add_metric(at, metric.value)
    return family


def _require_prometheus() -> None:
    if find_spec("prometheus_client") is None:
        raise ConfigError(
            "Metrics for Prometheus need the extra: pip install 'millstream[prometheus]'."
        )
