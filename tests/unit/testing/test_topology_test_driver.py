"""The test driver: input, output, time, failures and closing."""

from __future__ import annotations

import asyncio
import re
import tempfile
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from millstream import (
    EmitStrategy,
    IllegalStateError,
    LogAndContinueExceptionHandler,
    Materialized,
    ProcessingError,
    SerializationError,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    TimeWindows,
    TopologyError,
    UnknownStateStoreError,
    ValueAndTimestamp,
)
from millstream.processor.handlers import CONTINUE
from millstream.serdes import BYTES, LONG, STRING
from millstream.testing import MetricName, TopologyTestDriver, stepping
from millstream.topology.physical.topology import Topology

TEXT: dict[str, Any] = {"key": STRING, "value": STRING}


def config(**settings: Any) -> StreamsConfig:
    return StreamsConfig(application_id="app", bootstrap_servers="not-used:9092", **settings)


NO_CACHE = config(statestore_cache_max_bytes=0)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("has_store", [False, True])
def test_call_that_never_ends_is_an_error(
    monkeypatch: pytest.MonkeyPatch, *, is_async: bool, has_store: bool
) -> None:
    """Instead of a test that hangs. Also if a commit waits for the call."""
    monkeypatch.setattr(stepping, "_STUCK_TIMEOUT_MS", 50)
    monkeypatch.setattr(stepping, "_DRAIN_TIMEOUT_MS", 10)
    end = threading.Event()

    def endless(value: Any) -> Any:
        end.wait(20)

    async def waits(value: Any) -> Any:
        await asyncio.Event().wait()

    builder = StreamsBuilder()
    words: Any = builder.stream("in", **TEXT)
    if has_store:
        words = words.group_by_key().count(store="counts").to_stream()
    words.map_async(waits if is_async else endless).to("out", key=STRING, value=LONG)
    with TopologyTestDriver(builder.build(), config()) as driver:
        topic = driver.create_input_topic("in", **TEXT)
        with pytest.raises(StreamsError, match=r"in flight in KSTREAM-MAPASYNC-\d+") as caught:
            topic.pipe_input("k", "v")
    end.set()
    assert (caught.value.topic, caught.value.offset) == ("in", 0)
    assert str(caught.value.node).startswith("KSTREAM-MAPASYNC-")
    assert "timeout=" in str(caught.value)


def copy_topology(*topics: str, **source: Any) -> Topology:
    builder = StreamsBuilder()
    builder.stream(list(topics) or "in", **TEXT, **source).to("out", **TEXT)
    return builder.build()


def count_topology(**options: Any) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("in", **TEXT).flat_map_values(str.split)
    counts = words.group_by(lambda key, word: word, key=STRING, value=STRING).count(**options)
    counts.to_stream().to("out", key=STRING, value=LONG)
    return builder.build()


def failing_topology() -> Topology:
    def fail(value: str) -> str:
        if value == "bad":
            raise ValueError(value)
        return value

    builder = StreamsBuilder()
    builder.stream("in", **TEXT).map_values(fail).to("out", **TEXT)
    return builder.build()


@pytest.fixture(autouse=True)
def _own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Separates the folders of this test from those of other drivers."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def temporary_folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("millstream-test-driver-*"))


def test_records_pass_through_every_subtopology() -> None:
    """A call returns when all processing is finished, also behind repartition topics."""
    with TopologyTestDriver(count_topology(store="counts"), config()) as driver:
        driver.create_input_topic("in", **TEXT).pipe_input("k", "a b a", 7)
        out = driver.create_output_topic("out", key=STRING, value=LONG)
        assert out.read_key_values() == [("a", 1), ("b", 1), ("a", 2)]
        assert driver.produced_topic_names() == {
            "app-counts-repartition",
            "app-counts-changelog",
            "out",
        }
        log = driver.create_output_topic("app-counts-changelog", key=STRING, value=LONG)
        assert [(r.key, r.value, r.timestamp) for r in log.read_records()] == [
            ("a", 1, 7),
            ("b", 1, 7),
            ("a", 2, 7),
        ]
        repartition = driver.create_output_topic("app-counts-repartition", **TEXT)
        assert repartition.read_values() == ["a", "b", "a"]


def test_topic_that_is_written_and_read_feeds_itself() -> None:
    builder = StreamsBuilder()
    words = builder.stream("words", **TEXT)
    words.map_values(lambda word: word[1:]).filter(lambda key, word: bool(word)).to("words", **TEXT)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("words", **TEXT).pipe_input("k", "abc")
        assert driver.create_output_topic("words", **TEXT).read_values() == ["bc", "c"]


def test_caches_are_flushed_after_every_record() -> None:
    """Updates are only merged within the results of one record."""
    builder = StreamsBuilder()
    letters = builder.stream("in", **TEXT).flat_map_values(list)
    letters.group_by_key(**TEXT).reduce(lambda a, b: a + b).to_stream().to("out", **TEXT)
    with TopologyTestDriver(builder.build(), config()) as driver:
        driver.create_input_topic("in", **TEXT).pipe_key_values([("k", "abc"), ("k", "d")])
        assert driver.create_output_topic("out", **TEXT).read_values() == ["abc", "abcd"]


def test_every_update_is_forwarded_without_a_cache() -> None:
    topology = count_topology()
    with TopologyTestDriver(topology, NO_CACHE) as driver:
        driver.create_input_topic("in", **TEXT).pipe_value("a a")
        out = driver.create_output_topic("out", key=STRING, value=LONG)
        assert out.read_values() == [1, 2]


def test_error_about_an_unknown_store_contains_the_names_of_all_stores() -> None:
    """With None as the result, the test would fail later, without a message about the name."""
    builder = StreamsBuilder()
    clicks = builder.stream("in", **TEXT)
    clicks.group_by_key().count(store="counts")
    builder.global_table("prices", **TEXT, store="prices")
    with (
        TopologyTestDriver(builder.build()) as driver,
        pytest.raises(
            UnknownStateStoreError,
            match=r"no store 'count'\. Its stores: counts, prices\. Did you mean 'counts'",
        ),
    ):
        driver.get_state_store("count")
    with (
        TopologyTestDriver(Topology().add_source("in", "in", **TEXT)) as driver,
        pytest.raises(UnknownStateStoreError, match=r"no store 'count'\. Its stores: none"),
    ):
        driver.get_state_store("count")


def test_stores_can_be_prepared_and_read() -> None:
    with TopologyTestDriver(count_topology(store="counts"), NO_CACHE) as driver:
        assert list(driver.get_all_state_stores()) == ["counts"]
        store = driver.get_state_store("counts")
        store.put("a", ValueAndTimestamp(41, 5))
        driver.create_input_topic("in", **TEXT).pipe_input("k", "a", 3)
        out = driver.create_output_topic("out", key=STRING, value=LONG)
        record = out.read_record()
        assert (record.value, record.timestamp) == (42, 5)
        assert driver.get_all_state_stores()["counts"].get("a") == (42, 5)


def test_deletions_by_a_test_are_logged_at_time_zero() -> None:
    """As in the driver of Kafka Streams: they belong to no record."""
    with TopologyTestDriver(count_topology(store="counts"), NO_CACHE) as d:
        d.create_input_topic("in", **TEXT).pipe_input("k", "a", 9)
        d.get_state_store("counts").delete("a")
        d.advance_wall_clock_time(timedelta(0))
        log = d.create_output_topic("app-counts-changelog", key=STRING, value=LONG)
        assert [(r.value, r.timestamp) for r in log.read_records()] == [(1, 9), (None, 0)]


# --- topics ------------------------------------------------------------------------------------


def test_unknown_topic_is_rejected_without_side_effects() -> None:
    with TopologyTestDriver(copy_topology("b", "a")) as driver:
        with pytest.raises(ValueError, match=r"does not read 'nope'\. It reads: a, b\."):
            driver.create_input_topic("nope", **TEXT).pipe_input("k", "v")
        driver.create_input_topic("a", **TEXT).pipe_input("k", "v")
        assert driver.create_output_topic("out", **TEXT).size == 1


def test_pattern_reads_all_matching_topics() -> None:
    """Each topic has its own offsets; other topics are rejected; matching output is read."""
    builder = StreamsBuilder()
    seen: list[Any] = []

    def topic(key: str, value: str, context: Any) -> str:
        seen.append((context.topic, context.offset))
        return "log-deep" if len(value) == 1 else "out"

    logs = builder.stream(re.compile("log-.*"), **TEXT)
    logs.map_values(lambda value: value + "!").to(topic, **TEXT)
    builder.stream("plain", **TEXT).map_values(lambda v: v[:1]).to(lambda *_: "log-x", **TEXT)
    with TopologyTestDriver(builder.build()) as driver:
        assert [part["sources"] for part in driver.topology_metadata()["subtopologies"]] == [
            ["plain"]
        ]
        for name in ("log-a", "log-b", "log-a"):
            driver.create_input_topic(name, **TEXT).pipe_input("k", "vv")
        driver.create_input_topic("plain", **TEXT).pipe_input("k", "ww")
        assert seen == [("log-a", 0), ("log-b", 0), ("log-a", 1), ("log-x", 0)]
        assert driver.create_output_topic("out", **TEXT).read_values() == ["vv!"] * 3 + ["w!"]
        assert driver.topology_metadata()["subtopologies"][0]["sources"] == [
            "log-a",
            "log-b",
            "log-x",
        ]
        with pytest.raises(ValueError, match=re.escape("It reads: plain, log-.* (pattern).")):
            driver.create_input_topic("lag-a", **TEXT).pipe_input("k", "v")


def test_topics_can_be_chosen_for_each_record() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", **TEXT)
    stream.to(lambda key, value, context: f"{context.topic}-{key}-{context.offset}", **TEXT)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", **TEXT).pipe_key_values([("a", "1"), ("b", "2")])
        assert driver.produced_topic_names() == {"in-a-0", "in-b-1"}


def test_input_topics_have_their_own_clocks() -> None:
    with TopologyTestDriver(copy_topology(), initial_wall_clock_ms=500) as driver:
        plain = driver.create_input_topic("in", **TEXT)
        stepping = driver.create_input_topic(
            "in", **TEXT, start_ms=1_000, auto_advance=timedelta(milliseconds=10)
        )
        driver.advance_wall_clock_time(timedelta(seconds=9))
        plain.pipe_value("plain")
        stepping.pipe_values(["one", "two"])
        stepping.pipe_input("k", "explicit", 7)
        stepping.pipe_value("three")
        stepping.advance_time(timedelta(seconds=1))
        stepping.pipe_value("later")
        stepping.pipe_key_values(
            [("k", "own"), ("k", "own")], start_ms=5, advance=timedelta(milliseconds=2)
        )
        stepping.pipe_values(["same", "same"], start_ms=3)
        stepping.pipe_value("last")
        out = driver.create_output_topic("out", **TEXT)
        assert [(r.value, r.timestamp) for r in out.read_records()] == [
            ("plain", 500),
            ("one", 1_000),
            ("two", 1_010),
            ("explicit", 7),
            ("three", 1_020),
            ("later", 2_030),
            ("own", 5),
            ("own", 7),
            ("same", 3),
            ("same", 3),
            ("last", 2_040),
        ]


def test_time_does_not_go_back() -> None:
    with TopologyTestDriver(copy_topology()) as driver:
        records = driver.create_input_topic("in", **TEXT)
        with pytest.raises(ValueError, match="forward"):
            records.advance_time(timedelta(seconds=-1))
        with pytest.raises(ValueError, match="forward"):
            driver.advance_wall_clock_time(timedelta(seconds=-1))
        with pytest.raises(ValueError, match="negative"):
            records.pipe_input("k", "v", -1)
        assert driver.produced_topic_names() == set()


def test_headers_are_forwarded() -> None:
    headers = [("h", b"1"), ("n", None)]
    with TopologyTestDriver(copy_topology()) as driver:
        records = driver.create_input_topic("in", **TEXT)
        records.pipe_input("k", "v", 1, headers)
        headers.clear()
        record = driver.create_output_topic("out", **TEXT).read_record()
        assert record.headers == (("h", b"1"), ("n", None))
        records.pipe_records([record])
        assert driver.create_output_topic("out", **TEXT).read_record() == record


def test_each_record_is_read_once_by_all_readers_together() -> None:
    with TopologyTestDriver(copy_topology()) as driver:
        driver.create_input_topic("in", **TEXT).pipe_key_values(
            [("a", "1"), ("b", "2"), ("a", "3"), ("b", None)]
        )
        one, two = (driver.create_output_topic("out", **TEXT) for _ in range(2))
        assert one.size == 4
        assert one.read_key_value() == ("a", "1")
        assert two.read_value() == "2"
        assert two.read_key_values_to_map() == {"a": "3", "b": None}
        assert one.is_empty
        with pytest.raises(LookupError, match="Every record of topic 'out' has been read"):
            one.read_record()
        never = driver.create_output_topic("never", **TEXT)
        assert (never.size, never.is_empty, never.read_records()) == (0, True, [])
        with pytest.raises(LookupError, match=r"'never'. Written topics: out\."):
            never.read_value()


def test_map_cannot_contain_a_record_without_a_key() -> None:
    with TopologyTestDriver(copy_topology()) as driver:
        driver.create_input_topic("in", **TEXT).pipe_value("v")
        with pytest.raises(IllegalStateError, match="no key"):
            driver.create_output_topic("out", **TEXT).read_key_values_to_map()


# --- failures ----------------------------------------------------------------------------------


def test_failure_is_raised_by_the_call_that_pipes_the_record() -> None:
    """With its origin. Later calls report the failure instead of continuing."""
    driver = TopologyTestDriver(failing_topology())
    records = driver.create_input_topic("in", **TEXT)
    records.pipe_input("k", "good")
    with pytest.raises(ProcessingError) as raised:
        records.pipe_input("k", "bad")
    assert (raised.value.topic, raised.value.offset) == ("in", 1)
    assert raised.value.task_id == (0, 0)
    assert isinstance(raised.value.__cause__, ValueError)
    later_calls: list[Callable[[], None]] = [
        lambda: records.pipe_input("k", "good"),
        lambda: driver.advance_wall_clock_time(timedelta(1)),
    ]
    for call in later_calls:
        with pytest.raises(IllegalStateError, match="topology has failed") as repeated:
            call()
        assert repeated.value.__cause__ is raised.value
    assert driver.create_output_topic("out", **TEXT).read_values() == ["good"]
    driver.close()


def test_failure_in_the_body_is_not_hidden_by_closing() -> None:
    before = temporary_folders()
    with (
        pytest.raises(ProcessingError),
        TopologyTestDriver(failing_topology(), config()) as driver,
    ):
        driver.create_input_topic("in", **TEXT).pipe_input("k", "bad")
    assert temporary_folders() == before


def test_other_exceptions_become_a_streams_error() -> None:
    """For example those of a partitioner, for which no handler is called."""

    def partition(topic: str, key: Any, value: Any, count: int) -> int:
        raise KeyError(value)

    builder = StreamsBuilder()
    builder.stream("in", **TEXT).to("out", **TEXT, partitioner=partition)
    driver = TopologyTestDriver(builder.build())
    with pytest.raises(StreamsError) as raised:
        driver.create_input_topic("in", **TEXT).pipe_input("k", "v")
    assert isinstance(raised.value.__cause__, KeyError)


def test_unreadable_records_fail_or_are_dropped() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=LONG).to("out", key=STRING, value=LONG)
    topology = builder.build()
    with TopologyTestDriver(topology) as driver:
        raw = driver.create_input_topic("in", key=BYTES, value=BYTES)
        with pytest.raises(SerializationError) as raised:
            raw.pipe_input(b"k", b"v")
        assert raised.value.node == "KSTREAM-SOURCE-0000000000"
    handler = config(deserialization_exception_handler=LogAndContinueExceptionHandler())
    with TopologyTestDriver(topology, handler) as driver:
        raw = driver.create_input_topic("in", key=BYTES, value=BYTES)
        raw.pipe_input(b"k", b"v")
        raw.pipe_input(b"k", bytes(8))
        assert driver.create_output_topic("out", key=STRING, value=LONG).read_values() == [0]
        assert dropped(driver) == 1


def dropped(driver: TopologyTestDriver) -> float:
    (name,) = (name for name in driver.metrics() if name.name == "dropped-records-total")
    assert name == MetricName("dropped-records-total", "stream-task-metrics", (("task-id", "0_0"),))
    return driver.metrics()[name]


def test_dropped_records_are_counted() -> None:
    handler = config(processing_exception_handler=lambda *_: CONTINUE)
    with TopologyTestDriver(failing_topology(), handler) as driver:
        assert dropped(driver) == 0
        records = driver.create_input_topic("in", **TEXT)
        records.pipe_key_values([("k", "bad"), ("k", "good"), ("k", "bad")])
        assert dropped(driver) == 2


# --- time --------------------------------------------------------------------------------------


def test_max_task_idle_waits_until_the_clock_is_advanced() -> None:
    builder = StreamsBuilder()
    builder.stream("a", **TEXT).merge(builder.stream("b", **TEXT)).to("out", **TEXT)
    with TopologyTestDriver(builder.build(), config(max_task_idle_ms=100)) as driver:
        out = driver.create_output_topic("out", **TEXT)
        driver.create_input_topic("a", **TEXT).pipe_input("k", "a5", 5)
        assert out.is_empty
        driver.create_input_topic("b", **TEXT).pipe_input("k", "b1", 1)
        assert out.read_values() == ["b1"]
        driver.advance_wall_clock_time(timedelta(milliseconds=99))
        assert out.is_empty
        driver.advance_wall_clock_time(timedelta(milliseconds=1))
        assert out.read_values() == ["a5"]


# --- settings, views, closing ------------------------------------------------------------------


def test_explicit_names_can_be_required() -> None:
    strict = config(ensure_explicit_internal_resource_naming=True)
    with pytest.raises(TopologyError, match="KSTREAM-AGGREGATE-STATE-STORE-0000000003"):
        TopologyTestDriver(count_topology(), strict)
    TopologyTestDriver(count_topology(store="counts"), strict).close()


def test_topology_that_cannot_run_leaves_no_files() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    before = temporary_folders()
    with pytest.raises(StreamsError, match="no key serde"):
        TopologyTestDriver(builder.build())
    assert temporary_folders() == before


def test_metadata_contains_topics_with_their_full_names() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", **TEXT).repartition(partitions=3, name="wide")
    stream.group_by_key().count(store="counts").to_stream().to("out", key=STRING, value=LONG)
    with TopologyTestDriver(builder.build(), config(topic={"retention.ms": "5"})) as driver:
        assert driver.topology_metadata() == {
            "topics": {
                "app-wide-repartition": {
                    "kind": "repartition",
                    "partitions": 3,
                    "config": {
                        "cleanup.policy": "delete",
                        "message.timestamp.type": "CreateTime",
                        "retention.ms": "5",
                        "segment.bytes": "52428800",
                    },
                },
                "app-counts-changelog": {
                    "kind": "changelog",
                    "config": {
                        "cleanup.policy": "compact",
                        "message.timestamp.type": "CreateTime",
                        "retention.ms": "5",
                    },
                },
            },
            "subtopologies": [
                {"id": 0, "sources": ["in"], "sinks": ["app-wide-repartition"], "changelogs": []},
                {
                    "id": 1,
                    "sources": ["app-wide-repartition"],
                    "sinks": ["out"],
                    "changelogs": ["app-counts-changelog"],
                },
            ],
            "copartition": [],
        }


def test_closing_commits_remaining_changes_and_can_be_repeated() -> None:
    """Entries that a test has put into a cache are flushed, and topics can still be read."""
    before = temporary_folders()
    driver = TopologyTestDriver(count_topology(store="counts"), config())
    assert temporary_folders() != before
    driver.get_state_store("counts").put("a", ValueAndTimestamp(1, 2))
    driver.close()
    driver.close()
    assert temporary_folders() == before
    out = driver.create_output_topic("out", key=STRING, value=LONG)
    assert out.read_key_values() == [("a", 1)]
    with pytest.raises(IllegalStateError, match="closed"):
        driver.create_input_topic("in", **TEXT).pipe_input("k", "v")


def test_closing_raises_the_error_of_the_last_commit() -> None:
    """The driver cleans up nevertheless."""
    builder = StreamsBuilder()
    counts = builder.stream("in", **TEXT).group_by_key().count(store="counts").to_stream()
    counts.to("out", **TEXT)  # The wrong serde for counts.
    before = temporary_folders()
    driver = TopologyTestDriver(builder.build(), config())
    driver.get_state_store("counts").put("a", ValueAndTimestamp(1, 2))
    with pytest.raises(SerializationError):
        driver.close()
    driver.close()
    assert temporary_folders() == before


def test_user_code_is_closed_with_the_driver(tmp_path: Path) -> None:
    path = tmp_path / "printed"
    builder = StreamsBuilder()
    builder.stream("in", **TEXT).print("p", file=str(path))
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", **TEXT).pipe_input("k", "v")
    assert path.read_text() == "[p]: k, v\n"


@pytest.mark.parametrize(
    ("windows", "count"),
    [
        (TimeWindows(timedelta(seconds=3), advance=timedelta(seconds=1)), 3),
        (SlidingWindows(timedelta(seconds=1)), 1),
        (SessionWindows(timedelta(seconds=1)), 1),
    ],
    ids=["hopping", "sliding", "session"],
)
def test_late_record_is_logged_as_one_record(
    windows: Any, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if it is late for three hopping windows, which the metric of Kafka Streams counts."""
    builder = StreamsBuilder()
    stream = builder.stream("in", **TEXT)
    stream.group_by_key().windowed_by(windows).count(store="counts")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", **TEXT)
        topic.pipe_input("a", "x", 10_000)
        topic.pipe_input("a", "late", 4_500)
        assert dropped(driver) == count
    (line,) = (each.getMessage() for each in caplog.records if "not counted" in each.getMessage())
    number_of_windows = "1 window" if count == 1 else f"{count} windows"
    assert f": 1 record not counted in {number_of_windows}: they arrived after the grace" in line


@pytest.mark.parametrize("kind", ["sliding", "tumbling", "session"])
def test_ranges_of_windows_before_their_close_are_read_by_key(kind: str) -> None:
    """As in Kafka Streams, which reads them from its index by key. All windows are read by time."""
    builder = StreamsBuilder()
    grouped = builder.stream("in", **TEXT).group_by_key()
    windows: Any = {
        "sliding": SlidingWindows(timedelta(milliseconds=500), grace=timedelta(seconds=2)),
        "tumbling": TimeWindows(timedelta(milliseconds=5), grace=timedelta(seconds=2)),
        "session": SessionWindows(timedelta(milliseconds=5), grace=timedelta(seconds=2)),
    }[kind]
    emitted = grouped.windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    emitted.count(store=Materialized("s", kind="rocksdb"))
    with TopologyTestDriver(builder.build(), config()) as driver:
        topic = driver.create_input_topic("in", **TEXT)
        for key, time in (("2", 510), ("1", 515), ("1", 600), ("3", 505)):
            topic.pipe_input(key, "x", time)
        store = driver.get_state_store("s")
        times = () if kind == "session" else (0, 10_000)
        starts = {"sliding": 4}.get(kind, 2) - 1
        for bounds in (("1", "3"), ("1", None), (None, "3"), (None, None)):
            found = [each.key for each, _ in store.fetch_range(*bounds, *times)]
            backward = [each.key for each, _ in store.backward_fetch_range(*bounds, *times)]
            assert found == sorted(found) == backward[::-1]
            assert found.count("1") >= min(starts, 2)
        if kind != "session":
            starts_of_all = [each.window.start_ms for each, _ in store.all()]
            assert starts_of_all == sorted(starts_of_all)
            assert [each.key for each, _ in store.all()] != sorted(
                each.key for each, _ in store.all()
            )


@pytest.mark.parametrize("chosen", [0, 7, [3, 5], 2**31])
def test_partitioner_can_choose_any_partition_of_an_output_topic(chosen: Any) -> None:
    """As in the driver of Kafka Streams: a test does not need to define the number of
    partitions."""
    builder = StreamsBuilder()
    builder.stream("in", **TEXT).to("out", **TEXT, partitioner=lambda *_: chosen)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", **TEXT).pipe_input("k", "v")
        found = driver.create_output_topic("out", **TEXT).read_key_values()
    assert found == [("k", "v")] * (len(chosen) if isinstance(chosen, list) else 1)


def test_partitioner_receives_the_number_of_partitions_of_the_program() -> None:
    builder = StreamsBuilder()
    seen: list[int] = []

    def partition(topic: str, key: str, value: str, count: int) -> Any:
        seen.append(count)
        return [0, 3] if value == "both" else int(value)

    repartitioned = builder.stream("in", **TEXT).repartition(
        **TEXT, partitions=4, partitioner=partition
    )
    repartitioned.to("out", **TEXT)
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", **TEXT)
        topic.pipe_input("k", "both")
        assert driver.create_output_topic("out", **TEXT).read_values() == ["both", "both"]
        with pytest.raises(ProcessingError, match=r"it chose partition 4 of .*, which has 4"):
            topic.pipe_input("k", "4")
    assert seen == [4, 4]


def test_records_without_a_chosen_partition_are_counted() -> None:
    builder = StreamsBuilder()
    builder.stream("in", **TEXT).to("out", **TEXT, partitioner=lambda *_: ())
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", **TEXT).pipe_input("k", "v")
        assert driver.create_output_topic("out", **TEXT).is_empty
        dropped = driver.metrics()
    assert [v for k, v in dropped.items() if k.name == "dropped-records-total"] == [1.0]


def test_topic_without_a_name_is_rejected() -> None:
    builder = StreamsBuilder()
    builder.stream("in", **TEXT).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        for create in (driver.create_input_topic, driver.create_output_topic):
            with pytest.raises(TopologyError, match="but got None"):
                create(None, **TEXT)  # type: ignore[arg-type]
