"""Punctuations: scheduled calls of a processor."""

from __future__ import annotations

import enum
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

#: `callback(time_ms)`, called with the current stream time or wall-clock time.
Punctuator = Callable[[int], object]


class PunctuationType(enum.Enum):
    """The clock that a punctuation follows.

    Example:
        >>> class Beat(Processor[str, str, str, int]):
        ...     def init(self, context: ProcessorContext[str, int]) -> None:
        ...         super().init(context)
        ...         every = timedelta(seconds=10)
        ...         context.schedule(every, PunctuationType.WALL_CLOCK_TIME, self.beat)
        ...     def process(self, record: Record[str, str]) -> None:
        ...         pass
        ...     def beat(self, time_ms: int) -> None:
        ...         self.context.forward(Record("beat", time_ms, time_ms))
        >>> builder = StreamsBuilder()
        >>> beats = builder.stream("in", key=STRING, value=STRING).process(Beat)
        >>> beats.to("out", key=STRING, value=LONG)
        >>> with TopologyTestDriver(builder.build(), initial_wall_clock_ms=0) as driver:
        ...     driver.advance_wall_clock_time(timedelta(seconds=10))
        ...     driver.create_output_topic("out", key=STRING, value=LONG).read_value()
        10000
    """

    #: The highest timestamp of the task's input so far, which only advances when records arrive.
    STREAM_TIME = "stream time"
    #: The system clock.
    WALL_CLOCK_TIME = "wall-clock time"


class Cancellable(Protocol):
    """A schedule that can be canceled, as returned by `schedule`.

    Example:
        >>> context = MockProcessorContext()
        >>> calls = context.schedule(timedelta(seconds=1), PunctuationType.STREAM_TIME, print)
        >>> calls.cancel()
    """

    def cancel(self) -> None:
        """Stop calling the punctuator.

        Can be called repeatedly, and by the punctuator itself.

        Example:
            >>> class Once(Processor[str, str, str, str]):
            ...     def init(self, context: ProcessorContext[str, str]) -> None:
            ...         super().init(context)
            ...         wall_clock = PunctuationType.WALL_CLOCK_TIME
            ...         self.calls = context.schedule(timedelta(seconds=9), wall_clock, self.called)
            ...     def called(self, time_ms: int) -> None:
            ...         self.calls.cancel()
            >>> Once().init(context)
            >>> [schedule] = context.scheduled_punctuators()
            >>> schedule.punctuator(9_000)
            >>> schedule.cancelled
            True
        """


def checked_interval_ms(interval: timedelta) -> int:
    """Validate the interval of a schedule, and return it in milliseconds.

    Raises:
        TypeError: the interval is not a timedelta.
        ValueError: the interval is shorter than a millisecond.
    """
    if not isinstance(interval, timedelta):
        raise TypeError(
            f"The interval of schedule() must be a timedelta, but is {type(interval).__name__}: "
            f"{interval!r}."
        )
    milliseconds = interval // timedelta(milliseconds=1)
    if milliseconds < 1:
        raise ValueError(
            f"The interval of schedule() must be at least 1 millisecond, but is {interval}."
        )
    return milliseconds
