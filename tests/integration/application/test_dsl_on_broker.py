"""The DSL on a broker, in tasks of several partitions: what the test driver cannot show.

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

from pyspark.sql import SparkSession
from support.broker.records import Found, Sent
from support.broker.restored import Restoration, Restored
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


def windows_kept(retention_ms: int, policy: str = "compact,delete") -> dict[str, str]:
    """The config of a changelog of windows: they are kept for a day longer than in the store."""
    return {"cleanup.policy": policy, "retention.ms": str(retention_ms + DAY_MS)}


#: The internal topics: how many partitions they have, and what is not the broker's default.
INTERNAL: Final[dict[str, tuple[int, Mapping[str, str]]]] = {
    # The subscriptions lie beside the right table, the answers beside the left one.
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
    # A table's history may be asked for until the retention is over, and a day longer.
    "rates-changelog": (4, {**COMPACT, "min.compaction.lag.ms": str(HOUR_MS + DAY_MS)}),
    "patient-Buffer-changelog": (4, COMPACT),
    "click-windows-changelog": (4, windows_kept(30_000)),
    "held-store-changelog": (4, COMPACT),
    "view-windows-changelog": (4, windows_kept(3 * HOUR_MS)),
    "visits-changelog": (4, windows_kept(24_000)),
    "sliding-changelog": (4, windows_kept(30_000)),
    # Streams keep every record of a window, so nothing is compacted.
    "seen-this-join-store-changelog": (4, windows_kept(26_000, "delete")),
    "seen-outer-other-join-store-changelog": (4, windows_kept(26_000, "delete")),
    "seen-left-shared-join-store-changelog": (4, COMPACT),
    "activity-changelog": (4, COMPACT),
    # Its input has 3 partitions, but the table that it is joined with has 4.
    "by-user-repartition": (4, PASSING),
    "latest-sale-changelog": (4, COMPACT),
    "pages-repartition": (6, PASSING),
    "per-page-changelog": (6, windows_kept(20_000 + 2 * HOUR_MS)),
    "page-totals-changelog": (6, COMPACT),
}

#: The changelogs of what is kept in memory: whoever opens it must read everything.
IN_MEMORY: Final = {"held-store-changelog", "page-totals-changelog"}


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
    # Small polls, so that most of it is still to be done when it is stopped.
    slowly = {**settings, "consumer": {"max.poll.records": 1}}
    with app.running(spark, tmp_path / "first", **slowly) as (streams, _):
        wait_for(lambda: processed(streams) > 0, 60, "something is processed")
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


def test_copies_of_every_kind_of_store_take_over(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """When an instance goes, the other one has read what it needs: nothing is restored."""
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
        wait_for(lambda: restored.has_all(sizes), 60, "the second one has everything")
        second.pause()
        wait_for(lambda: 0 not in values(second, "paused"), 30, "it pauses")
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
    app: Application, restored: Restored, wanted: Mapping[TopicPartition, int]
) -> None:
    """That many records were restored from each changelog partition.

    Where a task moves between the threads, what it has in memory is restored once more: all that
    its changelog has by then, which is more when the task has already worked.
    """
    for place, count in wanted.items():
        if place.topic in map(app.topic, IN_MEMORY):
            times = restored.times.get(place, [Restoration("", 0, 0, 0)])
            assert (times[0].start, times[0].end) == (0, count), place
            done = [time for time in times if time.total is not None]
            assert done, place
            assert all(time.total == time.end and time.start == 0 for time in done), place
        else:
            assert restored.totals.get(place, 0) == count, place


def assert_inputs(app: Application, sent: Iterable[Sent]) -> None:
    """The topics that are read hold what was sent, in its order: all that is expected of the others
    rests on that."""
    wanted: dict[str, list[Found]] = defaultdict(list)
    for topic, partition, key, value, timestamp in sorted(sent, key=lambda each: each.partition):
        wanted[topic].append(Found(partition, bytes_of(key), bytes_of(value), timestamp))
    assert app.places.read(sorted(app.inputs)) == wanted


def bytes_of(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def assert_outputs(
    app: Application, outputs: Mapping[str, Output], expected: Mapping[str, list[Found]]
) -> None:
    """The topics hold what they should, where they should."""
    found = app.places.read([app.topic(name) for name in outputs])
    for name, output in outputs.items():
        records = found[app.topic(name)]
        for record in records:
            assert output.partition_of(record.key) in (record.partition, None), (name, record)
        compare = _COMPARED[output.compared]
        assert compare(records) == compare(expected[name]), name


def by_key(records: Iterable[Found]) -> dict[Any, list[tuple[bytes | None, int]]]:
    """The values of each key with their times, in their order."""
    keyed: dict[Any, list[tuple[bytes | None, int]]] = defaultdict(list)
    for record in records:
        keyed[record.key].append((record.value, record.timestamp))
    return keyed


def last(records: Iterable[Found]) -> dict[Any, bytes | None]:
    """The last value of each key that has one."""
    values = {record.key: record.value for record in records}
    return {key: value for key, value in values.items() if value is not None}


def counted(records: Iterable[Found]) -> Counter[Any]:
    """How often there is each key with each value and time."""
    return Counter((record.key, record.value, record.timestamp) for record in records)


_COMPARED: Final[Mapping[str, Callable[[Iterable[Found]], Any]]] = {
    "last": last,
    "in order": by_key,
    "in any order": counted,
}


def test_tables_restored_from_their_topics_and_streams_read_by_a_pattern(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """What is written while the application is down is not restored, but processed in its turn."""
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
    # The first directory is behind by what came since.
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


def test_topics_that_do_not_fit_together(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """One of those that match the pattern has fewer partitions than the table joined with it."""
    inputs = {**optimized.INPUTS, "visits-app": 3}
    app = Application(kafka, optimized.topology, inputs, dict.fromkeys(optimized.OUTPUTS, 1))
    streams = app.streams(spark, tmp_path)
    streams.start()
    try:
        wait_for(lambda: streams.error is not None, 60, "it ends")
    finally:
        streams.close()
    error = streams.error
    assert isinstance(error, CopartitionError)
    assert f"'{app.topic('visits-app')}' has 3" in str(error)
    assert "optimized.py:" in str(error)
