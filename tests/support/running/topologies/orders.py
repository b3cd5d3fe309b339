"""Orders, and the application that prices them."""

from __future__ import annotations

import msgspec

from support.broker.topics import InputRecord


class Order(msgspec.Struct):
    """An input record."""

    item: str
    amount: int
    note: str | None = None


class Priced(msgspec.Struct):
    """An output record."""

    item: str
    total: float


def orders(name: str, start: int, count: int) -> list[InputRecord]:
    """Consecutive orders of twenty keys, into two partitions; an order's number is its amount."""
    return [
        InputRecord(
            f"{name}-orders",
            number % 2,
            f"key-{number % 20}",
            msgspec.json.encode(Order(f"item-{number}", number)).decode(),
            1_000_000 + number,
        )
        for number in range(start, start + count)
    ]
