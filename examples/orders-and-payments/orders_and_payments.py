"""Orders and payments: joins two streams to get the status of each order.

    python examples/orders-and-payments/orders_and_payments.py --demo
    python examples/orders-and-payments/orders_and_payments.py --bootstrap-servers localhost:9092

Orders and payments are in separate topics, by order number. An outer join matches each order with
payments up to an hour later or five minutes earlier, and detects orders without a payment and
payments without an order. Its result is a table with the status of each order, which can be
queried. Invalid records are written to a dead-letter topic. With --demo, the program runs in
the test driver, without Kafka or Spark: it generates the records of an afternoon, and checks the
status of each order.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from datetime import timedelta
from typing import Any

import msgspec

from millstream import (
    JoinWindows,
    KafkaStreams,
    LogAndContinueExceptionHandler,
    Materialized,
    StreamsBuilder,
    StreamsConfig,
    Topology,
)
from millstream.serdes import BYTES, STRING, json_of
from millstream.testing import TestInputTopic, TopologyTestDriver

ORDERS, PAYMENTS, OUTCOMES, INVALID = "orders", "payments", "outcomes", "invalid-records"
MINUTE_MS = 60_000
#: A payment may be up to an hour later than its order, or five minutes earlier, and arrive ten
#: minutes late.
WINDOWS = JoinWindows(timedelta(hours=1), before=timedelta(minutes=5), grace=timedelta(minutes=10))


class Order(msgspec.Struct, frozen=True):
    """An order; the key is its number."""

    customer: str
    cents: int


class Payment(msgspec.Struct, frozen=True):
    """A payment; the key is the order number."""

    cents: int


class Outcome(msgspec.Struct, frozen=True):
    """The status of an order."""

    status: str
    customer: str | None = None
    cents: int = 0


ORDER, PAYMENT, OUTCOME = json_of(Order), json_of(Payment), json_of(Outcome)


def outcome(order: Order | None, payment: Payment | None) -> Outcome:
    """Return the outcome of an order and its payment; one of them may be None."""
    if order is None:
        assert payment is not None
        return Outcome("no order", None, payment.cents)
    if payment is None:
        return Outcome("unpaid", order.customer, order.cents)
    missing = order.cents - payment.cents
    return Outcome("paid" if missing <= 0 else "partially paid", order.customer, payment.cents)


def orders_and_payments() -> Topology:
    """Build a topology that writes outcomes to a topic and to the store `outcomes`."""
    builder = StreamsBuilder()
    orders = builder.stream(ORDERS, key=STRING, value=ORDER)
    payments = builder.stream(PAYMENTS, key=STRING, value=PAYMENT)
    (
        orders.outer_join(payments, outcome, WINDOWS, store_name="orders-and-payments")
        .to_table(
            key=STRING, value=OUTCOME, store=Materialized("outcomes", key=STRING, value=OUTCOME)
        )
        .to_stream()
        .to(OUTCOMES, key=STRING, value=OUTCOME)
    )
    return builder.build()


def config(bootstrap_servers: str) -> StreamsConfig:
    """Return settings for exactly-once processing, with a topic for invalid records."""
    return StreamsConfig(
        application_id="orders-and-payments",
        bootstrap_servers=bootstrap_servers,
        processing_guarantee="exactly_once_v2",
        deserialization_exception_handler=LogAndContinueExceptionHandler(),
        errors_dead_letter_queue_topic_name=INVALID,
    )


def sample_records() -> tuple[list[tuple[int, str, str, Order | Payment]], dict[str, str]]:
    """Generate the records of an afternoon, and the expected status by order number.

    The records are (time in ms, topic, order number, record).
    """
    rng = random.Random(23)
    records: list[tuple[int, str, str, Order | Payment]] = []
    statuses: dict[str, str] = {}
    for number in range(400):
        key, cents = f"order-{number:03}", rng.randrange(500, 20_000)
        at_ms = rng.randrange(4 * 60) * MINUTE_MS
        status = rng.choice(("paid", "paid", "paid", "partially paid", "unpaid"))
        records.append((at_ms, ORDERS, key, Order(f"customer-{number % 50}", cents)))
        if status != "unpaid":
            paid = cents if status == "paid" else cents // 2
            at_ms += rng.randrange(-5, 60) * MINUTE_MS
            records.append((max(0, at_ms), PAYMENTS, key, Payment(paid)))
        statuses[key] = status
    for number in range(20):
        key = f"no-order-{number:02}"
        records.append((rng.randrange(240) * MINUTE_MS, PAYMENTS, key, Payment(100)))
        statuses[key] = "no order"
    # Orders that are many hours later close all earlier windows.
    for step, number in enumerate(range(998, 1_000)):
        records.append(((20 + 5 * step) * 60 * MINUTE_MS, ORDERS, f"order-{number}", Order("z", 1)))
    return sorted(records, key=lambda one: one[0]), statuses


def demo() -> int:
    """Process an afternoon; return 0 if every order has the expected status."""
    records, statuses = sample_records()
    with TopologyTestDriver(orders_and_payments(), config("not-used:9092")) as driver:
        topics: dict[str, TestInputTopic[str, Any]] = {
            ORDERS: driver.create_input_topic(ORDERS, key=STRING, value=ORDER),
            PAYMENTS: driver.create_input_topic(PAYMENTS, key=STRING, value=PAYMENT),
        }
        for at_ms, topic, key, record in records:
            topics[topic].pipe_input(key, record, at_ms)
        raw = driver.create_input_topic(ORDERS, key=STRING, value=BYTES)
        raw.pipe_input("order-xyz", b'{"customer":"nobody"}', records[-1][0])
        outcomes = driver.create_output_topic(OUTCOMES, key=STRING, value=OUTCOME)
        found = {key: one.status for key, one in outcomes.read_key_values_to_map().items()}
        invalid = driver.create_output_topic(INVALID, key=STRING, value=BYTES).size
    for status, count in Counter(found.values()).most_common():
        print(f"{count:4} {status}")
    print(f"{invalid} order is invalid, and is in the topic {INVALID}")
    found.pop("order-998", None)
    right = found == statuses and invalid == 1
    print("every order has the expected status" if right else "WRONG: unexpected statuses")
    return 0 if right else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Joins orders and payments.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-servers", help="your broker; the four topics must exist on it")
    where.add_argument("--demo", action="store_true", help="generate the input, without a broker")
    options = parser.parse_args()
    if options.demo:
        return demo()
    KafkaStreams(orders_and_payments(), config(options.bootstrap_servers)).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
