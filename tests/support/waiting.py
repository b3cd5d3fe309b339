"""Waiting for a condition, with a deadline, instead of sleeping and hoping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(condition: Callable[[], T | None], timeout_s: float, what: str) -> T:
    """The first true result of `condition`, looked at ten times a second.

    Raises:
        AssertionError: it was not true by the deadline.
    """
    deadline = time.monotonic() + timeout_s
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what} (last: {result!r})")
        time.sleep(0.1)
    return result
