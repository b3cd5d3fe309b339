"""Waiting for a condition, with a deadline, instead of sleeping and hoping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: A condition is looked at again after the first pause, then ever less often.
_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.1
#: Where a look takes long, as when it reads whole topics, it would keep a processor from what is
#: waited for: a pause is so many times as long as the look before it.
_PAUSE_OF_A_LOOK = 2
_LONGEST_PAUSE_OF_A_LOOK_S = 0.5


def wait_for(
    condition: Callable[[], T | None],
    timeout_s: float = 20,
    what: str | Callable[[], str] = "it comes true",
) -> T:
    """The first true result of `condition`.

    Args:
        condition: looked at soon at first, later ten times a second, less often if a look takes
            long. What it raises ends the wait.
        timeout_s: seconds until the deadline.
        what: is waited for; or a function that says so, and what is there instead, at the deadline.

    Raises:
        AssertionError: it was not true by the deadline.
    """
    deadline = time.monotonic() + timeout_s
    pause_s = _FIRST_PAUSE_S
    began = time.monotonic()
    while not (result := condition()):
        ended = time.monotonic()
        if ended > deadline:
            told = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {timeout_s} s: {told} (last: {result!r})")
        of_look_s = min(_PAUSE_OF_A_LOOK * (ended - began), _LONGEST_PAUSE_OF_A_LOOK_S)
        time.sleep(max(pause_s, of_look_s))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        began = time.monotonic()
    return result


def stays(condition: Callable[[], object], seconds: float) -> bool:
    """Whether `condition` is true all the time for so long; ends when it is not."""
    end = time.monotonic() + seconds
    while condition():
        if time.monotonic() > end:
            return True
        time.sleep(_LONGEST_PAUSE_S / 5)
    return False


def gather(
    more: Callable[[], list[T]], is_complete: Callable[[list[T]], object], timeout_s: float = 20
) -> list[T]:
    """Everything that `more` gave until it was complete: the records of a consumer's polls.

    Args:
        more: the next ones; may wait a little for them.
        is_complete: of all so far.
        timeout_s: seconds until the deadline.

    Raises:
        AssertionError: they were not complete by the deadline.
    """
    found: list[T] = []
    deadline = time.monotonic() + timeout_s
    while not is_complete(found):
        if time.monotonic() > deadline:
            raise AssertionError(f"not complete within {timeout_s} s: {len(found)}: {found[-5:]}")
        found += more()
    return found
