"""When an order counts as paid, and when as never paid."""

from __future__ import annotations

from orders_and_payments import (
    MINUTE_MS,
    ORDER,
    ORDERS,
    OUTCOME,
    OUTCOMES,
    PAYMENT,
    PAYMENTS,
    Order,
    Outcome,
    Payment,
    demo,
    orders_and_payments,
)
from millstream.serdes import STRING
from millstream.testing import TopologyTestDriver


def outcomes(order_minute: int, payment_minute: int) -> list[Outcome]:
    """What is told of an order and a payment at two times, hours later."""
    with TopologyTestDriver(orders_and_payments()) as driver:
        orders = driver.create_input_topic(ORDERS, key=STRING, value=ORDER)
        payments = driver.create_input_topic(PAYMENTS, key=STRING, value=PAYMENT)
        pipes = [
            (order_minute, lambda at_ms: orders.pipe_input("1", Order("ann", 500), at_ms)),
            (payment_minute, lambda at_ms: payments.pipe_input("1", Payment(500), at_ms)),
        ]
        for minute, pipe in sorted(pipes, key=lambda one: one[0]):
            pipe(minute * MINUTE_MS)
        for hours in (20, 25):
            orders.pipe_input("later", Order("bob", 1), hours * 60 * MINUTE_MS)
        told = driver.create_output_topic(OUTCOMES, key=STRING, value=OUTCOME)
        return [value for key, value in told.read_key_values() if key == "1"]


def test_within_the_hour() -> None:
    assert outcomes(10, 70) == [Outcome("paid", "ann", 500)]
    assert outcomes(10, 5) == [Outcome("paid", "ann", 500)]


def test_beyond_it() -> None:
    both = {outcome.status for outcome in outcomes(10, 71)}
    assert both == {"never paid", "paid for nothing"}


def test_the_demo_is_right() -> None:
    assert demo() == 0
