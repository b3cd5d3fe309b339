"""The demo's other ends: who sends the orders, and who reads the revenue."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from millstream.cli.demo.shop import ORDERS, REVENUE, Order, Totals
from millstream.errors import StreamsError
from millstream.serdes import JSON, STRING

#: Orders a second, so that totals can be seen growing.
_RATE: Final = 10_000
_STEP_S: Final = 0.05


class Sender:
    """Sends orders from a thread of its own.

    Args:
        servers: the broker.
        orders: with their customers.
    """

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
        """Begin to send."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, whether all was sent or not."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(30)
        # Else it would report the broker's end as a lost connection.
        del self._producer

    def check(self) -> None:
        """Raise what went wrong.

        Raises:
            StreamsError: an order could not be sent.
        """
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
            # Waits for the deliveries too, so that the queue holds one step at most.
            self._producer.flush(10)
            self.sent = min(start + size, len(self._orders))
            if self._stopping.wait(_STEP_S):
                return

    def _delivered(self, error: KafkaError | None, _: Any) -> None:
        if error is not None:
            self._failure = error


class Reader:
    """The newest totals of each product, read from the output topic.

    Args:
        servers: the broker.
        partitions: of the topic.
    """

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
        """How many orders the application has added up."""
        return sum(each["orders"] for each in self.totals.values())

    def read(self) -> None:
        """Take what has arrived; wait a little where nothing has."""
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
        """Close the connection."""
        self._consumer.close()
