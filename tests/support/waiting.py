"""Waits for conditions with a deadline instead of sleeping."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

#: A deadline that only detects hanging: longer than any delay of a busy machine.
HANG_S = 60.0
#: The length of a wait that a test must not include: code that waits for it exceeds `HANG_S`.
NEVER_S = 600.0

#: The condition is checked again after the first pause, then less and less often.
_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.1
#: If a check takes long (reading whole topics, for example), frequent checks would take a processor
#: from the tested code: each pause is this many times as long as the check before.
_PAUSES_PER_CHECK = 2
_LONGEST_CHECK_PAUSE_S = 0.5


def wait_for(
    condition: Callable[[], T | None],
    timeout_s: float = 20,
    what: str | Callable[[], str] = "it comes true",
) -> T:
    """Wait until `condition` returns a true result, and return it.

    Args:
        condition: checked often at first, then ten times a second, or less often if a check takes
            long. An exception ends the wait.
        what: the condition in words; or a function that returns them, with the actual state, at the
            deadline.

    Raises:
        AssertionError: the condition was not true by the deadline.
    """
    deadline = time.monotonic() + timeout_s
    pause_s = _FIRST_PAUSE_S
    began = time.monotonic()
    while not (result := condition()):
        ended = time.monotonic()
        if ended > deadline:
            description = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {timeout_s} s: {description} (last: {result!r})")
        check_pause_s = min(_PAUSES_PER_CHECK * (ended - began), _LONGEST_CHECK_PAUSE_S)
        time.sleep(max(pause_s, check_pause_s))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        began = time.monotonic()
    return result


def wait_or_kill(process: subprocess.Popen[Any], timeout_s: float) -> int:
    """Wait until a process ends, or kill it after `timeout_s`; return its exit code."""
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


@contextmanager
def hang_guard(what: str) -> Iterator[None]:
    """Fail if the block takes longer than `HANG_S`.

    This does not check the speed of the block. It shows that the block does not include a wait of
    `NEVER_S`, such as a timeout or a backoff.

    Raises:
        AssertionError: the block took longer.
    """
    began = time.monotonic()
    yield
    took_s = time.monotonic() - began
    assert took_s < HANG_S, f"{what} took {took_s:.1f} s"


def stays(condition: Callable[[], object], seconds: float) -> bool:
    """Whether `condition` is true during the whole time; returns as soon as it is not."""
    end = time.monotonic() + seconds
    while condition():
        if time.monotonic() > end:
            return True
        time.sleep(_LONGEST_PAUSE_S / 5)
    return False


def gather(
    more: Callable[[], list[T]], is_complete: Callable[[list[T]], object], timeout_s: float = 20
) -> list[T]:
    """Collect the results of `more`, such as a consumer's polls, until they are complete.

    Args:
        more: returns the next results; may block shortly.
        is_complete: takes all results so far.

    Raises:
        AssertionError: the results were not complete by the deadline.
    """
    found: list[T] = []
    deadline = time.monotonic() + timeout_s
    while not is_complete(found):
        if time.monotonic() > deadline:
            raise AssertionError(f"not complete within {timeout_s} s: {len(found)}: {found[-5:]}")
        found += more()
    return found
