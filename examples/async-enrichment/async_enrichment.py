"""Calls a web service for every record, with a hundred concurrent requests.

The records of each key stay in order.

    python examples/async-enrichment/async_enrichment.py --demo
    python examples/async-enrichment/async_enrichment.py \
        --bootstrap-servers localhost:9092 --service localhost:8000

The service returns the country of a customer after 10 ms. With --demo, the program starts a broker
and the service, processes some visits with one request at a time and many with a hundred, checks
the results, and prints the speedup.
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
    """A client of the service with a connection pool.

    It must only be used on one event loop.

    Args:
        address: `host:port`.
    """

    def __init__(self, address: str) -> None:
        self.host, _, self.port = address.rpartition(":")
        self._idle: deque[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = deque()

    async def country(self, customer: str) -> str:
        """Return the country of a customer.

        Raises:
            OSError: the service is unreachable, or does not have the customer.
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
            # The connection is closed even if the call is canceled, because the response may still
            # arrive.
            writer.close()
            raise
        self._idle.append((reader, writer))
        if " 200 " not in status:
            raise OSError(f"the service responded with {status!r} for {customer}")
        return str(json.loads(body)["country"])


def enriched(
    address: str, concurrency: int, input_topic: str = "visits", output_topic: str = "places"
) -> Topology:
    """Build a topology that adds the country of the customer to each visit."""
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
    parser = argparse.ArgumentParser(description="Calls a web service for every record.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-servers", help="your broker; both topics must exist on it")
    where.add_argument("--demo", action="store_true", help="start a broker and the service")
    parser.add_argument("--service", default="localhost:8000", help="host:port")
    parser.add_argument("--concurrency", type=int, default=100, help="concurrent requests")
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
