"""Goal: a topology writes each record to the lake once, in every format; and the table can precede
a topic.

Method: one application writes the same stream to a table of each format, and a table with changes
and deletions to the formats with upserts. The tables are compared with the output topics. Then
another application reads one of them as the history of a topic that has grown since.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession
from support.broker.topics import BrokerTopics, InputRecord, latest, unique
from support.waiting import wait_for

from millstream import KafkaStreams, Materialized, StreamsBuilder, StreamsConfig, StreamsError
from millstream.lake import backfill, read_table
from millstream.serdes import STRING, json_of
from millstream.spark.sessions.local_session import current_local_session
from millstream.testing import EmbeddedKafka
from millstream.topology.options.lake import LakeFormat

# Five queries in one session, followed by an application.
pytestmark = pytest.mark.slow

_TIMEOUT_S = 240
_T0 = 1_700_000_000_000


class Click(msgspec.Struct):
    page: str
    country: str


CLICK = json_of(Click)


def clicks(topic: str, numbers: range) -> list[InputRecord]:
    """Clicks of seven users, in two partitions by user; each has its own page."""
    return [
        InputRecord(
            topic,
            number % 7 % 2,
            f"user-{number % 7}",
            msgspec.json.encode(Click(f"page-{number}", f"land {number % 3}")).decode(),
            _T0 + number * 1_000,
        )
        for number in numbers
    ]


def users(topic: str) -> list[InputRecord]:
    """Names that change; every third one is deleted."""
    changes = [
        InputRecord(topic, number % 12 % 2, f"user-{number % 12}", f"name-{number}", _T0 + number)
        for number in range(60)
    ]
    deleted = [InputRecord(topic, n % 2, f"user-{n}", None, _T0 + 100) for n in range(0, 12, 3)]
    return [*changes, *deleted]


class Lake:
    """The application, its topics, and its table paths."""

    def __init__(self, kafka: EmbeddedKafka, folder: Path) -> None:
        self.name = unique("lake")
        self.bootstrap = kafka.bootstrap_servers
        self.places = BrokerTopics(self.bootstrap)
        self.clicks, self.users = f"{self.name}-clicks", f"{self.name}-users"
        self.folder = folder
        self.places.create({self.clicks: 2, self.users: 2})

    def config(self, application: str) -> StreamsConfig:
        return StreamsConfig(
            application_id=application,
            bootstrap_servers=self.bootstrap,
            state_dir=str(self.folder / "state"),
            processing_guarantee="exactly_once_v2",
            commit_interval_ms=200,
            max_task_idle_ms=1_000,
        )

    def path(self, name: str) -> str:
        return str(self.folder / "tables" / name)

    def streams(self) -> KafkaStreams:
        builder = StreamsBuilder()
        stream = builder.stream(self.clicks, key=STRING, value=CLICK)
        stream.to_lake(
            self.path("parquet"), partition_by=["value.country"], name="clicks-to-parquet"
        )
        stream.to_lake(
            self.path("delta"),
            format="delta",
            partition_by=["date(timestamp)"],
            compact_every=2,
            name="clicks-to-delta",
        )
        stream.to_lake(
            self.path("iceberg"),
            format="iceberg",
            partition_by=["value.country"],
            name="clicks-to-iceberg",
        )
        table = builder.table(self.users, key=STRING, value=STRING)
        table.to_lake(self.path("users-delta"), format="delta", name="users-to-delta")
        table.to_lake(self.path("users-iceberg"), format="iceberg", name="users-to-iceberg")
        return KafkaStreams(builder.build(), self.config(self.name))

    @property
    def spark(self) -> SparkSession:
        """The session that the application has started."""
        local = current_local_session()
        assert local is not None
        assert local.session is not None
        return local.session

    def rows(self, name: str, format: LakeFormat) -> list[Any]:
        """The rows of a table; empty before it exists."""
        if not Path(self.path(name)).exists():
            return []
        try:
            return read_table(self.spark, self.path(name), format).collect()
        except Exception as error:
            # The folder exists before the first batch.
            if "not a Delta table" in str(error) or "Unable to infer" in str(error):
                return []
            if isinstance(error, StreamsError) and "no Iceberg table" in str(error):
                return []
            raise


@pytest.fixture(scope="module")
def lake(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """The running application, with all of its first input in its tables."""
    lake = Lake(kafka, tmp_path_factory.mktemp("lake"))
    lake.places.write([*clicks(lake.clicks, range(100)), *users(lake.users)])
    with lake.streams() as streams:
        streams.wait_for_state("RUNNING", timedelta(seconds=_TIMEOUT_S))
        for name in TABLES:
            wait_for(partial(is_done, lake, name), _TIMEOUT_S, f"all rows in {name}")
        yield lake


TABLES: dict[str, LakeFormat] = {
    "parquet": "parquet",
    "delta": "delta",
    "iceberg": "iceberg",
    "users-delta": "delta",
    "users-iceberg": "iceberg",
}


def is_done(lake: Lake, name: str) -> bool:
    rows = lake.rows(name, TABLES[name])
    if name.startswith("users"):
        return {row.key: row.value for row in rows} == expected_users()
    return len(rows) >= 100


def expected_users() -> dict[str, str]:
    names = {f"user-{number % 12}": f"name-{number}" for number in range(60)}
    return {user: name for user, name in names.items() if int(user[5:]) % 3}


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
def test_each_record_is_a_row(lake: Lake, format: LakeFormat) -> None:
    """With its key, value, timestamp and source position."""
    rows = lake.rows(format, format)
    offsets = [0, 0]
    expected = set()
    for sent in clicks(lake.clicks, range(100)):
        assert sent.value is not None
        click = msgspec.json.decode(sent.value, type=Click)
        expected.add((sent.key, click.page, click.country, sent.partition, offsets[sent.partition]))
        offsets[sent.partition] += 1
    found = [
        (row.key, row.value.page, row.value.country, row["_partition"], row["_offset"])
        for row in rows
    ]
    assert len(found) == 100
    assert set(found) == expected
    assert {row["_topic"] for row in rows} == {lake.clicks}
    assert {row.headers for row in rows} == {None}
    times = {row.key: row.timestamp.timestamp() for row in rows if row.value.page == "page-3"}
    assert times == {"user-3": (_T0 + 3_000) / 1_000}


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_table_has_the_last_value_of_each_key(lake: Lake, format: LakeFormat) -> None:
    """And no row for a deleted key."""
    rows = lake.rows(f"users-{format}", format)
    assert len(rows) == len({row.key for row in rows})
    assert {row.key: row.value for row in rows} == expected_users()


def test_a_table_can_precede_a_topic(lake: Lake) -> None:
    """Goal: history and topic together have the same counts as the topic alone; each record is
    counted once.

    The application of the fixture continues to write the table.
    """
    history, counts = f"{lake.name}-history", f"{lake.name}-counts"
    application = f"{lake.name}-counting"
    lake.places.create({counts: 2})
    lake.places.write(clicks(lake.clicks, range(100, 150)))
    done = [
        backfill(
            lake.spark,
            lake.path("delta"),
            format="delta",
            topic=lake.clicks,
            into=history,
            key=STRING,
            value=CLICK,
            config=lake.config(application),
        )
        for _ in range(2)
    ]
    assert done[0].records >= 100
    assert done[1].records == 0
    assert done[0].offsets == done[1].offsets
    assert sum(done[0].offsets.values()) == done[0].records

    builder = StreamsBuilder()
    both = builder.stream([history, lake.clicks], key=STRING, value=CLICK)
    pages = both.group_by_key().aggregate(
        str,
        lambda _, click, pages: f"{pages} {click.page[5:]}",
        store=Materialized("pages", value=STRING),
    )
    pages.to_stream().to(counts, key=STRING, value=STRING)
    expected: dict[bytes | None, bytes | None] = {}
    for number in range(150):
        user = f"user-{number % 7}".encode()
        expected[user] = (expected.get(user) or b"") + f" {number}".encode()
    with KafkaStreams(builder.build(), lake.config(application)):
        wait_for(
            lambda: latest(lake.bootstrap, counts) == expected,
            _TIMEOUT_S,
            "every page once and in order",
        )
