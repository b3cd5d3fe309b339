"""Ask a database through a client that blocks.

`map_async` takes a plain function, too, and calls it on threads, as many at a time as `concurrency`
says. What is shipped to the workers is where the database is, not a connection to it.
Where the table is not too large, a table in Kafka (see *change data capture*) answers without any
call, and as of the time of the record.
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from millstream import StreamsBuilder, Topology
from millstream.serdes import JSON, STRING
from millstream.testing import TopologyTestDriver


class Customers:
    """Looks customers up. Shipped to the workers as the name of a file, and nothing else.

    Args:
        path: the database.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def with_town(self, order: dict[str, Any]) -> dict[str, Any]:
        """The order with the town of its customer, None for one that is unknown."""
        # Opened for each call: SQLite's connections cost little. With a server, take a pool.
        connection = sqlite3.connect(self.path)
        try:
            found = connection.execute(
                "SELECT town FROM customers WHERE name = ?", (order["customer"],)
            ).fetchone()
        finally:
            connection.close()
        return {**order, "town": found and found[0]}


def with_towns(path: str) -> Topology:
    """Orders in, orders with towns out; ten threads ask the database."""
    builder = StreamsBuilder()
    (
        builder.stream("orders", key=STRING, value=JSON)
        .map_async(Customers(path).with_town, concurrency=10)
        .to("orders-with-towns", key=STRING, value=JSON)
    )
    return builder.build()


def test_towns_come_from_the_database() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "customers.db"))
        connection = sqlite3.connect(path)
        with connection:
            connection.execute("CREATE TABLE customers (name TEXT PRIMARY KEY, town TEXT)")
            connection.execute("INSERT INTO customers VALUES ('ann', 'Oslo')")
        connection.close()
        with TopologyTestDriver(with_towns(path)) as driver:
            orders = driver.create_input_topic("orders", key=STRING, value=JSON)
            orders.pipe_key_values([("1", {"customer": "ann"}), ("2", {"customer": "bob"})])
            found = driver.create_output_topic("orders-with-towns", key=STRING, value=JSON)
            assert [order["town"] for order in found.read_values()] == ["Oslo", None]
