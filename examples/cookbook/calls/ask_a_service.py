"""Call a web service for every record, many calls at a time.

`map_async` makes a hundred calls concurrently and keeps the records of each key in order. The
client is created in the first call, on the worker, because functions are shipped to workers and
must not hold sockets. The function itself retries temporary failures. A call that takes longer than
the timeout, including retries, is canceled, and its record fails.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from millstream import StreamsBuilder, Topology
from millstream.serdes import JSON, STRING
from millstream.testing import TopologyTestDriver

ATTEMPTS = 3


class BusyError(Exception):
    """Raised if the service is overloaded."""


class Weather:
    """Placeholder for the client of a web service. The first call for each town fails."""

    def __init__(self) -> None:
        self.towns: set[str] = set()

    async def degrees(self, town: str) -> int:
        await asyncio.sleep(0.001)
        if town not in self.towns:
            self.towns.add(town)
            raise BusyError(town)
        return len(town)


class WithWeather:
    """A function that adds the weather of the town to an order."""

    def __init__(self) -> None:
        self.client: Weather | None = None

    async def __call__(self, order: dict[str, Any]) -> dict[str, Any]:
        self.client = self.client or Weather()
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return {**order, "degrees": await self.client.degrees(order["town"])}
            except BusyError:
                if attempt == ATTEMPTS:
                    raise
                await asyncio.sleep(0.001 * 2**attempt)
        raise AssertionError("not reached")


def with_weather() -> Topology:
    """Add the weather to orders."""
    builder = StreamsBuilder()
    (
        builder.stream("orders", key=STRING, value=JSON)
        .map_async(WithWeather(), concurrency=100, timeout=timedelta(seconds=10))
        .to("orders-with-weather", key=STRING, value=JSON)
    )
    return builder.build()


def test_failed_calls_are_retried() -> None:
    with TopologyTestDriver(with_weather()) as driver:
        orders = driver.create_input_topic("orders", key=STRING, value=JSON)
        orders.pipe_key_values([("1", {"town": "Oslo"}), ("2", {"town": "Paris"})])
        found = driver.create_output_topic("orders-with-weather", key=STRING, value=JSON)
        assert [order["degrees"] for order in found.read_values()] == [4, 5]
