"""Runs the blocks of pages that need a broker, Spark, or a running application.

A page's blocks are run from top to bottom, as in test_pages.py, including those marked
`<!-- on a broker -->`. Addresses and folders are replaced by those of the test. The prerequisites
of a page, such as a running application, are set up here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from support.broker.topics import BrokerTopics, fill, topic_names
from support.docs.blocks import ROOT, Block, blocks, execute
from support.waiting import wait_for

import millstream
import millstream.lake
from millstream import KafkaStreams, QueryableStoreTypes, StreamsBuilder, StreamsConfig
from millstream.serdes import LONG, STRING
from millstream.spark.sessions.connectors import add_to_jvm
from millstream.testing import EmbeddedKafka, TopologyTestDriver

DOCS = ROOT / "docs"
MARK = "on a broker"
TIMEOUT_S = 60.0


class Stage(NamedTuple):
    """The environment in which a page's blocks are run.

    Attributes:
        broker: a broker of this module.
        spark: a session with Delta.
        folder: an empty folder that replaces the folders in the page.
        closing: closes everything at the end.
    """

    broker: EmbeddedKafka
    spark: SparkSession
    folder: Path
    closing: ExitStack


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    """A broker of its own, since pages choose the names of topics."""
    with EmbeddedKafka() as broker:
        yield broker


@pytest.fixture(scope="module")
def delta_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark session as in docs/build/lake.md."""
    if SparkContext._gateway is not None:
        # Spark only loads the packages of its settings when the JVM starts.
        add_to_jvm(SparkContext._jvm, ["delta"])
    session = SparkSession.builder.master("local[6]").config("spark.ui.enabled", "false")
    session = session.config("spark.driver.host", "127.0.0.1")
    # Spark's default of 200 partitions would start 200 tasks.
    session = session.config("spark.sql.shuffle.partitions", "2")
    warehouse = tmp_path_factory.mktemp("warehouse")
    session = session.config("spark.sql.warehouse.dir", str(warehouse))
    for name, value in millstream.lake.spark_settings("delta").items():
        session = session.config(name, value)
    spark = session.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    yield spark
    spark.stop()


@pytest.fixture
def stage(broker: EmbeddedKafka, delta_spark: SparkSession, tmp_path: Path) -> Iterator[Stage]:
    """One broker and session for all pages, and a folder for each."""
    with ExitStack() as closing:
        yield Stage(broker, delta_spark, tmp_path, closing)
    delete_topics(broker.bootstrap_servers)


def delete_topics(servers: str) -> None:
    """Delete the topics of a page, since the next one may use the same names."""
    names = [name for name in topic_names(servers) if not name.startswith("__")]
    if names:
        BrokerTopics(servers).delete(*names)


def counting(stage: Stage) -> dict[str, Any]:
    """Start an application with a filled store of counts, and create customers."""
    servers = stage.broker.bootstrap_servers
    stage.broker.create_topic("words", 2)
    fill(servers, "words", [(b"ann", b"x")] * 3 + [(b"bob", b"x")])
    builder = StreamsBuilder()
    builder.stream("words", key=STRING, value=STRING).group_by_key().count(store="counts")
    config = StreamsConfig(
        application_id=stage.folder.name.replace("_", "-"),
        bootstrap_servers=servers,
        state_dir=str(stage.folder / "state"),
        commit_interval_ms=200,
    )
    streams = stage.closing.enter_context(KafkaStreams(builder.build(), config, stage.spark))
    streams.wait_for_state("RUNNING", timedelta(seconds=TIMEOUT_S))
    counts = streams.store("counts", QueryableStoreTypes.key_value())

    def is_counted() -> bool:
        try:
            return counts.get("ann") == 3 and counts.get("bob") == 1
        except millstream.errors.InvalidStateStoreError:
            return False

    wait_for(is_counted, TIMEOUT_S)
    customers = stage.spark.createDataFrame([("ann",), ("bob",)], ["id"])
    return {
        "streams": streams,
        "customers": customers,
        "spark": stage.spark,
        "QueryableStoreTypes": QueryableStoreTypes,
    }


def stores(stage: Stage) -> dict[str, Any]:
    """Set up `counting` and a package with a serde; stop the queries at the end."""
    namespace = counting(stage)
    package = stage.folder / "my_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "serdes.py").write_text("from millstream.serdes import LONG as COUNT\n")
    sys.path.insert(0, str(stage.folder))
    stage.closing.callback(sys.path.remove, str(stage.folder))
    stage.closing.callback(stop_queries, stage.spark)
    return namespace


def stop_queries(spark: SparkSession) -> None:
    """Stop the queries of a page after they have processed all data."""
    for query in spark.streams.active:
        query.processAllAvailable()
        assert query.exception() is None
        query.stop()


def lake(stage: Stage) -> dict[str, Any]:
    """Create tables as `to_lake` writes them, and their topics."""
    for topic in ("clicks", "pages-history"):
        stage.broker.create_topic(topic, 2)
    fill(stage.broker.bootstrap_servers, "clicks", [(b"ann", b'{"page": "/", "country": "NZ"}')])
    rows = stage.spark.sql(
        "SELECT 'ann' AS key, named_struct('page', '/', 'country', 'NZ') AS value, "
        "timestamp_millis(1000) AS timestamp, "
        "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers, "
        "'clicks' AS _topic, 0 AS _partition, 0L AS _offset"
    )
    rows.write.format("delta").save(str(stage.folder / "lake" / "clicks"))
    return {"spark": stage.spark}


def topics(*names: str) -> Callable[[Stage], dict[str, Any]]:
    """Set up a page that only needs topics."""

    def make(stage: Stage) -> dict[str, Any]:
        for name in names:
            stage.broker.create_topic(name, 2)
        return {}

    return make


PAGES: dict[str, Callable[[Stage], dict[str, Any]]] = {
    "getting-started.md": topics("lines", "word-counts"),
    "build/lake.md": lake,
    "build/queries.md": counting,
    "build/stores-as-dataframes.md": stores,
    "build/task-format.md": topics("mails"),
    "build/testing.md": topics(),
    "operations/running.md": topics("in", "out"),
    "operations/secured-clusters.md": topics(),
}


def localized(block: Block, stage: Stage, application_id: str) -> Block:
    """Replace a block's broker and folders by those of the test."""
    code = block.code
    for address in ("localhost:9092", "kafka:9092"):
        code = code.replace(f'"{address}"', repr(stage.broker.bootstrap_servers))
    for folder in ("/lake/", "/checkpoints/"):
        code = code.replace(f'"{folder}', f'"{stage.folder}{folder}')
    return block._replace(code=code.replace('application_id="shop"', application_id))


def test_all_pages_with_marked_blocks_are_listed() -> None:
    marked = {
        str(page.relative_to(DOCS))
        for page in DOCS.rglob("*.md")
        if any(block.mark == MARK for block in blocks(page))
    }
    assert marked == PAGES.keys()


@pytest.mark.extended
@pytest.mark.parametrize("page", PAGES)
def test_blocks_on_a_broker_run(
    page: str,
    stage: Stage,
    topology_driver: Callable[..., TopologyTestDriver],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The blocks of a page work in its environment."""
    namespace = {"__name__": "docs", "timedelta": timedelta, "KafkaStreams": KafkaStreams}
    namespace |= {"STRING": STRING, "LONG": LONG, "StreamsConfig": StreamsConfig}
    namespace |= PAGES[page](stage)
    # For relative paths in the page, and for Spark's files.
    monkeypatch.chdir(stage.folder)
    # `run` blocks until Ctrl-C; test_first_minutes.py covers it.
    monkeypatch.setattr(KafkaStreams, "run", lambda self: None)
    fixtures = {
        "kafka": stage.broker,
        "tmp_path": stage.folder,
        "topology_driver": topology_driver,
    }
    application_id = f'application_id="{stage.folder.name.replace("_", "-")}"'
    for block in blocks(DOCS / page):
        if block.mark in ("", MARK):
            with monkeypatch.context() as patched:
                if not block.mark:
                    patched.setattr(KafkaStreams, "start", lambda self: None)
                execute(localized(block, stage, application_id), DOCS / page, namespace, fixtures)
