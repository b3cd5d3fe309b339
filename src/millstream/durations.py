"""Conversion of durations and times to milliseconds."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from millstream.errors import ConfigError

_MILLISECOND: Final = timedelta(milliseconds=1)

#: The part of ISO 8601 that Java's `Duration` parses: days, hours, minutes, seconds.
_ISO: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)


def milliseconds(owner: str, parameter: str, span: timedelta, *, min_ms: int | None = 0) -> int:
    """Convert a duration to whole milliseconds.

    `min_ms` is None if negative durations are allowed. Raises ConfigError if `span` is not a
    timedelta or is below the minimum.
    """
    if not isinstance(span, timedelta):
        raise ConfigError(
            f"{owner} takes a timedelta for {parameter}, but got {span!r}. "
            f"Write for example {parameter}=timedelta(minutes=5)."
        )
    whole = span // _MILLISECOND
    if min_ms is not None and whole < min_ms:
        minimum = "1 ms" if min_ms else "0"
        raise ConfigError(f"{owner} got {parameter}={span!r}, but it must be at least {minimum}.")
    return whole


def iso_duration(text: str) -> timedelta | None:
    """Parse an ISO 8601 duration such as `P1D` or `PT2H30M`.

    Returns None if `text` is not a duration, or has more days than a `timedelta` can hold.
    """
    found = _ISO.fullmatch(text)
    parts = {name: float(part) for name, part in found.groupdict().items() if part} if found else {}
    with suppress(OverflowError):
        return timedelta(**parts) if parts else None
    return None


#: A number with a unit, as in `30s` or `1.5h`.
_WITH_UNIT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_UNITS: Final = {
    "ms": "milliseconds",
    "s": "seconds",
    "m": "minutes",
    "h": "hours",
    "d": "days",
}


def duration(text: str) -> timedelta | None:
    """Parse a duration such as `500ms`, `30s`, `5m`, `1.5h`, `7d` or `PT2M`.

    Returns None if `text` is not a duration, or has more days than a `timedelta` can hold.
    """
    found = _WITH_UNIT.fullmatch(text.strip())
    if found is None:
        return iso_duration(text.strip())
    with suppress(OverflowError):
        return timedelta(**{_UNITS[found[2]]: float(found[1])})
    return None


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def time_ms(text: str) -> int:
    """Convert an ISO 8601 time, by default UTC, to milliseconds since the epoch.

    Raises ConfigError."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            f"{text!r} is not a time: use the format 2026-11-23T04:30:00.000 for UTC, or append a "
            "zone, as in 2026-11-23T04:30:00+01:00."
        ) from error
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return (time - _EPOCH) // _MILLISECOND


def ago_ms(text: str, now_ms: int) -> int:
    """Return the time an ISO 8601 duration before `now_ms`, or raise ConfigError."""
    span = iso_duration(text)
    if span is None:
        raise ConfigError(f"{text!r} is not a duration: use the format P7D, PT12H or P1DT2H30M.")
    return now_ms - span // _MILLISECOND
