"""Ask a web service about every record, without waiting for one answer after the other.

`map_async` makes a hundred calls at a time and keeps the records of each key in order. The client
is made in the first call, on the worker, since what is shipped there must hold no sockets. A call
that fails for a moment is tried again by the function itself; one that takes too long is cancelled
and counts as failed.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from millstream import StreamsBuilder, Topology
from millstream.serdes import JSON, STRING
from millstream.testing import TopologyTestDriver

TRIES = 3


class BusyError(Exception):
    """What the service says when it has too much to do."""


class Weather:
    """In place of a client of a web service; the first answer of a town is that it is busy."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    async def degrees(self, town: str) -> int:
        await asyncio.sleep(0.001)
        if town not in self.asked:
            self.asked.add(town)
            raise BusyError(town)
        return len(town)


class WithWeather:
    """Adds the weather of its town to an order."""

    def __init__(self) -> None:
        self.client: Weather | None = None

    async def __call__(self, order: dict[str, Any]) -> dict[str, Any]:
        self.client = self.client or Weather()
        for attempt in range(1, TRIES + 1):
            try:
                return {**order, "degrees": await self.client.degrees(order["town"])}
            except BusyError:
                if attempt == TRIES:
                    raise
                await asyncio.sleep(0.001 * 2**attempt)
        raise AssertionError("not reached")


def with_weather() -> Topology:
    """Orders in, orders with the weather out."""
    builder = StreamsBuilder()
    (
        builder.stream("orders", key=STRING, value=JSON)
        .map_async(WithWeather(), concurrency=100, timeout=timedelta(seconds=10))
        .to("orders-with-weather", key=STRING, value=JSON)
    )
    return builder.build()


def test_a_busy_service_is_asked_again() -> None:
    with TopologyTestDriver(with_weather()) as driver:
        orders = driver.create_input_topic("orders", key=STRING, value=JSON)
        orders.pipe_key_values([("1", {"town": "Oslo"}), ("2", {"town": "Paris"})])
        found = driver.create_output_topic("orders-with-weather", key=STRING, value=JSON)
        assert [order["degrees"] for order in found.read_values()] == [4, 5]
