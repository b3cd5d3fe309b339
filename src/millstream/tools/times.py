"""Times as people write them on a command line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from millstream.durations import iso_duration
from millstream.errors import ConfigError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def time_ms(text: str) -> int:
    """Milliseconds since the epoch of a time in ISO 8601: UTC unless it says otherwise.

    Raises:
        ConfigError: it is none.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            f"{text!r} is no time: write it as 2026-11-23T04:30:00.000, in UTC, or with a zone "
            "behind it, as in 2026-11-23T04:30:00+01:00."
        ) from error
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return (time - _EPOCH) // _MILLISECOND


def ago_ms(text: str, now_ms: int) -> int:
    """Milliseconds since the epoch of so long before now, in ISO 8601 as Java reads it.

    Raises:
        ConfigError: it is no duration.
    """
    span = iso_duration(text)
    if span is None:
        raise ConfigError(f"{text!r} is no duration: write it as P7D, PT12H or P1DT2H30M.")
    return now_ms - span // _MILLISECOND
