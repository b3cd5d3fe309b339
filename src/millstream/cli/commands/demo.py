"""`millstream demo`: a broker, an application on Spark, its input and its results, in a minute."""

from __future__ import annotations

import tempfile
import time
from contextlib import closing, suppress
from datetime import timedelta
from typing import Final

import click

from millstream.app import KafkaStreams
from millstream.cli.demo.fetched_spark import go_on_with_spark
from millstream.cli.demo.shop import ORDERS, REVENUE, Totals, add, orders, revenue
from millstream.cli.demo.traffic import Reader, Sender
from millstream.cli.demo.view import Moment, View, view
from millstream.cli.output import GOOD, print_json, say
from millstream.cli.project import can_serve
from millstream.config import StreamsConfig
from millstream.embedded.broker import EmbeddedKafka
from millstream.errors import StreamsError

_PARTITIONS: Final = 4
_RUNNING: Final = timedelta(seconds=90)
#: What adding up may take beyond the sending.
_DEADLINE_S: Final = 120.0
_LOOK_S: Final = 0.2
_ORDERS_A_SECOND_LEAST: Final = 1_000


@click.command("demo")
@click.option(
    "--orders",
    "number",
    type=click.IntRange(1),
    default=150_000,
    show_default=True,
    help="How many are sent.",
)
@click.option(
    "--threads", type=click.IntRange(1, 8), default=2, show_default=True, help="Stream threads."
)
@click.option("--keep", is_flag=True, help="Go on until Ctrl-C, to look at the console.")
@click.option("--json", "as_json", is_flag=True, help="Show only the result, as JSON.")
def command(number: int, threads: int, keep: bool, as_json: bool) -> int:
    """Watch a shop's orders being added up.

    Starts an Apache Kafka broker and a local Spark session, sends orders, shows the revenue of each
    product as it grows, and compares every total with its own; its console can be opened meanwhile.
    What it needs is fetched once where it is not installed: Spark, Java, the broker's jars. Leaves
    nothing else behind. The exit code is 1 if a total is wrong.
    """
    if keep and as_json:
        raise click.UsageError("--keep is for who looks, --json for programs: give one of them.")
    flags = (("--keep", keep), ("--json", as_json))
    words = ["--orders", str(number), "--threads", str(threads)]
    go_on_with_spark([*words, *(name for name, is_set in flags if is_set)])
    placed = list(orders(number))
    expected: dict[str, Totals] = {}
    for _, order in placed:
        product = order["product"]
        expected[product] = add(product, order, expected.get(product, {"orders": 0, "cents": 0}))
    if not as_json:
        say("Starts an Apache Kafka broker …")
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
            say("Starts Spark and the stream threads …")
        streams = KafkaStreams(revenue(), config)
        if not as_json and can_serve():
            say(f"Its console: {streams.serve(port=0).console}")
        sender = Sender(servers, placed)
        with closing(Reader(servers, _PARTITIONS)) as reader, view(quiet=as_json) as shown:
            began = time.monotonic()
            try:
                streams.start()
                streams.wait_for_state("RUNNING", _RUNNING)
                sender.start()
                _follow(streams, sender, reader, shown, number)
                took_s = time.monotonic() - began
                if keep:
                    _wait_for_interrupt(streams)
            finally:
                sender.stop()
                streams.close()
        return _verdict(reader.totals, expected, took_s, as_json)


def _wait_for_interrupt(streams: KafkaStreams) -> None:
    say("All is added up. Ctrl-C ends it.")
    with suppress(KeyboardInterrupt):
        while streams.error is None:
            time.sleep(_LOOK_S)


def _follow(
    streams: KafkaStreams, sender: Sender, reader: Reader, shown: View, number: int
) -> None:
    """Show the totals until they hold all orders, or take too long to."""
    began = time.monotonic()
    deadline = began + _DEADLINE_S + number / _ORDERS_A_SECOND_LEAST
    while reader.orders < number and time.monotonic() < deadline:
        reader.read()
        sender.check()
        if streams.error is not None:
            raise streams.error
        shown.show(_moment(streams, sender, reader, number, time.monotonic() - began))
    shown.show(_moment(streams, sender, reader, number, time.monotonic() - began), last=True)


def _moment(
    streams: KafkaStreams, sender: Sender, reader: Reader, number: int, elapsed_s: float
) -> Moment:
    return Moment(
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


def _verdict(
    totals: dict[str, Totals], expected: dict[str, Totals], took_s: float, as_json: bool
) -> int:
    """Compare every total and tell the result."""
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
    say(
        f"{number:,} orders, {len(expected)} products: every total is right ({took_s:.0f} s).", GOOD
    )
    return 0
