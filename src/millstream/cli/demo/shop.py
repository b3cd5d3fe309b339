"""The demo's application, which computes revenue by product, and its clients."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from millstream.errors import StreamsError
from millstream.serdes import JSON, STRING
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.options.materialized import Materialized
from millstream.topology.physical.topology import Topology

ORDERS: Final = "orders"
REVENUE: Final = "revenue"

#: Prices in cents.
PRODUCTS: Final = {
    "tea": 349,
    "coffee": 599,
    "sugar": 129,
    "honey": 799,
    "biscuits": 249,
    "chocolate": 319,
    "oranges": 279,
    "almonds": 459,
    "rice": 199,
    "olive oil": 1_099,
    "salt": 89,
    "pepper": 389,
}

Order = dict[str, Any]
Totals = dict[str, int]


def revenue() -> Topology:
    """Build the topology, which adds up orders into totals by product.

    The key of an order is the customer.
    """
    builder = StreamsBuilder()
    store = Materialized("revenue-by-product", key=STRING, value=JSON)
    (
        builder.stream(ORDERS, key=STRING, value=JSON)
        .group_by(lambda _, order: order["product"], key=STRING, value=JSON, name="by-product")
        .aggregate(lambda: {"orders": 0, "cents": 0}, add_order, store=store)
        .to_stream()
        .to(REVENUE, key=STRING, value=JSON)
    )
    return builder.build()


def add_order(product: str, order: Order, totals: Totals) -> Totals:
    """Return the totals of a product including one more order."""
    return {
        "orders": totals["orders"] + 1,
        "cents": totals["cents"] + order["quantity"] * order["price"],
    }


def orders(number: int, seed: int = 42) -> Iterator[tuple[str, Order]]:
    """Generate reproducible pairs of customer and order."""
    rng = random.Random(seed)
    products = list(PRODUCTS)
    # Some products are bought more often than others.
    weights = [1 / (1 + rank) for rank in range(len(products))]
    for _ in range(number):
        (product,) = rng.choices(products, weights)
        customer = f"customer-{rng.randrange(1_000)}"
        yield (
            customer,
            {"product": product, "quantity": rng.randint(1, 5), "price": PRODUCTS[product]},
        )


#: Orders sent per second: slow enough to watch the totals grow.
_RATE: Final = 10_000
_STEP_S: Final = 0.05


class OrderSender:
    """Sends orders on a background thread."""

    def __init__(self, servers: str, orders: Sequence[tuple[str, Order]]) -> None:
        self.sent = 0
        self._orders = orders
        self._failure: KafkaError | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-sender", daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 20,
                "compression.type": "lz4",
                "log_level": 0,
            }
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, even if not all orders have been sent."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(30)
        # Otherwise the producer would log a lost connection when the broker stops.
        del self._producer

    def check(self) -> None:
        """Raise StreamsError if an order could not be delivered."""
        if self._failure is not None:
            raise StreamsError(f"An order could not be sent: {self._failure.str()}")

    def _run(self) -> None:
        size = round(_RATE * _STEP_S)
        for start in range(0, len(self._orders), size):
            for customer, order in self._orders[start : start + size]:
                self._producer.produce(
                    ORDERS,
                    JSON.serialize(ORDERS, order),
                    STRING.serialize(ORDERS, customer),
                    on_delivery=self._delivered,
                )
            # Also waits for the deliveries, so that the queue never contains more than one step.
            self._producer.flush(10)
            self.sent = min(start + size, len(self._orders))
            if self._stopping.wait(_STEP_S):
                return

    def _delivered(self, error: KafkaError | None, _: Any) -> None:
        if error is not None:
            self._failure = error


class RevenueReader:
    """Reads the latest totals of each product from the output topic."""

    def __init__(self, servers: str, partitions: int) -> None:
        self.totals: dict[str, Totals] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "millstream-demo-reader",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(REVENUE, number, 0) for number in range(partitions)])

    @property
    def orders(self) -> int:
        """The number of orders that are included in the totals."""
        return sum(each["orders"] for each in self.totals.values())

    def read(self) -> None:
        """Read new records; wait briefly if there are none."""
        for record in self._consumer.consume(5_000, 0.1):
            error = record.error()
            if error is not None:
                raise KafkaException(error)
            product = STRING.deserialize(REVENUE, record.key())
            totals = JSON.deserialize(REVENUE, record.value())
            assert product is not None
            assert totals is not None
            self.totals[product] = totals

    def close(self) -> None:
        self._consumer.close()
