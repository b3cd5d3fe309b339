"""What metrics and labels are called in Prometheus, each by a name of its own."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from itertools import count
from typing import Final

from millstream.metrics.values import Metric

_ODD: Final = re.compile(r"[^a-zA-Z0-9_]")
_TOTAL: Final = "_total"
#: The label that holds a text.
TEXT_LABEL: Final = "value"


def prometheus_name(metric: Metric) -> str:
    """What a metric is called there.

    Kafka Streams' are called as by the JMX exporter of Prometheus with its usual rules, so that
    dashboards fit: `process-total` of `stream-thread-metrics` is
    `kafka_streams_stream_thread_metrics_process_total`. Decaton's are called as by Micrometer.
    Texts are `…_info` with the text in the label `value`, and 1.

    Args:
        metric: which one.

    Example:
        >>> prometheus_name(Metric("process-total", {}, 3.0, "stream-thread-metrics"))
        'kafka_streams_stream_thread_metrics_process_total'
    """
    if metric.group == "subscription-metrics":
        return _ODD.sub("_", f"decaton_{metric.name}")
    text = "_info" if isinstance(metric.value, str) else ""
    return _ODD.sub("_", f"kafka_streams_{metric.group}_{metric.name}") + text


class NamesGiven:
    """Who has which name: of two metrics that come to the same one the later is numbered.

    `a-b` and `a_b` would be samples of one series, of which Prometheus takes the first. Names stay
    with whom they were given to, as long as this lives. Scrapes may ask at the same time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: dict[tuple[str, str, bool], str] = {}
        self._taken: set[str] = set()

    def of(self, metric: Metric) -> str:
        """What this one is called."""
        key = (metric.group, metric.name, isinstance(metric.value, str))
        with self._lock:
            name = self._names.get(key)
            if name is None:
                wanted = prometheus_name(metric)
                # A counter and what is called like it but for "total" are one family.
                family = wanted.removesuffix(_TOTAL)
                given = _not_taken(family, self._taken)
                self._taken.add(given)
                name = self._names[key] = given + wanted[len(family) :]
            return name


def label_names(labels: Iterable[str], *, with_text: bool) -> dict[str, str]:
    """What labels of one metric are called there, none as another one.

    Args:
        labels: as they are called here.
        with_text: whether there is a label with a text besides.
    """
    taken = {TEXT_LABEL} if with_text else set()
    names = {}
    for label in sorted(labels):
        name = _ODD.sub("_", label)
        if not name or name[0].isdigit():
            name = f"_{name}"
        # Two of them in front are for Prometheus' own.
        name = re.sub(r"\A__+", "_", name)
        names[label] = _not_taken(name, taken)
        taken.add(names[label])
    return names


def _not_taken(name: str, taken: set[str]) -> str:
    if name not in taken:
        return name
    return next(other for n in count(2) if (other := f"{name}_{n}") not in taken)
