"""Calls that a processor asks for by time."""

from __future__ import annotations

import enum
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

#: `callback(time_ms)`: the stream time or wall-clock time at which it is called.
Punctuator = Callable[[int], object]


class PunctuationType(enum.Enum):
    """Which clock a punctuation follows."""

    #: The highest timestamp of the task's input so far. It moves with records only.
    STREAM_TIME = "stream time"
    #: The clock of the machine.
    WALL_CLOCK_TIME = "wall-clock time"


class Cancellable(Protocol):
    """What `schedule` gives."""

    def cancel(self) -> None:
        """Call the punctuator no more. May be called by the punctuator itself, and twice."""
        ...


def checked_interval_ms(interval: timedelta) -> int:
    """The interval of a schedule in milliseconds.

    Raises:
        TypeError: it is no timedelta.
        ValueError: it is shorter than a millisecond.
    """
    if not isinstance(interval, timedelta):
        raise TypeError(
            f"schedule() needs its interval as a timedelta, but got {type(interval).__name__}: "
            f"{interval!r}."
        )
    milliseconds = interval // timedelta(milliseconds=1)
    if milliseconds < 1:
        raise ValueError(
            f"The shortest interval between two punctuations is 1 millisecond, but schedule() got "
            f"{interval}."
        )
    return milliseconds
