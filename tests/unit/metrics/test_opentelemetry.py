"""Metrics as collected by the OpenTelemetry SDK."""

from __future__ import annotations

import gc
import math
import threading
import weakref
from typing import Any

from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from support.waiting import wait_for

from millstream.export.opentelemetry_metrics import OpenTelemetryMetrics
from millstream.metrics.values import Metric, Metrics

THREAD = "stream-thread-metrics"


def exported_metrics(reader: InMemoryMetricReader) -> dict[str, Any]:
    data = reader.get_metrics_data()
    scopes = data.resource_metrics[0].scope_metrics if data is not None else []
    return {each.name: each.data for scope in scopes for each in scope.metrics}


def test_all_metrics_are_collected_including_later_ones() -> None:
    """Tasks are added after the start, and their metrics must be exported as well."""
    metrics = [
        Metric("process-total", {"thread-id": "1"}, 3.0, THREAD),
        Metric("process-total", {"thread-id": "2"}, 4.0, THREAD),
        Metric("process-rate", {"thread-id": "1"}, math.nan, THREAD),
        Metric("state", {"thread-id": "1"}, "RUNNING", THREAD),
    ]
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    OpenTelemetryMetrics(lambda: Metrics(metrics), provider)
    found = exported_metrics(reader)
    assert list(found) == [f"{THREAD}.process-total"]
    total = found[f"{THREAD}.process-total"]
    assert total.is_monotonic
    points = {point.attributes["thread-id"]: point.value for point in total.data_points}
    assert points == {"1": 3.0, "2": 4.0}
    metrics.append(Metric("tasks.pending", {"topic": "emails"}, 7.0, "subscription-metrics"))
    later = wait_for(
        lambda: exported_metrics(reader).get("decaton.tasks.pending"), 10, "it is exported"
    )
    assert [point.value for point in later.data_points] == [7.0]
    provider.shutdown()


def test_metrics_are_exported_if_there_were_none_at_the_start() -> None:
    """The export is set up before a subscription runs, when it has no metrics yet."""
    metrics: list[Metric] = []
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    OpenTelemetryMetrics(lambda: Metrics(metrics), provider)
    assert exported_metrics(reader) == {}
    metrics.append(Metric("tasks.processed", {"topic": "emails"}, 7.0, "subscription-metrics"))
    found = wait_for(
        lambda: exported_metrics(reader).get("decaton.tasks.processed"), 10, "it is exported"
    )
    assert [point.value for point in found.data_points] == [7.0]
    provider.shutdown()


class _SlowMeterProvider(MeterProvider):
    """An SDK that creates instruments only after `go_on` is set."""

    def __init__(self, reader: InMemoryMetricReader) -> None:
        super().__init__([reader])
        self.go_on = threading.Event()
        self.go_on.set()
        self.created: list[str] = []

    def get_meter(self, *args: Any, **arguments: Any) -> Meter:
        meter = super().get_meter(*args, **arguments)
        make = meter.create_observable_gauge

        def waiting(name: str, *args: Any, **arguments: Any) -> Any:
            self.go_on.wait(10)
            self.created.append(name)
            return make(name, *args, **arguments)

        meter.create_observable_gauge = waiting  # type: ignore[method-assign]
        return meter


def _is_creating() -> bool:
    return any(each.name == "millstream-instruments" for each in threading.enumerate())


def test_an_instrument_is_created_once() -> None:
    """Two instruments with the same name would export each value twice."""
    metrics = [Metric("state-a", {}, 1.0, THREAD)]
    reader = InMemoryMetricReader()
    provider = _SlowMeterProvider(reader)
    read = 0

    def measured() -> Metrics:
        nonlocal read
        read += 1
        return Metrics(metrics)

    OpenTelemetryMetrics(measured, provider)
    provider.go_on.clear()
    metrics.extend(Metric(f"state-{name}", {}, 2.0, THREAD) for name in "bcd")
    wait_for(lambda: exported_metrics(reader) and read > 4, 20, "metrics are read repeatedly")
    provider.go_on.set()
    names = [f"{THREAD}.state-{name}" for name in "abcd"]
    wait_for(lambda: len(provider.created) >= 4, 10, "all instruments are created")
    wait_for(lambda: not _is_creating(), 10, "no more instruments are being created")
    assert provider.created == names
    provider.shutdown()


def test_a_closed_export_neither_exports_nor_keeps_references() -> None:
    """The last values of an ended application are not exported forever."""

    class Application:
        def metrics(self) -> Metrics:
            return Metrics([Metric("process-rate", {}, 3.0, THREAD)])

    application = Application()
    reference = weakref.ref(application)
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    with OpenTelemetryMetrics(application.metrics, provider) as exporter:
        assert exported_metrics(reader)
    assert exported_metrics(reader) == {}
    exporter.close()
    del application
    gc.collect()
    assert reference() is None
    provider.shutdown()
