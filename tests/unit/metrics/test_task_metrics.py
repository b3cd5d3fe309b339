"""The metrics of a task and its nodes, topics and stores, driven by records."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from millstream import (
    BufferConfig,
    EmitStrategy,
    KeyValueStore,
    LogAndContinueExceptionHandler,
    Materialized,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindows,
    Topology,
)
from millstream.serdes import BYTES, LONG, STRING
from millstream.testing import TopologyTestDriver

NODE, TOPIC, STATE = (
    "stream-processor-node-metrics",
    "stream-topic-metrics",
    "stream-state-metrics",
)


class DrivenTopology:
    """A topology in the test driver, with access to its metrics."""

    def __init__(
        self,
        topology: Topology,
        level: str = "DEBUG",
        *,
        now_ms: int = 1_000_000,
        **settings: object,
    ) -> None:
        config = StreamsConfig(
            application_id="metrics",
            bootstrap_servers="not-used:9092",
            metrics_recording_level=level,
        ).replace(**settings)
        self.driver = TopologyTestDriver(topology, config, initial_wall_clock_ms=now_ms)

    def pipe(self, *records: tuple[str | None, str, int]) -> None:
        topic = self.driver.create_input_topic("in", key=STRING, value=STRING)
        for key, value, timestamp in records:
            topic.pipe_input(key, value, timestamp)

    def of(self, name: str, group: str = "stream-task-metrics", **labels: str) -> float:
        required_tags = {label.replace("_", "-"): value for label, value in labels.items()}.items()
        (value,) = (
            value
            for metric, value in self.driver.metrics().items()
            if (metric.name, metric.group) == (name, group)
            and required_tags <= dict(metric.tags).items()
        )
        return value


class StoringProcessor(Processor[str, str, str, str]):
    """Puts, gets, and schedules a punctuator."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        self.kept_store: KeyValueStore[str, str] = context.get_state_store("kept")
        context.schedule(timedelta(seconds=1), PunctuationType.WALL_CLOCK_TIME, lambda _: None)
        self.odd = context.metrics.add_rate_total_sensor("check", "values", "odd")

    def process(self, record: Record[str, str]) -> None:
        self.kept_store.put(record.key, record.value)
        self.kept_store.get(record.key)
        self.kept_store.get("missing")
        self.odd.record()
        self.context.forward(record)


@pytest.fixture(params=["in memory", "on disk"])
def kept_store(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[str, DrivenTopology]]:
    in_memory = request.param == "in memory"
    supplier = Stores.in_memory_key_value if in_memory else Stores.persistent_key_value
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_builder(supplier("kept"), STRING, STRING))
    stream = builder.stream("in", key=STRING, value=STRING, name="read")
    stream.process(StoringProcessor, stores=["kept"]).to(
        "out", key=STRING, value=STRING, name="write"
    )
    driven = DrivenTopology(builder.build())
    with driven.driver:
        yield ("in-memory" if in_memory else "rocksdb"), driven


def test_records_calls_and_stores_are_counted(kept_store: tuple[str, DrivenTopology]) -> None:
    kind, driven = kept_store
    driven.pipe(("a", "one", 5_000), ("b", "four", 9_000), ("a", "three", 7_000))
    assert driven.of("record-lateness-max") == 2_000
    assert driven.of("record-lateness-avg") == pytest.approx(2_000 / 3)
    assert driven.of("process-total", NODE, processor_node_id="read") == 3
    of_read = {"processor_node_id": "read", "topic": "in"}
    assert driven.of("records-consumed-total", TOPIC, **of_read) == 3
    assert driven.of("bytes-consumed-total", TOPIC, **of_read) == 3 + len("onefourthree")
    of_write = {"processor_node_id": "write", "topic": "out"}
    assert driven.of("records-produced-total", TOPIC, **of_write) == 3
    assert driven.of("bytes-produced-total", TOPIC, **of_write) == 3 + len("onefourthree")
    store = {f"{kind}_state_id": "kept"}
    assert driven.of("put-rate", STATE, **store) == pytest.approx(3 / 30)
    assert driven.of("get-rate", STATE, **store) == pytest.approx(6 / 30)
    assert driven.of("put-latency-avg", STATE, **store) > 0
    assert driven.of("commit-rate", STATE, **store) >= 3 / 30
    assert driven.of("restore-latency-max", STATE, **store) > 0
    assert driven.of("odd-total", "stream-check-metrics", check_id="values") == 3
    if kind == "in-memory":
        assert driven.of("num-keys", STATE, **store) == 2
    else:
        assert driven.of("estimate-num-keys", STATE, **store) >= 2
        assert driven.of("bytes-written-total", STATE, **store) > 0
    driven.driver.advance_wall_clock_time(timedelta(seconds=1))
    driven.driver.advance_wall_clock_time(timedelta(seconds=1))
    assert driven.of("punctuate-total") == 2


def test_ages_are_wall_clock_time_minus_timestamp() -> None:
    """The clock of the driver does not advance, so ages are exact."""
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING, name="read").to("out", name="write")
    driven = DrivenTopology(
        builder.build(), "INFO", default_key_serde=STRING, default_value_serde=STRING
    )
    with driven.driver as driver:
        topic = driver.create_input_topic("in", key=STRING, value=STRING)
        for age_ms in (100, 500, 300):
            topic.pipe_input("k", "v", 1_000_000 - age_ms)
        for node in ("read", "write"):
            of = {"processor_node_id": node}
            assert driven.of("record-e2e-latency-min", NODE, **of) == 100
            assert driven.of("record-e2e-latency-max", NODE, **of) == 500
            assert driven.of("record-e2e-latency-avg", NODE, **of) == 300


def test_only_dropped_records_are_counted() -> None:
    builder = StreamsBuilder()
    numbers = builder.stream("in", key=STRING, value=LONG)
    numbers.group_by_key().count(store=Materialized("counts", kind="in_memory"))
    driven = DrivenTopology(
        builder.build(),
        "INFO",
        deserialization_exception_handler=LogAndContinueExceptionHandler(),
    )
    with driven.driver as driver:
        assert driven.of("dropped-records-total") == 0
        raw = driver.create_input_topic("in", key=STRING, value=BYTES)
        for key, value in (("a", bytes(8)), ("a", b"odd"), (None, bytes(8))):
            raw.pipe_input(key, value)
        assert driven.of("dropped-records-total") == 2
        assert driven.of("dropped-records-rate") == pytest.approx(2 / 30)
        assert driven.of("process-total") == 0, "the driver has no processing loop"


def test_final_results_are_counted_when_they_are_emitted() -> None:
    builder = StreamsBuilder()
    windows = TimeWindows(timedelta(seconds=10))
    grouped = builder.stream("in", key=STRING, value=STRING).group_by_key()
    at_close = grouped.windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    at_close.count(name="closes", store="closed")
    counts = grouped.windowed_by(windows).count(store="counts")
    counts.suppress(Suppressed.until_window_closes(BufferConfig.unbounded(), "held"))
    driven = DrivenTopology(builder.build())
    with driven.driver:
        driven.pipe(("a", "v", 1_000), ("b", "v", 2_000))
        assert driven.of("suppression-emit-total", NODE, processor_node_id="held") == 0
        store = {"in_memory_suppression_state_id": "held-store"}
        assert driven.of("suppression-buffer-count-max", STATE, **store) == 2
        assert driven.of("suppression-buffer-size-max", STATE, **store) > 20
        driven.pipe(("a", "v", 11_000))
        assert driven.of("suppression-emit-total", NODE, processor_node_id="held") == 2
        of = {"processor_node_id": "closes"}
        assert driven.of("window-aggregate-final-emit-total", NODE, **of) == 2
        assert not math.isnan(driven.of("window-aggregate-final-emit-latency-max", NODE, **of))


def test_cache_hits_are_counted() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=STRING, value=STRING)
    stream.group_by_key().count(store=Materialized("counts", kind="in_memory"))
    driven = DrivenTopology(builder.build(), statestore_cache_max_bytes=1 << 20)
    with driven.driver:
        driven.pipe(*(("a", "v", 0) for _ in range(10)))
        of = {"record_cache_id": "counts"}
        cache = "stream-record-cache-metrics"
        assert (
            0 <= driven.of("hit-ratio-min", cache, **of) < driven.of("hit-ratio-max", cache, **of)
        )
        assert driven.of("hit-ratio-max", cache, **of) > 0.8
        assert driven.of("cache-size-bytes-total") > 0
