"""Names of metrics in Prometheus, independent of the order of requests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from millstream.export.prometheus import PrometheusNames, prometheus_name
from millstream.metrics.values import Metric

THREADS = 4


@pytest.fixture(autouse=True)
def _frequent_thread_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_concurrent_scrapes_do_not_number_a_metric() -> None:
    """Detects two concurrent first scrapes that each find the name in use by the other, so that the
    series continues under another name."""
    metrics = [Metric(f"name-{number}", {}, 1.0, "group") for number in range(2_000)]
    names, began = PrometheusNames(), Barrier(THREADS)

    def get_names(_: int) -> list[str]:
        began.wait(10)
        return [names.name_of(metric) for metric in metrics]

    with ThreadPoolExecutor(THREADS) as threads:
        found = list(threads.map(get_names, range(THREADS)))
    assert found == [[prometheus_name(metric) for metric in metrics]] * THREADS
