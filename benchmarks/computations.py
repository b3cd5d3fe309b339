"""Computations of the jobs, shared by all programs; has no dependencies."""

from __future__ import annotations

#: The stateless job keeps amounts above this: three in five records.
PASS_ABOVE = 40.0
#: The size of tumbling windows.
WINDOW_MS = 60_000


def cents(amount: float) -> int:
    """Return the price in cents with a tax of 20 %."""
    return int(amount * 120)
