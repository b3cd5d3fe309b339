"""Metrics as the SDK of OpenTelemetry collects them."""

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

from millstream.export.opentelemetry import OpenTelemetryMetrics
from millstream.metrics.values import Metric, Metrics

THREAD = "stream-thread-metrics"


def collected(reader: InMemoryMetricReader) -> dict[str, Any]:
    data = reader.get_metrics_data()
    scopes = data.resource_metrics[0].scope_metrics if data is not None else []
    return {each.name: each.data for scope in scopes for each in scope.metrics}


def test_what_is_collected_is_what_there_is_also_what_comes_later() -> None:
    """Tasks come after the start; the export must not stop at what there was then."""
    metrics = [
        Metric("process-total", {"thread-id": "1"}, 3.0, THREAD),
        Metric("process-total", {"thread-id": "2"}, 4.0, THREAD),
        Metric("process-rate", {"thread-id": "1"}, math.nan, THREAD),
        Metric("state", {"thread-id": "1"}, "RUNNING", THREAD),
    ]
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    OpenTelemetryMetrics(lambda: Metrics(metrics), provider)
    found = collected(reader)
    assert list(found) == [f"{THREAD}.process-total"]
    total = found[f"{THREAD}.process-total"]
    assert total.is_monotonic
    points = {point.attributes["thread-id"]: point.value for point in total.data_points}
    assert points == {"1": 3.0, "2": 4.0}
    metrics.append(Metric("tasks.pending", {"topic": "emails"}, 7.0, "subscription-metrics"))
    later = wait_for(lambda: collected(reader).get("decaton.tasks.pending"), 10, "it is exported")
    assert [point.value for point in later.data_points] == [7.0]
    provider.shutdown()


def test_what_comes_first_is_exported_though_there_was_nothing_before() -> None:
    """A subscription has no metrics before it runs, which is when its export is set up."""
    metrics: list[Metric] = []
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    OpenTelemetryMetrics(lambda: Metrics(metrics), provider)
    assert collected(reader) == {}
    metrics.append(Metric("tasks.processed", {"topic": "emails"}, 7.0, "subscription-metrics"))
    found = wait_for(lambda: collected(reader).get("decaton.tasks.processed"), 10, "it is exported")
    assert [point.value for point in found.data_points] == [7.0]
    provider.shutdown()


class _SlowMeters(MeterProvider):
    """The SDK, in which making an instrument waits until it is told to go on."""

    def __init__(self, reader: InMemoryMetricReader) -> None:
        super().__init__([reader])
        self.go_on = threading.Event()
        self.go_on.set()
        self.made: list[str] = []

    def get_meter(self, *args: Any, **arguments: Any) -> Meter:
        meter = super().get_meter(*args, **arguments)
        make = meter.create_observable_gauge

        def waiting(name: str, *args: Any, **arguments: Any) -> Any:
            self.go_on.wait(10)
            self.made.append(name)
            return make(name, *args, **arguments)

        meter.create_observable_gauge = waiting  # type: ignore[method-assign]
        return meter


def _is_making() -> bool:
    return any(each.name == "millstream-instruments" for each in threading.enumerate())


def test_an_instrument_is_made_once_however_often_it_is_read_meanwhile() -> None:
    """Two of a name export each value twice."""
    metrics = [Metric("state-a", {}, 1.0, THREAD)]
    reader = InMemoryMetricReader()
    provider = _SlowMeters(reader)
    read = 0

    def measured() -> Metrics:
        nonlocal read
        read += 1
        return Metrics(metrics)

    OpenTelemetryMetrics(measured, provider)
    provider.go_on.clear()
    metrics.extend(Metric(f"state-{name}", {}, 2.0, THREAD) for name in "bcd")
    wait_for(lambda: collected(reader) and read > 4, 20, "it is read again and again")
    provider.go_on.set()
    names = [f"{THREAD}.state-{name}" for name in "abcd"]
    wait_for(lambda: len(provider.made) >= 4, 10, "all are made")
    wait_for(lambda: not _is_making(), 10, "nobody makes more")
    assert provider.made == names
    provider.shutdown()


def test_what_is_closed_tells_nothing_and_holds_nothing() -> None:
    """The application has ended: its last values are not exported for ever."""

    class Application:
        def metrics(self) -> Metrics:
            return Metrics([Metric("process-rate", {}, 3.0, THREAD)])

    application = Application()
    is_held = weakref.ref(application)
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    with OpenTelemetryMetrics(application.metrics, provider) as told:
        assert collected(reader)
    assert collected(reader) == {}
    told.close()
    del application
    gc.collect()
    assert is_held() is None
    provider.shutdown()
