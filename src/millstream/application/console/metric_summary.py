"""Aggregated metrics of an application for the console."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from millstream.dataframes.progress import DATAFRAME_GROUP
from millstream.metrics.values import NODE_GROUP, OWN_GROUP, Metric
from millstream.runtime.loop.thread_meters import CONSUMER_GROUP, THREAD_GROUP
from millstream.runtime.task.task_meters import TASK_GROUP, TOPIC_GROUP
from millstream.state.storage.rocksdb_statistics import STORE_GROUP
from millstream.state.store_metrics import CACHE_GROUP

#: The time window over which rates are computed.
_WINDOW_MS: Final = 5_000
_MAX_TOTALS: Final = 16


@dataclass(frozen=True, slots=True)
class DataFrameSummary:
    """The metrics of a DataFrame function's query.

    Args:
        state: for example `running`, or `standby` while another instance runs the query.
        batch: the number of the last completed batch.
        lag: unprocessed records in the input topic at the end of the last batch.
    """

    state: str | None = None
    rows_total: int = 0
    batch: int | None = None
    batch_ms: int | None = None
    batch_rows_per_s: float | None = None
    lag: int | None = None
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """Aggregated metrics by node, topic and store.

    Metrics that were not reported are missing.

    Args:
        read: records read, by topic and source node.
        written: records written, by sink node and topic.
        through: records processed by a node.
        lag: unprocessed records in a topic.
        entries: the estimated number of entries of a store, without standbys.
        memory_bytes: the size of a store's memtables.
        cache_hits: the hit ratio of a store's record cache.
        rebuilt: how often the state of a task was deleted and rebuilt.
        dead_letters: dead letters by node, kind of exception handler, and dead-letter topic.
    """

    read: Mapping[tuple[str, str], float] = field(default_factory=dict)
    written: Mapping[tuple[str, str], float] = field(default_factory=dict)
    through: Mapping[str, float] = field(default_factory=dict)
    lag: Mapping[str, float] = field(default_factory=dict)
    entries: Mapping[str, float] = field(default_factory=dict)
    disk_bytes: Mapping[str, float] = field(default_factory=dict)
    memory_bytes: Mapping[str, float] = field(default_factory=dict)
    cache_hits: Mapping[str, float] = field(default_factory=dict)
    dropped: float = 0
    processed: float = 0
    commits: float = 0
    rebuilt: float = 0
    dead_letters: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    dataframes: Mapping[str, DataFrameSummary] = field(default_factory=dict)


#: The groups of each metric. They are checked because custom metrics may have the same names.
_GROUPS: Final[Mapping[str, frozenset[str]]] = {
    "records-consumed-total": frozenset({TOPIC_GROUP}),
    "records-produced-total": frozenset({TOPIC_GROUP}),
    "process-total": frozenset({THREAD_GROUP, NODE_GROUP}),
    "commit-total": frozenset({THREAD_GROUP}),
    "state-rebuilt-total": frozenset({OWN_GROUP}),
    "dead-letters-total": frozenset({OWN_GROUP}),
    "records-lag": frozenset({CONSUMER_GROUP}),
    "dropped-records-total": frozenset({TASK_GROUP}),
    "estimate-num-keys": frozenset({STORE_GROUP}),
    "num-keys": frozenset({STORE_GROUP}),
    "total-sst-files-size": frozenset({STORE_GROUP}),
    "size-all-mem-tables": frozenset({STORE_GROUP}),
    "hit-ratio-avg": frozenset({CACHE_GROUP}),
}
#: The suffix of the label with the store's name; the prefix is the kind of store.
_STORE_LABEL: Final = "-state-id"
#: Custom metrics have this label; metrics of the driver do not.
_THREAD_LABEL: Final = "thread-id"


def summarize(
    values: Iterable[Metric], copies: Collection[tuple[str, str]] = frozenset()
) -> MetricSummary:
    """Aggregate the metrics of an application.

    The metrics have the names of Kafka Streams (KIP-444, KIP-607, KIP-846). `copies` contains the
    standby tasks, as pairs of thread and task id; the entries of their stores are not counted.
    """
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    pairs: dict[str, dict[tuple[str, str], float]] = defaultdict(lambda: defaultdict(float))
    letters: dict[tuple[str, str, str], float] = defaultdict(float)
    hits: dict[str, list[float]] = defaultdict(list)
    stages: dict[str, dict[str, float | str]] = defaultdict(dict)
    for metric in values:
        value, labels = metric.value, metric.labels
        if metric.group == DATAFRAME_GROUP and _THREAD_LABEL not in labels:
            stages[labels["dataframe-id"]][metric.name] = value
            continue
        if (
            metric.group not in _GROUPS.get(metric.name, ())
            or isinstance(value, str)
            or value != value
        ):
            continue
        node, topic = labels.get("processor-node-id", ""), labels.get("topic", "")
        match metric.name:
            case "records-consumed-total":
                pairs["read"][topic, node] += value
            case "records-produced-total":
                pairs["written"][node, topic] += value
            case "process-total" if metric.group == NODE_GROUP:
                sums["through"][node] += value
            case "process-total" | "commit-total" | "state-rebuilt-total":
                sums[metric.name][""] += value
            case "records-lag":
                sums["lag"][topic] += value
            case "dropped-records-total":
                sums["dropped"][""] += value
            case "dead-letters-total" if "exception-handler" in labels:
                letters[node, labels["exception-handler"], topic] += value
            case "estimate-num-keys" | "num-keys" if _holder(labels) not in copies:
                sums["entries"][_store(labels)] += value
            case "total-sst-files-size":
                sums["disk"][_store(labels)] += value
            case "size-all-mem-tables":
                sums["memory"][_store(labels)] += value
            case "hit-ratio-avg":
                hits[labels.get("record-cache-id", "")].append(value)
    return MetricSummary(
        read=dict(pairs["read"]),
        written=dict(pairs["written"]),
        through=dict(sums["through"]),
        lag=dict(sums["lag"]),
        entries=dict(sums["entries"]),
        disk_bytes=dict(sums["disk"]),
        memory_bytes=dict(sums["memory"]),
        cache_hits={name: sum(found) / len(found) for name, found in hits.items()},
        dropped=sums["dropped"][""],
        processed=sums["process-total"][""],
        commits=sums["commit-total"][""],
        rebuilt=sums["state-rebuilt-total"][""],
        dead_letters=dict(letters),
        dataframes={name: _dataframe(found) for name, found in stages.items()},
    )


def _dataframe(found: Mapping[str, float | str]) -> DataFrameSummary:
    batch, took_ms = int(found["batch-id"]), int(found["batch-duration-ms"])
    has_rows = took_ms > 0
    return DataFrameSummary(
        state=str(found["state"]),
        rows_total=int(found["rows-total"]),
        batch=batch if batch >= 0 else None,
        batch_ms=took_ms if has_rows else None,
        batch_rows_per_s=round(float(found["rows-rate"]), 1) if has_rows else None,
        lag=int(found["records-lag"]) if batch >= 0 else None,
        restarts=int(found["restarts-total"]),
    )


def _holder(labels: Mapping[str, str]) -> tuple[str, str]:
    return labels.get(_THREAD_LABEL, ""), labels.get("task-id", "")


def _store(labels: Mapping[str, str]) -> str:
    return next((value for name, value in labels.items() if name.endswith(_STORE_LABEL)), "")


class RateMeter:
    """Computes the rates per second of totals over the last 5 s. Times are monotonic."""

    def __init__(self) -> None:
        self._totals: dict[object, deque[tuple[int, float]]] = {}

    def rate(self, key: object, total: float, now_ms: int) -> float | None:
        """Return the rate of a total; None for the first value and after a reset."""
        totals = self._totals.setdefault(key, deque(maxlen=_MAX_TOTALS))
        # Start over after a reset, or if all values are older than the window.
        if totals and (total < totals[-1][1] or now_ms - totals[-1][0] > _WINDOW_MS):
            totals.clear()
        while len(totals) > 1 and now_ms - totals[0][0] > _WINDOW_MS:
            totals.popleft()
        if not totals or now_ms - totals[-1][0] >= _WINDOW_MS // _MAX_TOTALS:
            totals.append((now_ms, total))
        first_ms, first = totals[0]
        return None if now_ms <= first_ms else (total - first) * 1_000 / (now_ms - first_ms)
