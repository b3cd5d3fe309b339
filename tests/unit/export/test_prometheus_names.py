"""What metrics are called in Prometheus, whoever asks first."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from millstream.export.prometheus_names import NamesGiven, prometheus_name
from millstream.metrics.values import Metric

THREADS = 4


@pytest.fixture(autouse=True)
def _threads_take_turns_all_the_time() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_a_metric_is_not_numbered_because_of_itself() -> None:
    """Hunts a first scrape that comes twice at a time: each would find the name taken by the other,
    and the series would go on under another name."""
    metrics = [Metric(f"name-{number}", {}, 1.0, "group") for number in range(2_000)]
    names, began = NamesGiven(), Barrier(THREADS)

    def ask(_: int) -> list[str]:
        began.wait(10)
        return [names.of(metric) for metric in metrics]

    with ThreadPoolExecutor(THREADS) as threads:
        found = list(threads.map(ask, range(THREADS)))
    assert found == [[prometheus_name(metric) for metric in metrics]] * THREADS
