"""When a DataFrame function in the middle of a topology gets the next records."""

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
#: Spark's `spark.sql.streaming.realTimeMode.minBatchDuration`.
_LEAST_REAL_TIME_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class Trigger:
    """When a query of Structured Streaming takes the next records, as one batch.

    Made by its class methods. Spark's own are `pyspark.sql.streaming.DataStreamWriter.trigger`.

    Args:
        kind: which of them.
        interval_ms: the least time between the beginnings of two batches; in real time, how long
            a batch is.

    Example:
        >>> Trigger.processing_time("2 seconds").interval_ms
        2000
    """

    kind: TriggerKind = "processing_time"
    interval_ms: int = 0

    @classmethod
    def processing_time(cls, interval: timedelta | str = timedelta(0)) -> Trigger:
        """Batch after batch, each beginning at least so long after the one before it.

        Args:
            interval: a timedelta or `"10 seconds"`; 0 to begin the next as soon as one has ended
                and there are records.

        Raises:
            TopologyError: it is no length of time.

        Example:
            >>> Trigger.processing_time(timedelta(seconds=1))
            Trigger(kind='processing_time', interval_ms=1000)
        """
        return cls("processing_time", _checked_ms(interval, "processing_time"))

    @classmethod
    def available_now(cls) -> Trigger:
        """All records that are there when the application starts, and then none until it is started
        again.

        Example:
            >>> Trigger.available_now().kind
            'available_now'
        """
        return cls("available_now")

    @classmethod
    def real_time(cls, batch: timedelta | str = timedelta(seconds=5)) -> Trigger:
        """Each record as soon as it is there, some milliseconds later, by tasks that stay.

        For functions that Spark's real-time mode takes: of SQL alone, without Python, shuffles or
        state, in an application that is at least once. See docs/build/dataframes.md.

        Args:
            batch: a timedelta or `"10 seconds"`: how often Spark notes how far it is. What was
                written since then is written again after a failure. No record waits for it.

        Raises:
            TopologyError: it is no length of time, or shorter than Spark's least, 5 seconds.

        Example:
            >>> Trigger.real_time()
            Trigger(kind='real_time', interval_ms=5000)
        """
        milliseconds = _checked_ms(batch, "real_time")
        if milliseconds < _LEAST_REAL_TIME_MS:
            raise TopologyError(
                f"Trigger.real_time() takes batches of at least 5 seconds, but got {batch!r}. It "
                "is how often Spark notes how far it is, and no record waits for it.",
                declared_at=call_site(),
            )
        return cls("real_time", milliseconds)

    @property
    def is_real_time(self) -> bool:
        """Whether records leave one by one, not by batches."""
        return self.kind == "real_time"


#: The next batch as soon as there are records and the last one has ended.
AT_ONCE: Final = Trigger()


def checked_trigger(trigger: object) -> Trigger:
    """The trigger itself, or the default for None.

    Raises:
        TopologyError: it is something else.
    """
    if trigger is None:
        return AT_ONCE
    if not isinstance(trigger, Trigger):
        raise TopologyError(
            f"trigger= takes a Trigger, but got {trigger!r}. Give Trigger.processing_time(...), "
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
            f"Trigger.{trigger}() takes a length of time, as a timedelta or like '10 seconds', "
            f"but got {interval!r}.",
            declared_at=call_site(),
        )
    return milliseconds
