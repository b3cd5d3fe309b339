"""Writes the tables of docs/operations/metrics.md, which list the metrics of Kafka Streams.

The metrics of Millstream are collected from the meters of a thread and from a running topology.

    python docs/generators/generate_metrics.py            # rewrite the page
    python docs/generators/generate_metrics.py --check    # exit code 1 if it is out of date

Each table is between `<!-- table: NAME -->` and `<!-- end -->`; the other text is not generated.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from generated import write_or_check

from millstream import (
    BufferConfig,
    EmitStrategy,
    KeyValueStore,
    Processor,
    ProcessorContext,
    Record,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindows,
    Topology,
)
from millstream.application.client_metrics import ClientMetrics
from millstream.clock import ManualClock
from millstream.metrics.registry import MetricKey, RecordingLevel, RecordingSettings
from millstream.record import TaskId
from millstream.runtime.loop.thread_meters import ThreadMeters
from millstream.runtime.states.client_states import ClientStateTracker
from millstream.runtime.task.task_meters import TaskMeters
from millstream.runtime.task_management.restore_reports import RestoreMeters
from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operations" / "metrics.md"
#: Recorded from Kafka Streams by tests/java/RecordMetrics.java.
LIST = ROOT / "tests" / "unit" / "metrics" / "kafka_streams_4_3_1.jsonl"

_ITERATORS = "only the opening of iterators is measured: `all`, `range`, `fetch`, `prefix-scan`"
_END_TO_END = "recorded at source and terminal nodes only"
_NO_MINIMUM = "RocksDB's Python binding returns sums and counts, but no minimum or maximum"
#: The metrics that Millstream does not have, with the reasons.
UNAVAILABLE = {
    ("stream-metrics", "commit-id"): "a Python package has a version, but no commit ID",
    ("stream-thread-metrics", "blocked-time-ns-total"): "librdkafka waits on its own threads; "
    "`poll-ratio` and `commit-ratio` show how long the loop waits",
    ("stream-state-updater-metrics", "checkpoint-ratio"): "offsets are written by each commit",
    ("stream-task-metrics", "enforced-processing-rate"): "tasks do not record why they "
    "continue without records of a partition",
    ("stream-task-metrics", "enforced-processing-total"): "see `enforced-processing-rate`",
    ("stream-processor-node-metrics", "idempotent-update-skip-rate"): "Kafka Streams has not "
    "skipped updates since 2.8 (KAFKA-12508)",
    (
        "stream-processor-node-metrics",
        "idempotent-update-skip-total",
    ): "see `idempotent-update-skip-rate`",
    ("stream-state-metrics", "flush-rate"): "stores are written at commits: see `commit-rate`",
    ("stream-state-metrics", "flush-latency-avg"): "see `flush-rate`",
    ("stream-state-metrics", "flush-latency-max"): "see `flush-rate`",
    ("stream-state-metrics", "num-open-iterators"): _ITERATORS,
    ("stream-state-metrics", "iterator-duration-avg"): _ITERATORS,
    ("stream-state-metrics", "iterator-duration-max"): _ITERATORS,
    ("stream-state-metrics", "oldest-iterator-open-since-ms"): _ITERATORS,
    ("stream-state-metrics", "record-e2e-latency-avg"): _END_TO_END,
    ("stream-state-metrics", "record-e2e-latency-min"): _END_TO_END,
    ("stream-state-metrics", "record-e2e-latency-max"): _END_TO_END,
    ("stream-state-metrics", "memtable-flush-time-min"): _NO_MINIMUM,
    ("stream-state-metrics", "memtable-flush-time-max"): _NO_MINIMUM,
    ("stream-state-metrics", "compaction-time-min"): _NO_MINIMUM,
    ("stream-state-metrics", "compaction-time-max"): _NO_MINIMUM,
    (
        "stream-state-metrics",
        "number-open-files",
    ): "always -1 in Kafka Streams, because RocksDB does not count open files",
}


class KafkaStreamsMetric(NamedTuple):
    """A metric of Kafka Streams.

    Attributes:
        level: the lowest recording level that includes the metric.
        labels: the names of the labels, separated by commas.
    """

    group: str
    name: str
    level: str
    labels: str
    description: str


def kafka_streams() -> list[KafkaStreamsMetric]:
    """Return all metrics of Kafka Streams."""
    return [KafkaStreamsMetric(**json.loads(line)) for line in LIST.read_text().splitlines()]


def available() -> dict[tuple[str, str], RecordingLevel]:
    """Return the recording level of each metric of Millstream, by group and name."""
    found: dict[tuple[str, str], RecordingLevel] = {}
    for level in RecordingLevel:
        for group, name in _names_at(level):
            found.setdefault((group, name), level)
    return found


def _names_at(level: RecordingLevel) -> Iterator[tuple[str, str]]:
    clock, recording = ManualClock(), RecordingSettings(level)
    thread = ThreadMeters("thread", clock, recording)
    RestoreMeters(
        thread.scope, thread.rounds, thread.restoring, thread.task, lambda: False, lambda _: None
    )
    task = TaskMeters(TaskId(0, 0), clock, recording, thread=thread.task_sensors)
    keys: list[MetricKey] = [*thread.scope.all_keys(), *task.scope.all_keys()]
    yield from ((key.group, key.name) for key in keys)
    topology = _topology_with_all_stores()
    config = StreamsConfig(
        application_id="metrics",
        bootstrap_servers="not-used:9092",
        metrics_recording_level=level.name,
    )
    client = ClientMetrics(
        topology, config, ClientStateTracker("metrics", clock), lambda: "client", dict, lambda: 0
    )
    yield from ((each.group, each.name) for each in client.all())
    with TopologyTestDriver(topology, config) as driver:
        driver.create_input_topic("in", key=STRING, value=STRING).pipe_input("k", "v", 0)
        yield from ((name.group, name.name) for name in driver.metrics())


class _StoreUser(Processor[str, str, str, str]):
    """A processor with stores of all kinds."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        self.store: KeyValueStore[str, str] = context.get_state_store("kept")

    def process(self, record: Record[str, str]) -> None:
        self.store.put(record.key, record.value)
        self.context.forward(record)


def _topology_with_all_stores() -> Topology:
    builder = StreamsBuilder()
    stores: list[Any] = [
        Stores.key_value_builder(Stores.in_memory_key_value("kept"), STRING, STRING),
        Stores.key_value_builder(Stores.persistent_key_value("disk"), STRING, STRING),
        Stores.window_builder(
            Stores.in_memory_window(
                "windows", retention=timedelta(hours=1), window_size=timedelta(minutes=1)
            ),
            STRING,
            STRING,
        ),
        Stores.session_builder(
            Stores.in_memory_session("sessions", retention=timedelta(hours=1)), STRING, STRING
        ),
    ]
    for store in stores:
        builder.add_state_store(store)
    stream = builder.stream("in", key=STRING, value=STRING)
    stream.process(_StoreUser, stores=[each.name for each in stores]).to(
        "out", key=STRING, value=STRING
    )
    windows = TimeWindows(timedelta(minutes=1))
    grouped = stream.group_by_key().windowed_by(windows)
    closed = grouped.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="closed")
    closed.to_stream(lambda key, _: key.key).to("closed", key=STRING, value=LONG)
    counts = stream.group_by_key().windowed_by(windows).count(store="counts")
    final = counts.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
    final.to_stream(lambda key, _: key.key).to("final", key=STRING, value=LONG)
    return builder.build()


def tables() -> dict[str, str]:
    """Return the tables of the page by group."""
    ours, known = available(), kafka_streams()
    result: dict[str, str] = {}
    for group in dict.fromkeys(each.group for each in known):
        rows = [each for each in known if each.group == group]
        result[group] = "\n".join(
            [
                "| Metric | Kafka Streams | Millstream | Meaning |",
                "|---|---|---|---|",
                *(_row(each, ours) for each in rows),
            ]
        )
    return result


def _row(each: KafkaStreamsMetric, ours: dict[tuple[str, str], RecordingLevel]) -> str:
    level = ours.get((each.group, each.name))
    here = level.name if level is not None else f"no: {UNAVAILABLE[each.group, each.name]}"
    return f"| `{each.name}` | {each.level} | {here} | {each.description.rstrip('.')} |"


def updated_page(text: str) -> str:
    """Return a page with all its tables updated."""
    for name, table in tables().items():
        pattern = re.compile(rf"(<!-- table: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
        assert pattern.search(text), f"{PAGE.name} has no markers for the table {name}"
        text = pattern.sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", text)  # type: ignore[misc]
    return text


if __name__ == "__main__":
    raise SystemExit(
        write_or_check(
            __doc__, [(PAGE, updated_page(PAGE.read_text(encoding="utf-8")))], sys.argv[1:]
        )
    )
