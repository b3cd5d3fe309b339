"""Durations of the user's: `timedelta` outside, milliseconds inside."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import timedelta
from typing import Final

from millstream.errors import ConfigError

_MILLISECOND: Final = timedelta(milliseconds=1)

#: ISO 8601, as far as Java's `Duration` reads it: days, hours, minutes, seconds.
_ISO: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)


def milliseconds(taker: str, parameter: str, span: timedelta, *, least_ms: int | None = 0) -> int:
    """A duration in whole milliseconds.

    Args:
        taker: what takes it, for errors.
        parameter: its name there.
        span: the duration.
        least_ms: the shortest that there may be; None for any, also a negative one.

    Raises:
        ConfigError: it is no timedelta, or too short.
    """
    if not isinstance(span, timedelta):
        raise ConfigError(
            f"{taker} takes a timedelta for {parameter}, but got {span!r}. "
            f"Write for example {parameter}=timedelta(minutes=5)."
        )
    whole = span // _MILLISECOND
    if least_ms is not None and whole < least_ms:
        least = "1 ms" if least_ms else "0"
        raise ConfigError(f"{taker} got {parameter}={span!r}, but it must be at least {least}.")
    return whole


def iso_duration(text: str) -> timedelta | None:
    """A duration in ISO 8601, such as `P1D` or `PT2H30M`; None if it is none, or of more days than
    a `timedelta` holds."""
    found = _ISO.fullmatch(text)
    parts = {name: float(part) for name, part in found.groupdict().items() if part} if found else {}
    with suppress(OverflowError):
        return timedelta(**parts) if parts else None
    return None
