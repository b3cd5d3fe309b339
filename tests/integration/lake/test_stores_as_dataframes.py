"""Goal: a store read as a DataFrame has the same content as the store itself at the same position.

Method: one application with a store of every kind, whose records are out of order, too late, or
deletions; when all input is processed, each store is compared with its DataFrame.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from support.broker.topics import InputRecord
from support.running.applications import Application
from support.running.topologies import every_store
from support.tiers import extended_except
from support.waiting import wait_for

from millstream import KafkaStreams, StreamsConfig
from millstream.lake import position_of, read_store, register
from millstream.serdes import STRING
from millstream.testing import EmbeddedKafka

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def running(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Application, KafkaStreams]]:
    """The application, with all of its input processed and committed."""
    application = Application(kafka, every_store.topology, every_store.INPUTS, {})
    application.places.write(every_store.records(application.name, seed=5))
    # Offsets of global tables are not committed.
    application.inputs.discard(application.topic("places"))
    application.outputs.add(application.topic("places"))
    folder = tmp_path_factory.mktemp("every-store")
    # The record cache would contain windows that have expired in the store below it.
    uncached = {"topology_optimization": "all", "statestore_cache_max_bytes": 0}
    with application.running(spark, folder, **uncached) as (streams, _):
        application.wait_until_done()
        yield application, streams


def ms(time: datetime | None) -> int | None:
    """A timestamp column in milliseconds."""
    if time is None:
        return None
    return (time.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)


def rows_of(frame: DataFrame) -> list[Any]:
    return frame.collect()


def key_values(frame: DataFrame, *, timed: bool) -> list[tuple[Any, ...]]:
    """The rows in the format of `every_store.store_rows`."""
    return sorted(
        (
            (row.key, value_of(row.value), ms(row.timestamp) if timed else None)
            for row in rows_of(frame)
        ),
        key=repr,
    )


def value_of(value: Any) -> Any:
    """A struct of columns as the original object."""
    return msgspec.convert(value.asDict(), every_store.Seen) if hasattr(value, "asDict") else value


def windows(frame: DataFrame, *, timed: bool) -> list[tuple[Any, ...]]:
    return sorted(
        (
            (
                (row.key, ms(row.window_start), ms(row.window_end)),
                row.value,
                ms(row.timestamp) if timed else None,
            )
            for row in rows_of(frame)
        ),
        key=repr,
    )


@pytest.mark.extended
@pytest.mark.parametrize("store", extended_except(["counts"], every_store.KEY_VALUE))
def test_key_value_stores(running: tuple[Application, KafkaStreams], store: str) -> None:
    """On disk, in memory, bounded by number of keys, restored from the input, global."""
    _, streams = running
    timed = store not in ("plain", "recent")
    shown = every_store.store_rows(streams, store)
    assert shown
    assert key_values(streams.dataframe(store), timed=timed) == shown


@pytest.mark.extended
@pytest.mark.parametrize(
    "store", extended_except(["minutes"], [*every_store.WINDOWS, *every_store.SESSIONS])
)
def test_windows_and_sessions(running: tuple[Application, KafkaStreams], store: str) -> None:
    """On disk and in memory, with duplicates, of closed windows: those that have not expired."""
    _, streams = running
    timed = store in ("minutes", "closed")
    shown = every_store.store_rows(streams, store)
    assert shown
    assert windows(streams.dataframe(store), timed=timed) == shown


def versions(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(
        ((row.key, row.value, ms(row.valid_from), ms(row.valid_to)) for row in frame.collect()),
        key=repr,
    )


@pytest.mark.extended
def test_versioned_stores(running: tuple[Application, KafkaStreams]) -> None:
    """All versions with their timestamps; the latest of each key; those of a point in time."""
    _, streams = running
    shown = every_store.store_rows(streams, "prices")
    assert versions(streams.dataframe("prices", history=True)) == shown
    latest = versions(streams.dataframe("prices"))
    assert latest == [row for row in shown if row[3] is None]
    middle = sorted(row[2] for row in shown)[len(shown) // 2]
    then = versions(streams.dataframe("prices", as_of=_EPOCH + timedelta(milliseconds=middle)))
    assert then == [row for row in shown if row[2] <= middle and (row[3] or 1 << 60) > middle]
    assert then != latest


@pytest.mark.extended
@pytest.mark.parametrize(
    "store", extended_except(["minutes"], ["counts", "minutes", "visits", "places", "unlogged"])
)
def test_owners_return_the_same(running: tuple[Application, KafkaStreams], store: str) -> None:
    """The owning threads return the same content as the changelog."""
    _, streams = running
    from_owners = streams.dataframe(store, source="owners")
    if store == "unlogged":
        assert {(row.key, row.value) for row in from_owners.collect()} == {
            (key, value) for key, value, _ in every_store.store_rows(streams, "counts")
        }
        return
    read = streams.dataframe(store)
    columns = [name for name in read.columns if name not in ("partition", "offset")]
    if store == "visits":
        # Session stores have no timestamps.
        columns.remove("timestamp")
    assert sorted(from_owners.select(columns).collect()) == sorted(read.select(columns).collect())
    if store in ("counts", "minutes"):
        assert f"{application_name(running)}-in" in position_of(from_owners)


def application_name(running: tuple[Application, KafkaStreams]) -> str:
    return running[0].name


def test_a_key_reads_one_partition(
    running: tuple[Application, KafkaStreams], spark: SparkSession
) -> None:
    """A filter on keys reads only the partitions that can have them; one on windows skips the
    others."""
    _, streams = running
    counts = streams.dataframe("counts")
    assert counts.rdd.getNumPartitions() == 3
    one = counts.where("key = 'k07'")
    assert one.rdd.getNumPartitions() == 1
    assert [row.value for row in one.collect()] == [
        value for key, value, _ in every_store.store_rows(streams, "counts") if key == "k07"
    ]
    keys = ["k01", "k02", "k03", "k04"]
    some = counts.where(counts.key.isin(keys))
    assert sorted(row.key for row in some.collect()) == keys
    assert counts.where("key = 'k07' and key = 'k08'").collect() == []
    minutes = streams.dataframe("minutes")
    shown = every_store.store_rows(streams, "minutes")
    middle = sorted(row[0][1] for row in shown)[len(shown) // 2]
    start = datetime.fromtimestamp(middle / 1_000, UTC)
    filtered = minutes.where((minutes.window_start >= start) & (minutes.key == "k07"))
    assert filtered.rdd.getNumPartitions() == 1
    assert windows(filtered, timed=True) == [
        row for row in shown if row[0][0] == "k07" and row[0][1] >= middle
    ]


@pytest.mark.extended
def test_a_snapshot_is_reproducible(
    running: tuple[Application, KafkaStreams],
    spark: SparkSession,
    kafka: EmbeddedKafka,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A snapshot at a fixed position is reproducible, also in another session without the
    topology."""
    application, streams = running
    first = streams.dataframe("users")
    position = position_of(first)
    topic = json.loads(position)
    assert list(topic) == [f"{application.name}-users"]
    config = StreamsConfig(
        application_id=application.name,
        bootstrap_servers=kafka.bootstrap_servers,
        consumer={"client.id": "never-shown"},
    )
    serdes: dict[str, Any] = {"key": STRING, "value": STRING}
    earlier = json.dumps({name: dict.fromkeys(ends, 0) for name, ends in topic.items()})
    names = {"topic": f"{application.name}-users", **serdes}
    assert read_store(spark, config, "users", position=earlier, **names).count() == 0
    again = read_store(spark, config, "users", position=position, **names)
    assert sorted(again.collect()) == sorted(first.collect())
    again.explain(True)
    plan = capsys.readouterr().out
    assert "millstream" in plan
    assert "never-shown" not in plan
    assert kafka.bootstrap_servers not in plan


def test_options_name_serdes(
    running: tuple[Application, KafkaStreams], spark: SparkSession, kafka: EmbeddedKafka
) -> None:
    """`spark.read.format("millstream")`, with text for all options."""
    application, streams = running
    register(spark)
    frame = spark.read.format("millstream").options(
        application_id=application.name,
        bootstrap_servers=kafka.bootstrap_servers,
        store="counts",
        key_serde="STRING",
        value_serde="millstream.serdes:LONG",
    )
    assert key_values(frame.load(), timed=True) == every_store.store_rows(streams, "counts")
    with pytest.raises(Exception, match="requires the option value_serde"):
        spark.read.format("millstream").options(
            application_id="a", bootstrap_servers="b:1", store="s", key_serde="LONG"
        ).load()


@pytest.mark.extended
def test_options_name_serdes_of_modules_beside_the_program(
    running: tuple[Application, KafkaStreams],
    spark: SparkSession,
    kafka: EmbeddedKafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: Spark's planner finds a module that only the driver can import, and Spark's readers
    get its code; before the driver finds it, the error names the searched places."""
    application, streams = running
    (tmp_path / "shop_words.py").write_text("def read(data):\n    return int.from_bytes(data)\n")
    (tmp_path / "shop_serdes.py").write_text(
        "from millstream.serdes import LONG\n"
        "import shop_words\n"
        "class Named:\n"
        "    COUNT = LONG\n"
        "assert shop_words.read(b'\\1') == 1\n"
    )

    def frame() -> DataFrame:
        reader = spark.read.format("millstream").options(
            application_id=application.name,
            bootstrap_servers=kafka.bootstrap_servers,
            store="counts",
            key_serde="STRING",
            value_serde="shop_serdes:Named.COUNT",
        )
        return reader.load()

    register(spark)
    with pytest.raises(Exception, match=r"the sys.path that the driver had when it called .*regis"):
        frame()
    monkeypatch.syspath_prepend(tmp_path)
    register(spark)
    assert key_values(frame(), timed=True) == every_store.store_rows(streams, "counts")


def _run_to_end(writer: DataStreamWriter, folder: str) -> None:
    """Run a query to its end, and restart it if Spark gave up starting its Python process.

    Spark waits 10 s for that process, without a setting; a machine that runs other tests may take
    longer.
    """

    def ended() -> bool:
        try:
            writer.start(folder).awaitTermination()
        except StreamingQueryException as error:
            if "Python worker failed to connect back" not in str(error):
                raise
            return False
        return True

    wait_for(ended, 120, "Spark starts the Python process of the query")


@pytest.mark.extended
def test_changes_are_read_as_a_stream(
    running: tuple[Application, KafkaStreams], spark: SparkSession, tmp_path: Path
) -> None:
    """Each record of the changelog once, including deletions; after a restart, only later ones."""
    application, streams = running
    topic = f"{application.name}-users"

    def read_changes() -> list[Any]:
        writer = (
            streams.changes_dataframe("users").writeStream.format("parquet").outputMode("append")
        )
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        _run_to_end(query.trigger(availableNow=True), str(tmp_path / "changes"))
        return spark.read.parquet(str(tmp_path / "changes")).collect()

    logged = application.places.read_with_offsets([topic])[topic]
    expected = {(record.partition, offset, record.key, record.value) for offset, record in logged}
    found = read_changes()
    assert len(found) == len(expected)
    assert {
        (row.partition, row.offset, row.key.encode(), row.value and row.value.encode())
        for row in found
    } == expected
    application.places.write(
        [InputRecord(topic, 1, "new", "x", 1), InputRecord(topic, 2, "k07", None, 2)]
    )
    since = read_changes()
    assert len(since) == len(expected) + 2
    assert {(row.key, row.value) for row in since} - {(row.key, row.value) for row in found} >= {
        ("new", "x")
    }
    application.wait_until_done()
