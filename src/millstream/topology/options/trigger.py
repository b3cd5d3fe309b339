"""Triggers of DataFrame functions and lake tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from millstream.errors import TopologyError
from millstream.topology.call_site import call_site

TriggerKind = Literal["processing_time", "available_now", "real_time"]

_INTERVAL: Final = re.compile(
    r"\s*(\d+)\s*(milliseconds?|ms|seconds?|s|minutes?|min|hours?|h)\s*", re.IGNORECASE
)
_MS: Final = {"m": 1, "s": 1_000, "mi": 60_000, "h": 3_600_000}
#: The minimum interval in real-time mode: Spark's default for
#: `spark.sql.streaming.realTimeMode.minBatchDuration`.
_MIN_REAL_TIME_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class Trigger:
    """The trigger of a Structured Streaming query.

    It determines when a batch starts. Created by its class methods, which correspond to the
    arguments of `pyspark.sql.streaming.DataStreamWriter.trigger`.

    Args:
        interval_ms: the minimum time between the starts of two batches; in real-time mode, the
            duration of a batch.

    Example:
        >>> Trigger.processing_time("2 seconds").interval_ms
        2000
    """

    kind: TriggerKind = "processing_time"
    interval_ms: int = 0

    @classmethod
    def processing_time(cls, interval: timedelta | str = timedelta(0)) -> Trigger:
        """Start batches one after another, with a minimum interval between their starts.

        Args:
            interval: a timedelta, or a string such as `"10 seconds"`; 0 to start the next batch as
                soon as the previous batch has ended and records are available.

        Raises:
            TopologyError: the interval is not a valid duration.

        Example:
            >>> Trigger.processing_time(timedelta(seconds=1))
            Trigger(kind='processing_time', interval_ms=1000)
        """
        return cls("processing_time", _checked_ms(interval, "processing_time"))

    @classmethod
    def available_now(cls) -> Trigger:
        """Process all records available when the application starts, then end the query.

        Example:
            >>> Trigger.available_now().kind
            'available_now'
        """
        return cls("available_now")

    @classmethod
    def real_time(cls, batch: timedelta | str = timedelta(seconds=5)) -> Trigger:
        """Process each record within milliseconds, in long-running tasks.

        For functions that Spark's real-time mode supports: SQL only, without Python, shuffles or
        state, in an at-least-once application. See docs/build/dataframes.md.

        Args:
            batch: the interval between Spark's checkpoints: a timedelta, or a string such as `"10
                seconds"`. After a failure, the records since the last checkpoint are written again.
                Records do not wait for the end of a batch.

        Raises:
            TopologyError: `batch` is not a valid duration, or is shorter than Spark's minimum of 5
                seconds.

        Example:
            >>> Trigger.real_time()
            Trigger(kind='real_time', interval_ms=5000)
        """
        milliseconds = _checked_ms(batch, "real_time")
        if milliseconds < _MIN_REAL_TIME_MS:
            raise TopologyError(
                f"Trigger.real_time() takes batches of at least 5 seconds, but got {batch!r}. This "
                "is the interval between Spark's checkpoints; records do not wait for it.",
                declared_at=call_site(),
            )
        return cls("real_time", milliseconds)

    @property
    def is_real_time(self) -> bool:
        """Whether records are emitted one by one instead of in batches."""
        return self.kind == "real_time"


#: Starts the next batch as soon as the previous batch has ended and records are available.
DEFAULT_TRIGGER: Final = Trigger()


def checked_trigger(trigger: object) -> Trigger:
    """Return the trigger, or the default for None.

    Raises:
        TopologyError: the argument is not a trigger.
    """
    if trigger is None:
        return DEFAULT_TRIGGER
    if not isinstance(trigger, Trigger):
        raise TopologyError(
            f"trigger= takes a Trigger, but got {trigger!r}. Use Trigger.processing_time(...), "
            "Trigger.available_now() or Trigger.real_time(...).",
            declared_at=call_site(),
        )
    return trigger


def _checked_ms(interval: timedelta | str, trigger: TriggerKind) -> int:
    found = _INTERVAL.fullmatch(interval) if isinstance(interval, str) else None
    if isinstance(interval, timedelta):
        milliseconds = interval // timedelta(milliseconds=1)
    elif found is not None:
        unit = found[2].lower()
        milliseconds = int(found[1]) * _MS["mi" if unit.startswith("min") else unit[0]]
    else:
        milliseconds = -1
    if milliseconds < 0:
        raise TopologyError(
            f"Trigger.{trigger}() takes a duration: a timedelta or a string like '10 seconds', "
            f"but got {interval!r}.",
            declared_at=call_site(),
        )
    return milliseconds
