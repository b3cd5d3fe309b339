"""The numbers beside the drawing, from an application's metrics."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from millstream.metrics.names import NODE_GROUP
from millstream.metrics.values import Metric
from millstream.runtime.loop.thread_meters import CONSUMER_GROUP, OWN_GROUP, THREAD_GROUP
from millstream.runtime.task.node_meters import TOPIC_GROUP
from millstream.runtime.task.task_meters import TASK_GROUP
from millstream.state.storage.rocksdb_statistics import STORE_GROUP
from millstream.state.store_meters import CACHE_GROUP
from millstream.structured.progress import DATAFRAME_GROUP

#: Over how long a rate is taken.
_WINDOW_MS: Final = 5_000
_MOST_TOTALS: Final = 16


@dataclass(frozen=True, slots=True)
class DataFrameNumbers:
    """How the query of a DataFrame function goes on.

    Args:
        state: for example `running`, or `standby` while another instance runs it; None before the
            start.
        rows_total: rows that this instance has read.
        batch: the number of the last batch that ended; None before there was one.
        batch_ms: how long the last batch took that had rows.
        batch_rows_per_s: how many rows a second that batch had.
        lag: records that waited in the input topic when the last batch ended.
        restarts: how often it was started again after an error.
    """

    state: str | None = None
    rows_total: int = 0
    batch: int | None = None
    batch_ms: int | None = None
    batch_rows_per_s: float | None = None
    lag: int | None = None
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Numbers:
    """What was counted, by the names that the drawing knows. What nobody counts is in none of them.

    Args:
        read: records read, by topic and source node.
        written: records written, by sink node and topic.
        through: records that came to a node.
        lag: records that wait in a topic.
        entries: how many entries a store has, about, its copies in other threads left out.
        disk_bytes: what a store takes on disk.
        memory_bytes: what its memtables take.
        cache_hits: of the lookups in a store's record cache, the share that found something.
        dropped: records left out on purpose.
        processed: records processed, by all threads.
        commits: made by all threads.
        rebuilt: how often the state of a task was wiped and rebuilt.
        dataframes: how DataFrame functions go on, by name.
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
    dataframes: Mapping[str, DataFrameNumbers] = field(default_factory=dict)


#: Where these names mean what they say: user code may give its own metrics any of them.
_GROUPS: Final[Mapping[str, frozenset[str]]] = {
    "records-consumed-total": frozenset({TOPIC_GROUP}),
    "records-produced-total": frozenset({TOPIC_GROUP}),
    "process-total": frozenset({THREAD_GROUP, NODE_GROUP}),
    "commit-total": frozenset({THREAD_GROUP}),
    "state-rebuilt-total": frozenset({OWN_GROUP}),
    "records-lag": frozenset({CONSUMER_GROUP}),
    "dropped-records-total": frozenset({TASK_GROUP}),
    "estimate-num-keys": frozenset({STORE_GROUP}),
    "num-keys": frozenset({STORE_GROUP}),
    "total-sst-files-size": frozenset({STORE_GROUP}),
    "size-all-mem-tables": frozenset({STORE_GROUP}),
    "hit-ratio-avg": frozenset({CACHE_GROUP}),
}
#: The label with a store's name ends so; what stands before it says how the store keeps its data.
_STORE_LABEL: Final = "-state-id"
#: What user code measures has it; what the driver measures has not.
_THREAD_LABEL: Final = "thread-id"


def numbers_of(
    values: Iterable[Metric], copies: Collection[tuple[str, str]] = frozenset()
) -> Numbers:
    """The numbers in an application's metrics (Kafka Streams' names, KIP-444, KIP-846, KIP-607).

    Args:
        values: as `KafkaStreams.metrics()` gives them.
        copies: the standby tasks, each with its thread: what they have is there twice.
    """
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    pairs: dict[str, dict[tuple[str, str], float]] = defaultdict(lambda: defaultdict(float))
    hits: dict[str, list[float]] = defaultdict(list)
    stages: dict[str, dict[str, float | str]] = defaultdict(dict)
    for one in values:
        value, labels = one.value, one.labels
        if one.group == DATAFRAME_GROUP and _THREAD_LABEL not in labels:
            stages[labels["dataframe-id"]][one.name] = value
            continue
        if one.group not in _GROUPS.get(one.name, ()) or isinstance(value, str) or value != value:
            continue
        node, topic = labels.get("processor-node-id", ""), labels.get("topic", "")
        match one.name:
            case "records-consumed-total":
                pairs["read"][topic, node] += value
            case "records-produced-total":
                pairs["written"][node, topic] += value
            case "process-total" if one.group == NODE_GROUP:
                sums["through"][node] += value
            case "process-total" | "commit-total" | "state-rebuilt-total":
                sums[one.name][""] += value
            case "records-lag":
                sums["lag"][topic] += value
            case "dropped-records-total":
                sums["dropped"][""] += value
            case "estimate-num-keys" | "num-keys" if _holder(labels) not in copies:
                sums["entries"][_store(labels)] += value
            case "total-sst-files-size":
                sums["disk"][_store(labels)] += value
            case "size-all-mem-tables":
                sums["memory"][_store(labels)] += value
            case "hit-ratio-avg":
                hits[labels.get("record-cache-id", "")].append(value)
    return Numbers(
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
        dataframes={name: _dataframe(found) for name, found in stages.items()},
    )


def _dataframe(found: Mapping[str, float | str]) -> DataFrameNumbers:
    batch, took_ms = int(found["batch-id"]), int(found["batch-duration-ms"])
    has_rows = took_ms > 0
    return DataFrameNumbers(
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


class Meter:
    """Rates per second of totals that are looked at now and then, over the last five seconds.

    Its times are those of a clock that never goes back.
    """

    def __init__(self) -> None:
        self._totals: dict[object, deque[tuple[int, float]]] = {}

    def rate(self, what: object, total: float, now_ms: int) -> float | None:
        """How fast this total grows; None if it was not looked at before, or counts anew."""
        totals = self._totals.setdefault(what, deque(maxlen=_MOST_TOTALS))
        # What was looked at long ago says nothing about now.
        if totals and (total < totals[-1][1] or now_ms - totals[-1][0] > _WINDOW_MS):
            totals.clear()
        while len(totals) > 1 and now_ms - totals[0][0] > _WINDOW_MS:
            totals.popleft()
        if not totals or now_ms - totals[-1][0] >= _WINDOW_MS // _MOST_TOTALS:
            totals.append((now_ms, total))
        first_ms, first = totals[0]
        return None if now_ms <= first_ms else (total - first) * 1_000 / (now_ms - first_ms)
