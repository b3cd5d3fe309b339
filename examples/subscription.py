"""Sends the emails of a topic: many at a time, with retries, no faster than a file says.

    python examples/subscription.py --demo
    python examples/subscription.py --bootstrap-servers localhost:9092 --mail-server localhost:2525

The mail server is busy now and then, and knows nobody of some names: such emails are tried again
through a retry topic, and those that fail for the third time go to a dead-letter topic. How many
leave in a second is in a file that may change meanwhile. With --demo it needs no Kafka: it brings a
broker and a mail server along, changes the file after some seconds, and checks what became of each.
"""

from __future__ import annotations

import argparse
import asyncio
from datetime import timedelta
from pathlib import Path

from millstream.parallel import (
    ExponentialBackoff,
    ProcessingContext,
    ProcessorSubscription,
    Properties,
    PropertiesFile,
    Retry,
    SubscriptionConfig,
)
from millstream.serdes import STRING

TOPIC, RETRIES, DEAD = "emails", "emails-retry", "emails-dead"


class Mailer:
    """Hands emails to a mail server, which answers each with a line.

    Args:
        address: `host:port`.
    """

    def __init__(self, address: str) -> None:
        self.host, _, self.port = address.rpartition(":")

    async def send(self, context: ProcessingContext, email: str) -> None:
        """Send an email; what it raises makes it be tried again."""
        reader, writer = await asyncio.open_connection(self.host, int(self.port))
        try:
            writer.write(f"{email}\n".encode())
            answer = (await reader.readline()).decode().strip()
        finally:
            writer.close()
        if answer != "250 OK":
            raise OSError(f"the mail server says {answer!r}")


def mailer(config: SubscriptionConfig, mail_server: str, properties: Path) -> ProcessorSubscription:
    """The subscription: emails in, sent through the server."""
    return ProcessorSubscription(
        "mailer",
        topics=TOPIC,
        processor=Mailer(mail_server).send,
        value=STRING,
        config=config,
        properties=Properties(partition_concurrency=50, processing_shutdown_timeout_ms=10_000),
        properties_file=PropertiesFile(properties, poll_interval=timedelta(milliseconds=200)),
        retry=Retry(
            backoff=ExponentialBackoff(timedelta(milliseconds=200), most=timedelta(seconds=5)),
            topic=RETRIES,
            max_attempts=3,
            dead_letter_topic=DEAD,
        ),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Sends the emails of a topic.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-servers", help="your broker; the three topics must exist on it")
    where.add_argument("--demo", action="store_true", help="bring broker and mail server along")
    parser.add_argument("--mail-server", default="localhost:2525", help="its host:port")
    parser.add_argument("--properties", type=Path, default=Path("mailer.toml"), help="the file")
    options = parser.parse_args()
    if options.demo:
        from subscription_demo import demo

        return demo(mailer)
    config = SubscriptionConfig("mailer", options.bootstrap_servers)
    mailer(config, options.mail_server, options.properties).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
