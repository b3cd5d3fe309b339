"""A Prometheus exporter. Requires the extra `millstream[prometheus]`."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from itertools import count
from typing import TYPE_CHECKING, Final

from millstream.errors import ConfigError
from millstream.export.scrape_server import ScrapeServer
from millstream.metrics.values import Metric, Metrics, is_counter

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

with suppress(ImportError):
    from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

_INVALID: Final = re.compile(r"[^a-zA-Z0-9_]")
_TOTAL: Final = "_total"
#: The label that contains a string value.
TEXT_LABEL: Final = "value"
#: The content type of `prometheus_text`.
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
#: String metrics that are not useful as labels.
_EXCLUDED: Final = frozenset({"topology-description"})


def prometheus_name(metric: Metric) -> str:
    """Return the Prometheus name of a metric.

    Kafka Streams' metrics have the names that Prometheus' JMX exporter assigns with its usual
    rules, so existing dashboards work: `process-total` of `stream-thread-metrics` is
    `kafka_streams_stream_thread_metrics_process_total`. Decaton's metrics have the names that
    Micrometer assigns for Prometheus. String metrics are named `…_info`, with the value 1 and the
    string in the label `value`.
    """
    if metric.group == "subscription-metrics":
        return _INVALID.sub("_", f"decaton_{metric.name}")
    text = "_info" if isinstance(metric.value, str) else ""
    return _INVALID.sub("_", f"kafka_streams_{metric.group}_{metric.name}") + text


class PrometheusNames:
    """Assigns unique names, by appending a number if a name is already used.

    Otherwise, `a-b` and `a_b` would be samples of one series, and Prometheus would only use the
    first sample. Names are stable for the lifetime of this object. Thread-safe, for concurrent
    scrapes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: dict[tuple[str, str, bool], str] = {}
        self._taken: set[str] = set()

    def name_of(self, metric: Metric) -> str:
        key = (metric.group, metric.name, isinstance(metric.value, str))
        with self._lock:
            name = self._names.get(key)
            if name is None:
                wanted = prometheus_name(metric)
                # Names that differ only in the suffix "total" would be one family.
                family = wanted.removesuffix(_TOTAL)
                unique = _unique(family, self._taken)
                self._taken.add(unique)
                name = self._names[key] = unique + wanted[len(family) :]
            return name


def label_names(labels: Iterable[str], *, with_text: bool) -> dict[str, str]:
    """Return unique Prometheus names of labels; `with_text` reserves `TEXT_LABEL`."""
    taken = {TEXT_LABEL} if with_text else set()
    names = {}
    for label in sorted(labels):
        name = _INVALID.sub("_", label)
        if not name or name[0].isdigit():
            name = f"_{name}"
        # Names that start with two underscores are reserved by Prometheus.
        name = re.sub(r"\A__+", "_", name)
        names[label] = _unique(name, taken)
        taken.add(names[label])
    return names


def _unique(name: str, taken: set[str]) -> str:
    if name not in taken:
        return name
    return next(other for n in count(2) if (other := f"{name}_{n}") not in taken)


def prometheus_text(metrics: Metrics) -> str:
    """Return the metrics in Prometheus' text format.

    Args:
        metrics: the metrics, for example `streams.metrics()`.

    Raises:
        ConfigError: the extra `prometheus` is not installed.

    Example:
        >>> one = Metric("process-total", {"thread-id": "t"}, 3.0, "stream-thread-metrics")
        >>> metrics = Metrics([one])
        >>> print(prometheus_text(metrics).splitlines()[-1])
        kafka_streams_stream_thread_metrics_process_total{thread_id="t"} 3.0
    """
    _require_prometheus()
    return generate_latest(prometheus_registry(lambda: metrics)).decode()


def prometheus_registry(metrics: Callable[[], Metrics]) -> CollectorRegistry:
    """Return a `prometheus-client` registry that collects the metrics on each scrape.

    Args:
        metrics: returns the metrics, for example `streams.metrics`.

    Raises:
        ConfigError: the extra `prometheus` is not installed.

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
    """An HTTP server that returns the metrics in Prometheus' format on any path.

    It has neither authentication nor encryption: anyone who can connect can read the metrics.
    `metrics` is called on a server thread. Raises OSError if the port is in use.
    """

    def __init__(self, host: str, port: int, metrics: Callable[[], Metrics]) -> None:
        registry = prometheus_registry(metrics)
        self._server = ScrapeServer(host, port, make_wsgi_app(registry))
        #: The port that the server listens on.
        self.port: int = self._server.server_port

    def __enter__(self) -> PrometheusPort:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._server.close()


class _Collector:
    def __init__(self, metrics: Callable[[], Metrics]) -> None:
        self._metrics = metrics
        self._names = PrometheusNames()

    def describe(self) -> list[Family]:
        """Return no families, because metrics are added and removed with tasks."""
        return []

    def collect(self) -> Iterator[Family]:
        families: dict[str, list[Metric]] = {}
        for metric in self._metrics():
            if metric.name not in _EXCLUDED:
                families.setdefault(self._names.name_of(metric), []).append(metric)
        for name, metrics in families.items():
            yield _family(name, metrics)


def _family(name: str, metrics: list[Metric]) -> Family:
    is_text = any(isinstance(metric.value, str) for metric in metrics)
    labels = label_names({each for metric in metrics for each in metric.labels}, with_text=is_text)
    description = f"{metrics[0].name} of {metrics[0].group}"
    names = [*labels.values(), *([TEXT_LABEL] if is_text else [])]
    family: CounterMetricFamily | GaugeMetricFamily
    if is_counter(metrics[0].name):
        family = CounterMetricFamily(name.removesuffix("_total"), description, labels=names)
    else:
        family = GaugeMetricFamily(name, description, labels=names)
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
            "Prometheus metrics require an extra: run pip install 'millstream[prometheus]'."
        )
