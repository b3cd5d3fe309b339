"""The calls beside the loop that have ended."""

from __future__ import annotations

from millstream.operators.apart.calls import Call, Units
from support.waiting import wait_for


def gathered(units: Units, count: int) -> list[Call]:
    """Wait until so many calls of units have ended; those, in the order of their ends.

    Raises:
        AssertionError: they do not end.
    """
    found: list[Call] = []

    def enough() -> bool:
        found.extend(units.ended())
        return len(found) >= count

    wait_for(enough, what=f"{count} calls end")
    return found
