"""`millstream broker`: a real Kafka broker in the foreground, for development."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from types import FrameType

from millstream.embedded.broker import EmbeddedKafka
from millstream.embedded.jars import KAFKA_VERSION
from millstream.errors import EmbeddedKafkaError

NAME = "broker"
HELP = "Run an Apache Kafka broker on this machine until Ctrl-C; its data go away with it."

_DEFAULT_PORT = 9092
_LOOK_INTERVAL_S = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the port, the topics and the broker's settings."""
    parser.add_argument(
        "--port",
        type=_port,
        default=_DEFAULT_PORT,
        help="where clients connect (default %(default)s); 0 chooses a free one",
    )
    parser.add_argument(
        "--topic",
        type=_topic,
        action="append",
        default=[],
        dest="topics",
        metavar="NAME[:PARTITIONS]",
        help="create a topic; may be repeated",
    )
    parser.add_argument(
        "--property",
        type=_property,
        action="append",
        default=[],
        dest="properties",
        metavar="KEY=VALUE",
        help="a broker setting by Kafka's name; may be repeated",
    )


def run(arguments: argparse.Namespace) -> int:
    """Start the broker, print its address, and stay until Ctrl-C or SIGTERM."""
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        with EmbeddedKafka(
            port=arguments.port or None, properties=dict(arguments.properties)
        ) as kafka:
            for name, partitions in arguments.topics:
                kafka.create_topic(name, partitions)
            print(f"bootstrap.servers={kafka.bootstrap_servers}", flush=True)
            print(f"Apache Kafka {KAFKA_VERSION} is running; Ctrl-C stops it.", file=sys.stderr)
            while kafka.is_running:
                time.sleep(_LOOK_INTERVAL_S)
            raise EmbeddedKafkaError("The broker ended by itself: it was killed or crashed.")
    except KeyboardInterrupt:
        return 0
    finally:
        signal.signal(signal.SIGTERM, previous)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: give a number from 0 to 65535")
    return int(text)


def _topic(text: str) -> tuple[str, int]:
    name, colon, partitions = text.partition(":")
    if not name or (colon and not (partitions.isdecimal() and int(partitions) > 0)):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a topic: give a name, or name:partitions as in clicks:4"
        )
    return name, int(partitions or 1)


def _property(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a setting: give key=value as in log.retention.ms=60000"
        )
    return key, value
