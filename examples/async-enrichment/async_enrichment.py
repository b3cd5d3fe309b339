"""Asks a web service about every record, a hundred at a time, and keeps the order of each key.

    python examples/async-enrichment/async_enrichment.py --demo
    python examples/async-enrichment/async_enrichment.py \
        --bootstrap-servers localhost:9092 --service localhost:8000

Visits of customers come in; the service knows where a customer lives, and takes 10 ms to say so.
With --demo it needs no Kafka: it brings a broker and the service along, works on some visits with
one request at a time and on many with a hundred, checks the results, and tells the speed-up.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import deque
from datetime import timedelta
from typing import Any

from millstream import KafkaStreams, StreamsBuilder, StreamsConfig, Topology
from millstream.serdes import JSON, STRING


class Service:
    """Asks the service over HTTP, on connections that are kept. Belongs to one event loop.

    Args:
        address: `host:port`.
    """

    def __init__(self, address: str) -> None:
        self.host, _, self.port = address.rpartition(":")
        self._idle: deque[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = deque()

    async def country(self, customer: str) -> str:
        """Where a customer lives.

        Raises:
            OSError: the service cannot be reached, or does not know.
        """
        if self._idle:
            reader, writer = self._idle.pop()
        else:
            reader, writer = await asyncio.open_connection(self.host, int(self.port))
        try:
            writer.write(f"GET /{customer} HTTP/1.1\r\nHost: {self.host}\r\n\r\n".encode())
            status, *headers = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            length = next(int(h[15:]) for h in headers if h.lower().startswith("content-length:"))
            body = await reader.readexactly(length)
        except BaseException:
            # Also when the call is cancelled: the answer may still come, to nobody.
            writer.close()
            raise
        self._idle.append((reader, writer))
        if " 200 " not in status:
            raise OSError(f"the service said {status!r} about {customer}")
        return str(json.loads(body)["country"])


def enriched(
    address: str, concurrency: int, input_topic: str = "visits", output_topic: str = "places"
) -> Topology:
    """Visits in, each with the country of its customer out."""
    service = Service(address)

    async def with_country(customer: str, visit: dict[str, Any]) -> dict[str, Any]:
        return {**visit, "country": await service.country(customer)}

    builder = StreamsBuilder()
    (
        builder.stream(input_topic, key=STRING, value=JSON)
        .map_async(
            with_country, concurrency=concurrency, timeout=timedelta(seconds=10), with_key=True
        )
        .to(output_topic, key=STRING, value=JSON)
    )
    return builder.build()


def main() -> int:
    parser = argparse.ArgumentParser(description="Asks a web service about every record.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-servers", help="your broker; both topics must exist on it")
    where.add_argument("--demo", action="store_true", help="bring broker and service along")
    parser.add_argument("--service", default="localhost:8000", help="its host:port")
    parser.add_argument("--concurrency", type=int, default=100, help="requests at a time")
    options = parser.parse_args()
    if options.demo:
        from async_enrichment_demo import Demo

        return Demo(enriched, options).run()
    topology = enriched(options.service, options.concurrency)
    config = StreamsConfig(
        application_id="enrich-over-http", bootstrap_servers=options.bootstrap_servers
    )
    KafkaStreams(topology, config).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
