"""What the jobs compute with: also for programs whose Python has no Kafka client of ours."""

from __future__ import annotations

#: The stateless job keeps amounts above this: three records in five.
PASS_ABOVE = 40.0
#: Tumbling windows cut time by this.
WINDOW_MS = 60_000


def cents(amount: float) -> int:
    """The price with a tax of 20 %: what one job adds as a field and others sum."""
    return int(amount * 120)
