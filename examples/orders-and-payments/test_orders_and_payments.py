"""Tests of the limits between paid and unpaid orders."""

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
    """Return the outcomes of an order and a payment after their windows have closed."""
    with TopologyTestDriver(orders_and_payments()) as driver:
        orders = driver.create_input_topic(ORDERS, key=STRING, value=ORDER)
        payments = driver.create_input_topic(PAYMENTS, key=STRING, value=PAYMENT)
        for minute in sorted({order_minute, payment_minute}):
            if minute == order_minute:
                orders.pipe_input("1", Order("ann", 500), minute * MINUTE_MS)
            if minute == payment_minute:
                payments.pipe_input("1", Payment(500), minute * MINUTE_MS)
        for hours in (20, 25):
            orders.pipe_input("later", Order("bob", 1), hours * 60 * MINUTE_MS)
        results = driver.create_output_topic(OUTCOMES, key=STRING, value=OUTCOME)
        return [value for key, value in results.read_key_values() if key == "1"]


def test_payments_within_the_window() -> None:
    assert outcomes(10, 70) == [Outcome("paid", "ann", 500)]
    assert outcomes(10, 5) == [Outcome("paid", "ann", 500)]


def test_payments_outside_of_the_window() -> None:
    assert [outcome.status for outcome in outcomes(10, 200)] == ["unpaid", "no order"]
    # Both outcomes are emitted at the same time here, and the table keeps the latest one.
    assert [outcome.status for outcome in outcomes(10, 71)] == ["no order"]


def test_the_demo_succeeds() -> None:
    assert demo() == 0
