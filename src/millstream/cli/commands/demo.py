"""`millstream demo`: a broker, an application on Spark, input and results."""

from __future__ import annotations

import tempfile
import time
from contextlib import closing, suppress
from datetime import timedelta
from typing import Final

import click

from millstream.app import KafkaStreams
from millstream.cli.commands.init import has_server_extra
from millstream.cli.demo.shop import (
    ORDERS,
    REVENUE,
    OrderSender,
    RevenueReader,
    Totals,
    add_order,
    orders,
    revenue,
)
from millstream.cli.demo.spark_download import ensure_spark
from millstream.cli.demo.view import DemoProgress, DemoView, view
from millstream.cli.output import GOOD, print_json, print_message
from millstream.config.streams_config import StreamsConfig
from millstream.embedded.embedded_kafka import EmbeddedKafka
from millstream.errors import StreamsError

_PARTITIONS: Final = 4
_START_TIMEOUT: Final = timedelta(seconds=90)
#: The time limit for the totals, in addition to the time for sending.
_DEADLINE_S: Final = 120.0
_POLL_INTERVAL_S: Final = 0.2
_MIN_ORDERS_PER_S: Final = 1_000


@click.command("demo")
@click.option(
    "--orders",
    "number",
    type=click.IntRange(1),
    default=150_000,
    show_default=True,
    help="Number of orders to send.",
)
@click.option(
    "--threads", type=click.IntRange(1, 8), default=2, show_default=True, help="Stream threads."
)
@click.option("--keep", is_flag=True, help="Keep running until Ctrl-C, to use the console.")
@click.option("--json", "as_json", is_flag=True, help="Only print the result, as JSON.")
def command(number: int, threads: int, keep: bool, as_json: bool) -> int:
    """Watch an application add up the orders of a shop.

    Starts an Apache Kafka broker and a local Spark session, sends orders, shows the revenue of each
    product as it grows, and verifies every total. Meanwhile, the console of the application is
    available. Missing requirements (Spark, Java, the broker's jars) are downloaded once; nothing
    else is left behind. The exit code is 1 if a total is wrong.
    """
    if keep and as_json:
        raise click.UsageError("--keep and --json cannot be used together.")
    flags = (("--keep", keep), ("--json", as_json))
    words = ["--orders", str(number), "--threads", str(threads)]
    ensure_spark([*words, *(name for name, is_set in flags if is_set)])
    placed = list(orders(number))
    expected: dict[str, Totals] = {}
    for _, order in placed:
        product = order["product"]
        expected[product] = add_order(
            product, order, expected.get(product, {"orders": 0, "cents": 0})
        )
    if not as_json:
        print_message("Starting an Apache Kafka broker …")
    with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory(prefix="millstream-") as folder:
        servers = kafka.bootstrap_servers
        kafka.create_topic(ORDERS, _PARTITIONS)
        kafka.create_topic(REVENUE, _PARTITIONS)
        config = StreamsConfig(
            application_id="millstream-demo",
            bootstrap_servers=servers,
            num_stream_threads=threads,
            commit_interval_ms=1_000,
            state_dir=folder,
        )
        if not as_json:
            print_message("Starting Spark and the stream threads …")
        streams = KafkaStreams(revenue(), config)
        if not as_json and has_server_extra():
            print_message(f"Console: {streams.serve(port=0).console}")
        sender = OrderSender(servers, placed)
        with closing(RevenueReader(servers, _PARTITIONS)) as reader, view(quiet=as_json) as shown:
            began = time.monotonic()
            try:
                streams.start()
                streams.wait_for_state("RUNNING", _START_TIMEOUT)
                sender.start()
                _follow(streams, sender, reader, shown, number)
                took_s = time.monotonic() - began
                if keep:
                    _wait_for_interrupt(streams)
            finally:
                sender.stop()
                streams.close()
        return _check_totals(reader.totals, expected, took_s, as_json)


def _wait_for_interrupt(streams: KafkaStreams) -> None:
    print_message("All orders are added up. Press Ctrl-C to stop.")
    with suppress(KeyboardInterrupt):
        while streams.error is None:
            time.sleep(_POLL_INTERVAL_S)


def _follow(
    streams: KafkaStreams, sender: OrderSender, reader: RevenueReader, shown: DemoView, number: int
) -> None:
    """Show the totals until they contain all orders, or a timeout expires."""
    began = time.monotonic()
    deadline = began + _DEADLINE_S + number / _MIN_ORDERS_PER_S
    while reader.orders < number and time.monotonic() < deadline:
        reader.read()
        sender.check()
        if streams.error is not None:
            raise streams.error
        shown.show(_progress(streams, sender, reader, number, time.monotonic() - began))
    shown.show(_progress(streams, sender, reader, number, time.monotonic() - began), last=True)


def _progress(
    streams: KafkaStreams, sender: OrderSender, reader: RevenueReader, number: int, elapsed_s: float
) -> DemoProgress:
    return DemoProgress(
        elapsed_s,
        streams.state.name,
        sender.sent,
        number,
        reader.orders,
        reader.totals,
        {
            thread.thread_name: sorted(str(task.task_id) for task in thread.active_tasks)
            for thread in streams.metadata_for_local_threads()
        },
    )


def _check_totals(
    totals: dict[str, Totals], expected: dict[str, Totals], took_s: float, as_json: bool
) -> int:
    """Verify every total and print the result."""
    wrong = sorted(
        product
        for product in totals.keys() | expected.keys()
        if totals.get(product) != expected.get(product)
    )
    number = sum(each["orders"] for each in expected.values())
    if as_json:
        print_json(
            {"orders": number, "seconds": round(took_s, 1), "wrong": wrong, "totals": totals}
        )
        return 1 if wrong else 0
    if wrong:
        shown = wrong[0]
        raise StreamsError(
            f"{len(wrong)} of {len(expected)} totals are wrong, for example that of {shown}: "
            f"{totals.get(shown)} instead of {expected.get(shown)}."
        )
    print_message(
        f"{number:,} orders, {len(expected)} products: every total is correct ({took_s:.0f} s).",
        GOOD,
    )
    return 0
