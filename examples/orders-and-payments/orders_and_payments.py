"""Orders and payments: two streams that belong together, and what became of each order.

    python examples/orders-and-payments/orders_and_payments.py --demo
    python examples/orders-and-payments/orders_and_payments.py --bootstrap-servers localhost:9092

Orders and payments come by order number, each on its own topic, in any order. A join brings those
together that come within an hour of each other, tells which orders were never paid, and which
payments were for nothing. What has been joined is the state of each order: a table, which anybody
can ask. Records that cannot be read are kept in a topic of their own. With --demo it needs neither
Kafka nor Spark: it invents an afternoon and checks what became of each order.
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

ORDERS, PAYMENTS, OUTCOMES, UNREADABLE = "orders", "payments", "outcomes", "unreadable"
MINUTE_MS = 60_000
#: A payment may come up to an hour after its order, or five minutes before it, and ten minutes
#: late.
TOGETHER = JoinWindows(timedelta(hours=1), before=timedelta(minutes=5), grace=timedelta(minutes=10))


class Order(msgspec.Struct, frozen=True):
    """Under its number."""

    customer: str
    cents: int


class Payment(msgspec.Struct, frozen=True):
    """Under the number of its order."""

    cents: int


class Outcome(msgspec.Struct, frozen=True):
    """What became of an order."""

    status: str
    customer: str | None = None
    cents: int = 0


ORDER, PAYMENT, OUTCOME = json_of(Order), json_of(Payment), json_of(Outcome)


def outcome(order: Order | None, payment: Payment | None) -> Outcome:
    """Of an order and its payment, or of either alone."""
    if order is None:
        assert payment is not None
        return Outcome("paid for nothing", None, payment.cents)
    if payment is None:
        return Outcome("never paid", order.customer, order.cents)
    missing = order.cents - payment.cents
    return Outcome("paid" if missing <= 0 else "paid in part", order.customer, payment.cents)


def orders_and_payments() -> Topology:
    """Orders and payments in, outcomes out, and in the store `outcomes`."""
    builder = StreamsBuilder()
    orders = builder.stream(ORDERS, key=STRING, value=ORDER)
    payments = builder.stream(PAYMENTS, key=STRING, value=PAYMENT)
    (
        orders.outer_join(payments, outcome, TOGETHER, store_name="orders-and-payments")
        .to_table(
            key=STRING, value=OUTCOME, store=Materialized("outcomes", key=STRING, value=OUTCOME)
        )
        .to_stream()
        .to(OUTCOMES, key=STRING, value=OUTCOME)
    )
    return builder.build()


def config(bootstrap_servers: str) -> StreamsConfig:
    """What cannot be read is kept apart; results, state and offsets are one transaction."""
    return StreamsConfig(
        application_id="orders-and-payments",
        bootstrap_servers=bootstrap_servers,
        processing_guarantee="exactly_once_v2",
        deserialization_exception_handler=LogAndContinueExceptionHandler(),
        errors_dead_letter_queue_topic_name=UNREADABLE,
    )


def invented() -> tuple[list[tuple[int, str, str, Order | Payment]], dict[str, str]]:
    """An afternoon by its times: topic, number, record; and what should become of each number."""
    dice = random.Random(23)
    records: list[tuple[int, str, str, Order | Payment]] = []
    statuses = {}
    for number in range(400):
        key, cents = f"order-{number:03}", dice.randrange(500, 20_000)
        at_ms = dice.randrange(4 * 60) * MINUTE_MS
        status = dice.choice(("paid", "paid", "paid", "paid in part", "never paid"))
        records.append((at_ms, ORDERS, key, Order(f"customer-{number % 50}", cents)))
        if status != "never paid":
            paid = cents if status == "paid" else cents // 2
            at_ms += dice.randrange(-5, 60) * MINUTE_MS
            records.append((max(0, at_ms), PAYMENTS, key, Payment(paid)))
        statuses[key] = status
    for number in range(20):
        key = f"nothing-{number:02}"
        records.append((dice.randrange(240) * MINUTE_MS, PAYMENTS, key, Payment(100)))
        statuses[key] = "paid for nothing"
    # Hours later somebody orders: all that waited before is decided.
    for step, number in enumerate(range(998, 1_000)):
        records.append(((20 + 5 * step) * 60 * MINUTE_MS, ORDERS, f"order-{number}", Order("z", 1)))
    return sorted(records, key=lambda one: one[0]), statuses


def demo() -> int:
    """Send an afternoon through the topology; 0 if every order became what it should."""
    records, statuses = invented()
    with TopologyTestDriver(orders_and_payments(), config("not-used:9092")) as driver:
        topics: dict[str, TestInputTopic[str, Any]] = {
            ORDERS: driver.create_input_topic(ORDERS, key=STRING, value=ORDER),
            PAYMENTS: driver.create_input_topic(PAYMENTS, key=STRING, value=PAYMENT),
        }
        for at_ms, topic, key, record in records:
            topics[topic].pipe_input(key, record, at_ms)
        raw = driver.create_input_topic(ORDERS, key=STRING, value=BYTES)
        raw.pipe_input("order-xyz", b'{"customer":"nobody"}', records[-1][0])
        told = driver.create_output_topic(OUTCOMES, key=STRING, value=OUTCOME)
        found = {key: one.status for key, one in told.read_key_values_to_map().items()}
        unreadable = driver.create_output_topic(UNREADABLE, key=STRING, value=BYTES).size
    for status, count in Counter(found.values()).most_common():
        print(f"{count:4} {status}")
    print(f"{unreadable} order could not be read, and is kept in the topic {UNREADABLE}")
    found.pop("order-998", None)
    right = found == statuses and unreadable == 1
    print("every order became what it should" if right else "WRONG: some did not")
    return 0 if right else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Brings orders and payments together.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-servers", help="your broker; the four topics must exist on it")
    where.add_argument("--demo", action="store_true", help="invent the input, without a broker")
    options = parser.parse_args()
    if options.demo:
        return demo()
    KafkaStreams(orders_and_payments(), config(options.bootstrap_servers)).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
