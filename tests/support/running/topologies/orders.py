"""Orders on their way into an application that prices them."""

from __future__ import annotations

import msgspec

from support.broker.records import Sent


class Order(msgspec.Struct):
    """What comes in."""

    item: str
    amount: int
    note: str | None = None


class Priced(msgspec.Struct):
    """What comes out."""

    item: str
    total: float


def orders(name: str, start: int, count: int) -> list[Sent]:
    """Consecutive orders of twenty keys, into two partitions; an order's number is its amount.

    Args:
        name: of the application, with which its topics begin.
        start: number of the first.
        count: how many.
    """
    return [
        Sent(
            f"{name}-orders",
            number % 2,
            f"key-{number % 20}",
            msgspec.json.encode(Order(f"item-{number}", number)).decode(),
            1_000_000 + number,
        )
        for number in range(start, start + count)
    ]
