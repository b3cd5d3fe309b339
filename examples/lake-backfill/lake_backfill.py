"""Writes a clickstream to a lake table, and counts its complete history.

    python examples/lake-backfill/lake_backfill.py --demo
    python examples/lake-backfill/lake_backfill.py keep --bootstrap-servers … --lake /lake/clicks
    python examples/lake-backfill/lake_backfill.py count --bootstrap-servers … --lake /lake/clicks

One application writes all clicks to an Iceberg table, exactly once. Another one, started later,
counts them by country: first the clicks in the table, then those in the topic. With --demo, both
run on an embedded broker, one after the other; in between, the clicks that are in the table are
deleted from the topic. At the end, the counts are checked.
"""

from __future__ import annotations

import argparse
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from lake_backfill_demo import Demo
from pyspark.sql import SparkSession

from millstream import KafkaStreams, StreamsBuilder, StreamsConfig, Topology, Trigger
from millstream.lake import spark_settings
from millstream.serdes import LONG, STRING, json_of


class Click(msgspec.Struct):
    """A click of a user."""

    page: str
    country: str


CLICK = json_of(Click)
CLICKS, COUNTS = "clicks", "clicks-by-country"


def kept(lake: Path) -> Topology:
    """Build a topology that writes all clicks to a table."""
    builder = StreamsBuilder()
    builder.stream(CLICKS, key=STRING, value=CLICK).to_lake(
        lake,
        format="iceberg",
        partition_by=["value.country"],
        trigger=Trigger.processing_time("1 second"),
        name="clicks-to-lake",
    )
    return builder.build()


def counted(lake: Path) -> Topology:
    """Build a topology that counts the clicks in the table and the topic by country."""
    builder = StreamsBuilder()
    clicks = builder.stream_from_lake(
        lake, format="iceberg", key=STRING, value=CLICK, then=CLICKS, name="clicks"
    )
    by_country = clicks.group_by(lambda _, click: click.country, key=STRING, value=CLICK)
    counts = by_country.count(name="counts")
    counts.to_stream().to(COUNTS, key=STRING, value=LONG)
    return builder.build()


def config(application: str, bootstrap_servers: str, state: Path) -> StreamsConfig:
    """Return settings for exactly-once processing."""
    return StreamsConfig(
        application_id=application,
        bootstrap_servers=bootstrap_servers,
        state_dir=str(state),
        processing_guarantee="exactly_once_v2",
        commit_interval_ms=500,
    )


@contextmanager
def session() -> Generator[SparkSession]:
    """Yield a small Spark session with support for Iceberg."""
    builder = SparkSession.builder.master("local[6]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    for name, value in spark_settings("iceberg", "kafka").items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description="Writes clicks to a lake table, and counts them.")
    parser.add_argument("action", nargs="?", choices=["keep", "count"])
    parser.add_argument(
        "--demo", action="store_true", help="run both on a broker, and check the counts"
    )
    parser.add_argument(
        "--bootstrap-servers", help=f"your broker, with the topics {CLICKS} and {COUNTS}"
    )
    parser.add_argument("--lake", type=Path, help="the folder of the table")
    parser.add_argument("--state", type=Path, default=Path("clickstream-state"))
    options = parser.parse_args()
    if options.demo:
        return Demo(session, config, kept, counted).run()
    if not (options.action and options.bootstrap_servers and options.lake):
        parser.error("pass --demo, or keep or count with --bootstrap-servers and --lake")
    settings = config(f"clicks-{options.action}", options.bootstrap_servers, options.state)
    with session() as spark:
        topology = kept if options.action == "keep" else counted
        KafkaStreams(topology(options.lake), settings, spark).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
