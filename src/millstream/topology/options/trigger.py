"""When a DataFrame function in the middle of a topology gets the next records."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from millstream.errors import TopologyError
from millstream.topology.call_site import call_site

TriggerKind = Literal["processing_time", "available_now"]

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
        interval_ms: the least time between the beginnings of two batches.

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
        return cls("processing_time", _checked_ms(interval))

    @classmethod
    def available_now(cls) -> Trigger:
        """All records that are there when the application starts, and then none until it is started
        again.

        Example:
            >>> Trigger.available_now().kind
            'available_now'
        """
        return cls("available_now")


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
            f"trigger= takes a Trigger, but got {trigger!r}. Give Trigger.processing_time(...) or "
            "Trigger.available_now().",
            declared_at=call_site(),
        )
    return trigger


def _checked_ms(interval: timedelta | str) -> int:
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
            "Trigger.processing_time() takes a length of time, as a timedelta or like "
            f"'10 seconds', but got {interval!r}.",
            declared_at=call_site(),
        )
    return milliseconds
