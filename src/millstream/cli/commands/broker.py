"""`millstream broker`: a Kafka broker in the foreground, for development."""

from __future__ import annotations

import signal
import sys
import time
from types import FrameType

import click

from millstream.cli.output import print_json, print_message
from millstream.embedded.embedded_kafka import EmbeddedKafka
from millstream.embedded.jars import KAFKA_VERSION
from millstream.errors import EmbeddedKafkaError

#: Kafka's default port.
DEFAULT_PORT = 9092
_POLL_INTERVAL_S = 0.2


def _topic(text: str) -> tuple[str, int]:
    name, colon, partitions = text.partition(":")
    if not name or (colon and not (partitions.isdecimal() and int(partitions) > 0)):
        raise click.BadParameter(
            f"{text!r} is not a topic: use a name, or name:partitions as in clicks:4"
        )
    return name, int(partitions or 1)


def _property(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.BadParameter(
            f"{text!r} is not a setting: use key=value as in log.retention.ms=60000"
        )
    return key, value


@click.command("broker")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=DEFAULT_PORT,
    show_default=True,
    help="The port for clients; 0 chooses a free one. Additional brokers use the next ports.",
)
@click.option(
    "--brokers",
    type=click.IntRange(1, 9),
    default=1,
    show_default=True,
    help="Number of brokers; with three, each record has three replicas.",
)
@click.option(
    "--topic",
    "topics",
    type=_topic,
    multiple=True,
    metavar="NAME[:PARTITIONS]",
    help="Create a topic; may be repeated.",
)
@click.option(
    "--property",
    "properties",
    type=_property,
    multiple=True,
    metavar="KEY=VALUE",
    help="A broker setting, by its name in Kafka; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the address as JSON.")
def command(
    port: int,
    brokers: int,
    topics: tuple[tuple[str, int], ...],
    properties: tuple[tuple[str, str], ...],
    as_json: bool,
) -> int:
    """Run an Apache Kafka broker until Ctrl-C.

    --brokers starts a cluster of several brokers. They listen on this machine only, and their data
    is deleted at the end.
    """
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        ports = range(port, port + brokers) if port else None
        with EmbeddedKafka(port=ports, properties=dict(properties), brokers=brokers) as kafka:
            for name, partitions in topics:
                kafka.create_topic(name, partitions)
            if as_json:
                print_json({"bootstrap.servers": kafka.bootstrap_servers, "kafka": KAFKA_VERSION})
            else:
                click.echo(f"bootstrap.servers={kafka.bootstrap_servers}")
            sys.stdout.flush()
            print_message(f"Apache Kafka {KAFKA_VERSION} is running; Ctrl-C stops it.")
            while kafka.is_running:
                time.sleep(_POLL_INTERVAL_S)
            raise EmbeddedKafkaError("The broker ended unexpectedly: it was killed or crashed.")
    except KeyboardInterrupt:
        return 0
    finally:
        signal.signal(signal.SIGTERM, previous)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
