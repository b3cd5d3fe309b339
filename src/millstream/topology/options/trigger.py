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


@dataclass(frozen=True, slots=True)
class Trigger:
    """When a query of Structured Streaming takes the next records, as one batch.

    Made by its class methods. Spark's own are `pyspark.sql.streaming.DataStreamWriter.trigger`.

    Args:
        kind: which of them.
        interval_ms: the least time between two batches; of a real-time query how long one lasts.

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
        return cls("processing_time", _checked_ms("processing_time", interval, least=0))

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
    def real_time(cls, batch: timedelta | str = timedelta(minutes=1)) -> Trigger:
        """Each record as it comes: Spark's real-time mode. A batch only says how often the query
        notes how far it is.

        Spark takes few plans for it: no aggregation, no Python function, one stage (Spark 4.1).
        At least once only.

        Args:
            batch: a timedelta or `"1 minute"`, 5 seconds at least.

        Raises:
            TopologyError: it is no length of time, or below 5 seconds.

        Example:
            >>> Trigger.real_time("10 seconds").interval_ms
            10000
        """
        return cls("real_time", _checked_ms("real_time", batch, least=5_000))


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
            "Trigger.available_now() or Trigger.real_time().",
            declared_at=call_site(),
        )
    return trigger


def _checked_ms(method: str, interval: timedelta | str, least: int) -> int:
    found = _INTERVAL.fullmatch(interval) if isinstance(interval, str) else None
    if isinstance(interval, timedelta):
        milliseconds = interval // timedelta(milliseconds=1)
    elif found is not None:
        unit = found[2].lower()
        milliseconds = int(found[1]) * _MS["mi" if unit.startswith("min") else unit[0]]
    else:
        milliseconds = -1
    if milliseconds < least:
        at_least = f" of at least {least // 1_000} s" if least else ""
        raise TopologyError(
            f"Trigger.{method}() takes a length of time{at_least}, as a timedelta or like "
            f"'10 seconds', but got {interval!r}.",
            declared_at=call_site(),
        )
    return milliseconds
