"""The DSL on a broker, in tasks of several partitions: aspects that the test driver cannot show.

One application has many features at once; it is stopped, restarted, and restored. Another one
restores its tables from their own topics and reads streams by a pattern.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession
from support.broker.restore_counts import Restoration, RestoreCounts
from support.broker.topics import InputRecord, TopicRecord
from support.running.applications import Application, processed, values
from support.running.topologies import features, optimized
from support.running.topologies.features import Output
from support.waiting import wait_for

from millstream import CopartitionError
from millstream.record import TopicPartition
from millstream.testing import EmbeddedKafka

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS

COMPACT: Final = {"cleanup.policy": "compact"}
PASSING: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "segment.bytes": "52428800"}


def window_config(retention_ms: int, policy: str = "compact,delete") -> dict[str, str]:
    """The config of a windowed changelog: retained for a day longer than in the store."""
    return {"cleanup.policy": policy, "retention.ms": str(retention_ms + DAY_MS)}


#: The internal topics: their partition counts, and configs that differ from the broker's defaults.
INTERNAL: Final[dict[str, tuple[int, Mapping[str, str]]]] = {
    # Subscriptions are partitioned like the right table, responses like the left one.
    "fk-inner-subscription-registration-topic": (3, PASSING),
    "fk-inner-subscription-response-topic": (4, PASSING),
    "fk-inner-subscription-store-changelog": (3, COMPACT),
    "fk-left-subscription-registration-topic": (3, PASSING),
    "fk-left-subscription-response-topic": (4, PASSING),
    "fk-left-subscription-store-changelog": (3, COMPACT),
    "fk-left-changelog": (4, COMPACT),
    "orders-changelog": (4, COMPACT),
    "customers-changelog": (3, COMPACT),
    "shipping-changelog": (4, COMPACT),
    "profiles-changelog": (4, COMPACT),
    "spent-repartition": (4, PASSING),
    "spent-changelog": (4, COMPACT),
    # The history of a table can be queried during the retention; the topic keeps it a day longer.
    "rates-changelog": (4, {**COMPACT, "min.compaction.lag.ms": str(HOUR_MS + DAY_MS)}),
    "patient-Buffer-changelog": (4, COMPACT),
    "click-windows-changelog": (4, window_config(30_000)),
    "held-store-changelog": (4, COMPACT),
    "view-windows-changelog": (4, window_config(3 * HOUR_MS)),
    "visits-changelog": (4, window_config(24_000)),
    "sliding-changelog": (4, window_config(30_000)),
    # Streams keep every record of a window, so these topics are not compacted.
    "seen-this-join-store-changelog": (4, window_config(26_000, "delete")),
    "seen-outer-other-join-store-changelog": (4, window_config(26_000, "delete")),
    "seen-left-shared-join-store-changelog": (4, COMPACT),
    "activity-changelog": (4, COMPACT),
    # Its input has 3 partitions, but the joined table has 4.
    "by-user-repartition": (4, PASSING),
    "latest-sale-changelog": (4, COMPACT),
    "pages-repartition": (6, PASSING),
    "per-page-changelog": (6, window_config(20_000 + 2 * HOUR_MS)),
    "page-totals-changelog": (6, COMPACT),
}

#: The changelogs of in-memory stores, which are always restored completely.
IN_MEMORY: Final = {"held-store-changelog", "page-totals-changelog"}


@pytest.mark.extended
def test_many_features_stopped_restarted_and_restored(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    app = Application(
        kafka,
        features.topology,
        features.INPUTS,
        {name: output.partitions for name, output in features.OUTPUTS.items()},
    )
    start_ms = (int(time.time()) // 3_600 - 3) * HOUR_MS
    sent = features.records(app.name, 1, start_ms, 200_000, 60)
    app.places.write(sent)
    settings: dict[str, Any] = {"extra": features.EAGER}
    # Small polls, so that most of the input remains when the application is stopped.
    with_small_polls = {**settings, "consumer": {"max.poll.records": 1}}
    with app.running(spark, tmp_path / "first", **with_small_polls) as (streams, _):
        wait_for(lambda: processed(streams) > 0, 60, "some records are processed")
    sizes = app.changelog_sizes()
    with app.running(spark, tmp_path / "first", **settings) as (_, restored):
        app.wait_until_done()
    assert_restored(app, restored, dict.fromkeys(sizes, 0) | in_memory(app, sizes))

    more = features.records(app.name, 2, start_ms + 200_000, 100_000, 30)
    more += features.last_records(app.name, start_ms + 2 * HOUR_MS)
    app.places.write(more)
    sizes = app.changelog_sizes()
    with app.running(spark, tmp_path / "second", **settings) as (_, restored):
        app.wait_until_done()
    assert_restored(app, restored, sizes)

    assert app.internal_topics() == {name: count for name, (count, _) in INTERNAL.items()}
    configs = app.places.configs(map(app.topic, INTERNAL))
    for name, (_, config) in INTERNAL.items():
        found = configs[app.topic(name)]
        assert {key: found[key] for key in config} == config, name
    assert_inputs(app, [*sent, *more])
    topology = features.topology(app.name)
    expected = features.expected(topology, features.OUTPUTS, app.name, [*sent, *more])
    assert_outputs(app, features.OUTPUTS, expected)


@pytest.mark.extended
def test_standbys_of_every_kind_of_store_take_over(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """When an instance is closed, the standbys of the other one have caught up: nothing is
    restored."""
    counts = {name: output.partitions for name, output in features.OUTPUTS.items()}
    app = Application(kafka, features.topology, features.INPUTS, counts)
    start_ms = (int(time.time()) // 3_600 - 3) * HOUR_MS
    sent = features.records(app.name, 3, start_ms, 100_000, 40)
    app.places.write(sent)
    settings: dict[str, Any] = {
        "extra": features.EAGER,
        "num_stream_threads": 1,
        "num_standby_replicas": 1,
    }
    with (
        app.running(spark, tmp_path / "first", **settings) as (first, _),
        app.running(spark, tmp_path / "second", **settings) as (second, restored),
    ):
        app.wait_until_done()
        sizes = app.changelog_sizes()
        wait_for(lambda: restored.has_all(sizes), 60, "the second instance has caught up")
        second.pause()
        wait_for(lambda: 0 not in values(second, "paused"), 30, "the application is paused")
        assert first.close(timedelta(seconds=60))
        more = features.records(app.name, 4, start_ms + 100_000, 50_000, 20)
        more += features.last_records(app.name, start_ms + 2 * HOUR_MS)
        app.places.write(more)
        before = restored.total
        second.resume()
        app.wait_until_done()
        assert restored.total == before
        assert restored.copied > 0
    assert_inputs(app, [*sent, *more])
    topology = features.topology(app.name)
    expected = features.expected(topology, features.OUTPUTS, app.name, [*sent, *more])
    assert_outputs(app, features.OUTPUTS, expected)


def in_memory(app: Application, sizes: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    topics = set(map(app.topic, IN_MEMORY))
    return {place: size for place, size in sizes.items() if place.topic in topics}


def assert_restored(
    app: Application, restored: RestoreCounts, expected: Mapping[TopicPartition, int]
) -> None:
    """Check the number of restored records of each changelog partition.

    A task that moves between the threads restores its in-memory state again: all records of its
    changelog by then, which are more if the task has already processed records.
    """
    for place, count in expected.items():
        if place.topic in map(app.topic, IN_MEMORY):
            times = restored.times.get(place, [Restoration("", 0, 0, 0)])
            assert (times[0].start, times[0].end) == (0, count), place
            done = [time for time in times if time.total is not None]
            assert done, place
            assert all(time.total == time.end and time.start == 0 for time in done), place
        else:
            assert restored.totals.get(place, 0) == count, place


def assert_inputs(app: Application, sent: Iterable[InputRecord]) -> None:
    """Check that the input topics contain the sent records in order; all expected results depend
    on it."""
    expected: dict[str, list[TopicRecord]] = defaultdict(list)
    for topic, partition, key, value, timestamp in sorted(sent, key=lambda each: each.partition):
        expected[topic].append(TopicRecord(partition, bytes_of(key), bytes_of(value), timestamp))
    assert app.places.read(sorted(app.inputs)) == expected


def bytes_of(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def assert_outputs(
    app: Application, outputs: Mapping[str, Output], expected: Mapping[str, list[TopicRecord]]
) -> None:
    """Check the content of the topics, and the partition of each record."""
    found = app.places.read([app.topic(name) for name in outputs])
    for name, output in outputs.items():
        records = found[app.topic(name)]
        for record in records:
            assert output.partition_of(record.key) in (record.partition, None), (name, record)
        compare = _COMPARED[output.compared]
        assert compare(records) == compare(expected[name]), name


def by_key(records: Iterable[TopicRecord]) -> dict[Any, list[tuple[bytes | None, int]]]:
    """The values of each key with their timestamps, in order."""
    keyed: dict[Any, list[tuple[bytes | None, int]]] = defaultdict(list)
    for record in records:
        keyed[record.key].append((record.value, record.timestamp))
    return keyed


def last(records: Iterable[TopicRecord]) -> dict[Any, bytes | None]:
    """The last non-null value of each key."""
    values = {record.key: record.value for record in records}
    return {key: value for key, value in values.items() if value is not None}


def counted(records: Iterable[TopicRecord]) -> Counter[Any]:
    """The number of occurrences of each key, value and timestamp."""
    return Counter((record.key, record.value, record.timestamp) for record in records)


_COMPARED: Final[Mapping[str, Callable[[Iterable[TopicRecord]], Any]]] = {
    "last": last,
    "in order": by_key,
    "in any order": counted,
}


@pytest.mark.extended
def test_tables_restored_from_their_topics_and_streams_read_by_a_pattern(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Records written while the application is closed are not restored, but processed."""
    outputs = optimized.OUTPUTS
    counts = {name: output.partitions for name, output in outputs.items()}
    app = Application(kafka, optimized.topology, optimized.INPUTS, counts)
    start_ms = (int(time.time()) // 3_600 - 1) * HOUR_MS
    sent = optimized.towns(app.name, start_ms)
    sent += optimized.records(app.name, ["visits-web"], 1, start_ms + 1_000, 100_000, 100)
    app.places.write(sent)
    with app.running(spark, tmp_path / "first"):
        app.wait_until_done()
    tables = [app.topic("users"), app.topic("towns")]
    committed = {place: high for place, (_, high) in app.places.ends(tables).items()}

    visits = ["visits-web", "visits-app"]
    app.create_input("visits-app", 4)
    more = optimized.records(app.name, visits, 2, start_ms + 200_000, 100_000, 60)
    app.places.write(more)
    logged = app.changelog_sizes()
    with app.running(spark, tmp_path / "second") as (_, restored):
        app.wait_until_done()
    assert restored.totals == committed | logged
    # The first directory lacks the records written since.
    ends = {place: high for place, (_, high) in app.places.ends(tables).items()}
    ends |= app.changelog_sizes()
    behind = {place: end - (committed | logged)[place] for place, end in ends.items()}
    soon = {"consumer": {"metadata.max.age.ms": 1_000}}
    with app.running(spark, tmp_path / "first", **soon) as (_, restored):
        app.create_input("visits-late", 4)
        late = optimized.visits(app.name, "visits-late", 3, start_ms + 400_000, 40)
        app.places.write(late)
        app.wait_until_done()
    assert restored.totals == behind
    assert sum(behind.values()) > 60

    assert app.internal_topics() == {"by-town-repartition": 4, "per-town-changelog": 4}
    everything = [*sent, *more, *late]
    expected = features.expected(optimized.topology(app.name), outputs, app.name, everything)
    assert_outputs(app, outputs, expected)
    assert any(record.key is None for record in expected["destinations"])


def test_topics_that_are_not_copartitioned(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """One of the topics that match the pattern has fewer partitions than the joined table."""
    inputs = {**optimized.INPUTS, "visits-app": 3}
    app = Application(kafka, optimized.topology, inputs, dict.fromkeys(optimized.OUTPUTS, 1))
    streams = app.streams(spark, tmp_path)
    streams.start()
    try:
        wait_for(lambda: streams.error is not None, 60, "the application ends")
    finally:
        streams.close()
    error = streams.error
    assert isinstance(error, CopartitionError)
    assert f"'{app.topic('visits-app')}' has 3" in str(error)
    assert "optimized.py:" in str(error)
