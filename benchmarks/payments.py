"""Orders and payments: two streams with alternating records, to be joined."""

from __future__ import annotations

from typing import Any

from computations import cents
from harness.load import Load, event_json, user_key

PAYMENTS = "payments"
INPUT = "orders"


def fill_payments(load: Load) -> None:
    """Write the events alternately to the input and to the topic of payments."""
    writers = load.create(), load.create(PAYMENTS)
    for number, (timestamp, user, amount) in enumerate(load.events()):
        writer = writers[number % 2]
        writer.send(user_key(user), event_json(number, user, amount), timestamp)
    for writer in writers:
        writer.flush()


def settled(order: dict[str, Any], payment: dict[str, Any]) -> dict[str, Any]:
    """Return the joined record."""
    return {
        "order": order["id"],
        "payment": payment["id"],
        "due": cents(order["amount"]) - cents(payment["amount"]),
    }
