"""The demo of `async_enrichment.py`: a broker, a web service, visits, a check."""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from millstream import KafkaStreams, StreamsConfig, Topology
from millstream.testing import EmbeddedKafka

CUSTOMERS = 2_000
RESPONSE_S = 0.010
#: The number of visits with sequential and with concurrent requests.
SEQUENTIAL, CONCURRENT = 200, 10_000
DEADLINE_S = 60.0
COUNTRIES = ("Norway", "Portugal", "Japan", "Ghana", "Peru")


def country_of(customer: str) -> str:
    """Return the country of a customer, as the service does."""
    return COUNTRIES[int(customer.removeprefix("customer-")) % len(COUNTRIES)]


class SlowService:
    """An HTTP server that responds to each request after `RESPONSE_S`.

    It runs on a background thread.
    """

    def __init__(self) -> None:
        self.address = ""
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slow-service", daemon=True)

    def __enter__(self) -> SlowService:
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
        # Close the connections of clients.
        connections = asyncio.all_tasks(self._loop)
        for task in connections:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*connections, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Respond to the requests of one connection."""
        with closing(writer):
            while True:
                try:
                    request = await reader.readuntil(b"\r\n\r\n")
                except (asyncio.IncompleteReadError, ConnectionError):
                    return
                customer = request.split(b" ", 2)[1].decode().removeprefix("/")
                await asyncio.sleep(RESPONSE_S)
                body = json.dumps({"country": country_of(customer)})
                writer.write(
                    f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
                )


class Demo:
    """Runs the topology twice, on local Spark and an embedded broker.

    Args:
        make_topology: takes the address of the service, the number of concurrent requests, and the
            names of the topics.
        options: the command-line options.
    """

    def __init__(
        self, make_topology: Callable[[str, int, str, str], Topology], options: argparse.Namespace
    ) -> None:
        self._make_topology = make_topology
        self._concurrency: int = options.concurrency

    def run(self) -> int:
        """Run the demo; return 0 if every visit has its country, in order by customer."""
        print("Starting an Apache Kafka broker, a web service, and Spark …", flush=True)
        with EmbeddedKafka() as kafka, SlowService() as service:
            sequential = self._rate(kafka, service, 1, SEQUENTIAL)
            concurrent = self._rate(kafka, service, self._concurrency, CONCURRENT)
        if sequential is None or concurrent is None:
            return 1
        print(
            f"{concurrent / sequential:.0f} times as fast on one partition; every visit has its "
            "country, and the visits of each customer are in order"
        )
        return 0

    def _rate(
        self, kafka: EmbeddedKafka, service: SlowService, concurrency: int, count: int
    ) -> float | None:
        """Return the visits processed per second; None if the results are wrong."""
        inputs, outputs = f"visits-{concurrency}", f"places-{concurrency}"
        for topic in (inputs, outputs):
            kafka.create_topic(topic, 1)
        visits = [f"customer-{number % CUSTOMERS}" for number in range(count)]
        with tempfile.TemporaryDirectory(prefix="enrich-") as folder:
            config = StreamsConfig(
                application_id=f"enrich-{concurrency}-at-a-time",
                bootstrap_servers=kafka.bootstrap_servers,
                state_dir=folder,
                commit_interval_ms=1_000,
            )
            topology = self._make_topology(service.address, concurrency, inputs, outputs)
            streams = KafkaStreams(topology, config)
            streams.start()
            try:
                streams.wait_for_state("RUNNING", timedelta(seconds=DEADLINE_S))
                began = time.monotonic()
                send(kafka.bootstrap_servers, inputs, visits)
                with closing(Results(kafka.bootstrap_servers, outputs)) as results:
                    found = results.take(count)
                took_s = time.monotonic() - began
            finally:
                streams.close(timedelta(seconds=30))
        requests = "1 request" if concurrency == 1 else f"{concurrency} requests"
        print(f"{requests:>12} at a time: {count / took_s:7,.0f} visits per second", flush=True)
        return count / took_s if is_right(found, visits) else None


def is_right(found: list[tuple[str, int, str]], visits: list[str]) -> bool:
    """Return whether visits have the right countries, in order by customer."""
    last: dict[str, int] = {}
    for customer, visit, country in found:
        if country != country_of(customer):
            print(f"WRONG: {customer} is in {country_of(customer)}, not in {country}")
            return False
        if visit <= last.get(customer, -1):
            print(f"WRONG: visit {visit} of {customer} came after visit {last[customer]}")
            return False
        last[customer] = visit
    if len(found) != len(visits):
        print(f"WRONG: {len(found)} of {len(visits)} visits were written in {DEADLINE_S:.0f} s")
        return False
    return True


def send(bootstrap_servers: str, topic: str, visits: list[str]) -> None:
    """Write the visits with consecutive numbers."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5})
    for number, customer in enumerate(visits):
        producer.produce(topic, json.dumps({"visit": number}).encode(), customer.encode())
        if number % 10_000 == 0:
            producer.flush()
    producer.flush()


class Results:
    """Reads the output topic: customer, number of the visit, country."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap_servers, "group.id": "results", "log_level": 3}
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def take(self, count: int) -> list[tuple[str, int, str]]:
        """Read `count` results; fewer after a timeout."""
        found: list[tuple[str, int, str]] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(found) < count and time.monotonic() < deadline:
            for record in self._consumer.consume(5_000, 0.1):
                if (error := record.error()) is not None:
                    raise KafkaException(error)
                value = json.loads(record.value() or b"")
                found.append(((record.key() or b"").decode(), value["visit"], value["country"]))
        return found

    def close(self) -> None:
        self._consumer.close()
