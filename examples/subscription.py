"""Sends the emails in a topic concurrently, with retries and a rate limit.

    python examples/subscription.py --demo
    python examples/subscription.py --bootstrap-servers localhost:9092 --mail-server localhost:2525

If the mail server is busy or rejects an address, the email is retried through a retry topic. After
the third failure, it is written to a dead-letter topic. The rate limit is in a file that can be
changed at run time. With --demo, the program starts a broker and a mail server, changes the file
after a few seconds, and checks the outcome of every email.
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
    """The client of a mail server that responds to each email with a line.

    Args:
        address: `host:port`.
    """

    def __init__(self, address: str) -> None:
        self.host, _, self.port = address.rpartition(":")

    async def send(self, context: ProcessingContext, email: str) -> None:
        """Send an email. The subscription retries it after an exception."""
        reader, writer = await asyncio.open_connection(self.host, int(self.port))
        try:
            writer.write(f"{email}\n".encode())
            answer = (await reader.readline()).decode().strip()
        finally:
            writer.close()
        if answer != "250 OK":
            raise OSError(f"the mail server responded with {answer!r}")


def mailer(config: SubscriptionConfig, mail_server: str, properties: Path) -> ProcessorSubscription:
    """Return a subscription that sends emails through the server."""
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
    parser = argparse.ArgumentParser(description="Sends the emails in a topic.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-servers", help="your broker; the three topics must exist on it")
    where.add_argument(
        "--demo",
        action="store_true",
        help="start a broker and a mail server, and check the results",
    )
    parser.add_argument("--mail-server", default="localhost:2525", help="host:port")
    parser.add_argument(
        "--properties", type=Path, default=Path("mailer.toml"), help="the file with the rate limit"
    )
    options = parser.parse_args()
    if options.demo:
        from subscription_demo import demo

        return demo(mailer)
    config = SubscriptionConfig("mailer", options.bootstrap_servers)
    mailer(config, options.mail_server, options.properties).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
