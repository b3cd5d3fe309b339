"""The demo of `subscription.py`: a broker, a mail server, emails, and a check."""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from millstream.parallel import ProcessorSubscription, SubscriptionConfig, TaskProducer
from millstream.serdes import STRING
from millstream.testing import EmbeddedKafka

TOPIC, RETRIES, DEAD = "emails", "emails-retry", "emails-dead"
EMAILS, PARTITIONS = 3_000, 2
#: One in `UNKNOWN_EVERY` emails has an unknown address; one in `BUSY_EVERY` is rejected at first.
UNKNOWN_EVERY, BUSY_EVERY = 100, 20
SLOW, FAST = 100, 1_000
SLOW_S = 4
DEADLINE_S = 60.0


class MailServer:
    """A server that accepts one email per connection, within 10 ms.

    It runs on a background thread.
    """

    def __init__(self) -> None:
        self.address = ""
        #: The number of attempts of each email, and the accepted emails.
        self.attempts: Counter[str] = Counter()
        self.accepted: set[str] = set()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mail-server", daemon=True)

    def __enter__(self) -> MailServer:
        self._thread.start()
        self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1_000)
        )
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        self._loop.run_forever()
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            email = (await reader.readline()).decode().strip()
            await asyncio.sleep(0.010)
            self.attempts[email] += 1
            answer = self._answer(email)
            if answer == "250 OK":
                self.accepted.add(email)
            writer.write(f"{answer}\n".encode())

    def _answer(self, email: str) -> str:
        if is_unknown(email):
            return "550 unknown address"
        if number_of(email) % BUSY_EVERY == 0 and self.attempts[email] == 1:
            return "450 busy, try again later"
        return "250 OK"


def number_of(email: str) -> int:
    """Return the number at the beginning of an email."""
    return int(email.partition(" ")[0])


def is_unknown(email: str) -> bool:
    """Return whether the address of an email is unknown."""
    return number_of(email) % UNKNOWN_EVERY == 1


def demo(mailer: Callable[[SubscriptionConfig, str, Path], ProcessorSubscription]) -> int:
    """Run the demo; return 0 if every email has the expected outcome.

    Each email is accepted, or becomes a dead letter after 3 attempts.
    """
    emails = [f"{number} hello, reader {number % 500}!" for number in range(EMAILS)]
    print("Starting an Apache Kafka broker, a mail server, and Spark …", flush=True)
    with (
        EmbeddedKafka() as kafka,
        MailServer() as server,
        tempfile.TemporaryDirectory(prefix="mailer-") as folder,
    ):
        for topic in (TOPIC, RETRIES, DEAD):
            kafka.create_topic(topic, PARTITIONS)
        properties = Path(folder) / "mailer.toml"
        limit(properties, SLOW)
        with TaskProducer(
            TOPIC,
            application_id="shop",
            bootstrap_servers=kafka.bootstrap_servers,
            value=STRING,
            key=STRING,
        ) as producer:
            for email in emails:
                producer.put(f"reader-{number_of(email) % 500}", email)
        config = SubscriptionConfig(
            "mailer", kafka.bootstrap_servers, state_dir=folder, num_threads=1
        )
        subscription = mailer(config, server.address, properties)
        subscription.start()
        try:
            subscription.wait_for_state("RUNNING", timedelta(seconds=DEADLINE_S))
            follow(server, properties)
            dead = dead_letters(kafka.bootstrap_servers, sum(map(is_unknown, emails)))
        finally:
            subscription.close(timedelta(seconds=30))
    return check(emails, server, dead)


def limit(properties: Path, rate: int) -> None:
    """Write the maximum number of emails per second and partition to the file."""
    properties.write_text(f"processing_rate_per_partition = {rate}\n")
    print(f"mailer.toml: processing_rate_per_partition = {rate}", flush=True)


def follow(server: MailServer, properties: Path) -> None:
    """Print the progress until all emails are processed.

    Changes the rate limit after `SLOW_S`.
    """
    before, since = 0, time.monotonic()
    deadline = since + DEADLINE_S
    for second in range(1, int(DEADLINE_S)):
        time.sleep(1)
        attempts, now = server.attempts.total(), time.monotonic()
        rate = (attempts - before) / (now - since)
        accepted = len(server.accepted)
        print(f"{second:3} s: {rate:5.0f} attempts per second, {accepted:5} emails accepted")
        before, since = attempts, now
        if second == SLOW_S:
            limit(properties, FAST)
        failed = sum(count == 3 for email, count in server.attempts.items() if is_unknown(email))
        if accepted + failed == EMAILS or now > deadline:
            return


def dead_letters(bootstrap_servers: str, count: int) -> list[str]:
    """Wait for `count` emails in the dead-letter topic, and return them.

    They are written shortly after their last attempt.
    """
    deadline = time.monotonic() + DEADLINE_S / 4
    while len(found := values_of(bootstrap_servers, DEAD)) < count and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def values_of(bootstrap_servers: str, topic: str) -> list[str]:
    """Return the values in a topic."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "results", "log_level": 3}
    )
    with closing(consumer):
        partitions = [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
        count = sum(consumer.get_watermark_offsets(each, timeout=10)[1] for each in partitions)
        consumer.assign(partitions)
        found: list[str] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(found) < count and time.monotonic() < deadline:
            found += [(each.value() or b"").decode() for each in consumer.consume(count, 0.5)]
    return found


def check(emails: list[str], server: MailServer, dead: list[str]) -> int:
    """Compare the outcomes with the expected ones; return 0 if they are equal."""
    retried = sum(count > 1 for count in server.attempts.values())
    print(f"{len(server.accepted)} emails accepted, {retried} retried, {len(set(dead))} failed")
    unknown = {email for email in emails if is_unknown(email)}
    if server.accepted == set(emails) - unknown and set(dead) == unknown:
        print("every email was sent, or failed after three attempts")
        return 0
    missing = set(emails) - server.accepted - set(dead)
    print(f"WRONG: {len(missing)} emails are missing, {len(set(dead) - unknown)} failed too early")
    return 1
