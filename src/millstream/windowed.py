"""Time windows and windowed keys: the keys of windowed aggregations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any, Generic, TypeVar

from millstream.record import MAX_TIME_MS as MAX_TIME_MS

K_co = TypeVar("K_co", covariant=True)

_new = tuple.__new__


class Window(tuple[int, int]):
    """A time window. Immutable; ordered by start, then by end.

    The kind of the window determines whether the end is inclusive: windows of a fixed size exclude
    it (Kafka Streams' `TimeWindow`), sliding and session windows include it (`SessionWindow`).

    Args:
        start_ms: milliseconds since the epoch, not negative.
        end_ms: milliseconds since the epoch, not before the start.

    Raises:
        ValueError: the start is negative, or the end is before the start.

    Example:
        >>> Window(0, 10) < Window(0, 20) < Window(5, 10)
        True
    """

    __slots__ = ()

    def __new__(cls, start_ms: int, end_ms: int) -> Window:
        if start_ms < 0:
            raise ValueError(f"A window cannot start at a negative time, but got {start_ms}.")
        if end_ms < start_ms:
            raise ValueError(f"A window cannot end at {end_ms} if it starts at {start_ms}.")
        return _new(cls, (start_ms, end_ms))

    @property
    def start_ms(self) -> int:
        """The start, in milliseconds since the epoch."""
        return self[0]

    @property
    def end_ms(self) -> int:
        """The end, in milliseconds since the epoch."""
        return self[1]

    def __getnewargs__(self) -> tuple[int, int]:
        return (self[0], self[1])

    def __repr__(self) -> str:
        return f"Window(start_ms={self[0]}, end_ms={self[1]})"


class Windowed(tuple[K_co, Window], Generic[K_co]):
    """A key in a window. Immutable; ordered by key, then by window.

    Example:
        >>> clicks = Windowed("alice", Window(0, 60_000))
        >>> clicks.key, clicks.window.end_ms, str(clicks)
        ('alice', 60000, '[alice@0/60000]')
    """

    __slots__ = ()

    def __new__(cls, key: K_co, window: Window) -> Windowed[K_co]:
        return _new(cls, (key, window))

    @property
    def key(self) -> K_co:
        """The grouping key."""
        return self[0]

    @property
    def window(self) -> Window:
        """The window."""
        return self[1]

    def __getnewargs__(self) -> tuple[K_co, Window]:
        return (self[0], self[1])

    def __repr__(self) -> str:
        return f"Windowed(key={self[0]!r}, window={self[1]!r})"

    def __str__(self) -> str:
        return f"[{self[0]}@{self[1][0]}/{self[1][1]}]"


def unchecked_windowed(key: Any, start_ms: int, end_ms: int) -> Windowed[Any]:
    """Create a windowed key without checks, in 0.3 us.

    This is two thirds of the time that a creation with checks takes.
    """
    return _new(Windowed, (key, _new(Window, (start_ms, end_ms))))


def windowed_keys(keys: Iterable[Any], windows: Iterable[Window]) -> list[Windowed[Any]]:
    """Combine keys and existing windows: 0.1 us each."""
    return list(map(_new, repeat(Windowed), zip(keys, windows, strict=True)))


def unchecked_window(start_ms: int, end_ms: int) -> Window:
    """Create a window without checks."""
    return _new(Window, (start_ms, end_ms))


def unchecked_windows(starts_ms: Iterable[int], ends_ms: Iterable[int]) -> Iterator[Window]:
    """Create windows without checks: 0.1 us each."""
    return map(_new, repeat(Window), zip(starts_ms, ends_ms, strict=True))


def fixed_window_end(start_ms: int, size_ms: int) -> int:
    """Return the end of a fixed-size window.

    Returns `MAX_TIME_MS` if the end exceeds Java's largest `long`.
    """
    return min(start_ms + size_ms, MAX_TIME_MS)
