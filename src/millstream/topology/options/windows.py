"""Windows of aggregations and joins, and emit strategies of aggregations."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from enum import Enum
from math import gcd
from typing import Final

from millstream.durations import milliseconds
from millstream.errors import ConfigError
from millstream.topology.argument_checks import type_error
from millstream.windowed import MAX_TIME_MS

_ZERO: Final = timedelta(0)


class EmitStrategy(Enum):
    """Determines when a windowed aggregation sends its results downstream (KIP-825).

    Example:
        >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING)
        >>> hourly = clicks.group_by_key().windowed_by(TimeWindows(timedelta(hours=1)))
        >>> final = hourly.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count()
    """

    #: Emit each update of a window or, with caching, only the latest update at each commit.
    ON_WINDOW_UPDATE = "on_window_update"

    #: Emit one result for each window when the window closes: stream time has passed its end by the
    #: grace period, and late records can no longer change the result. The operator looks for closed
    #: windows when records arrive, at most once per second.
    ON_WINDOW_CLOSE = "on_window_close"


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Windows of a fixed size, tumbling or hopping (Kafka Streams' `TimeWindows`).

    Windows start at multiples of `advance`, counted from the epoch. The start of a window is
    inclusive and its end exclusive: with a size of 10 s, a record at 12:00:10 is in the window that
    starts at that time, not in the previous one. If `advance` is smaller than the size, windows
    overlap, and a record is in each window that covers its timestamp.

    Args:
        size: the size of a window.
        advance: the time between the starts of two windows; by default the size.
        grace: how long after its end a window accepts late records, in stream time.

    Raises:
        ConfigError: the size or the advance is not positive, the advance exceeds the size, or the
            grace period is negative.

    Example:
        >>> tumbling = TimeWindows(timedelta(minutes=5), grace=timedelta(seconds=30))
        >>> hopping = TimeWindows(timedelta(minutes=5), advance=timedelta(minutes=1))
        >>> hopping.size_ms, hopping.advance_ms
        (300000, 60000)
    """

    size: timedelta
    _: KW_ONLY
    advance: timedelta | None = None
    grace: timedelta = _ZERO
    #: The fields in milliseconds.
    size_ms: int = field(init=False, repr=False, compare=False)
    advance_ms: int = field(init=False, repr=False, compare=False)
    grace_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        size_ms = milliseconds("TimeWindows", "size", self.size, min_ms=1)
        advance_ms = size_ms
        if self.advance is not None:
            advance_ms = milliseconds("TimeWindows", "advance", self.advance, min_ms=1)
        if advance_ms > size_ms:
            raise ConfigError(
                f"Windows of {self.size} that advance by {self.advance} would skip the "
                "records in between. Use an advance of at most the size."
            )
        object.__setattr__(self, "size_ms", size_ms)
        object.__setattr__(self, "advance_ms", advance_ms)
        object.__setattr__(self, "grace_ms", milliseconds("TimeWindows", "grace", self.grace))

    @property
    def retention_ms(self) -> int:
        """How long a window must be stored to accept all of its records, in milliseconds."""
        return self.size_ms + self.grace_ms

    @property
    def tumbles(self) -> bool:
        """Whether windows do not overlap."""
        return self.advance_ms == self.size_ms

    @property
    def step_ms(self) -> int:
        """The size of aligned intervals, in milliseconds.

        All timestamps in one of these intervals belong to the same windows.
        """
        return gcd(self.size_ms, self.advance_ms)

    def starts_at(self, timestamp: int) -> range:
        """Return the starts of the windows that contain a timestamp, in ascending order.

        No window starts before 0.

        Example:
            >>> hopping = TimeWindows(timedelta(seconds=9), advance=timedelta(seconds=3))
            >>> list(hopping.starts_at(9500))
            [3000, 6000, 9000]
        """
        advance = self.advance_ms
        first = max(0, timestamp - self.size_ms + advance) // advance * advance
        return range(first, timestamp + 1, advance)


@dataclass(frozen=True, slots=True)
class UnlimitedWindows:
    """One window per key, which never ends (Kafka Streams' `UnlimitedWindows`).

    Args:
        start_ms: the start of the window in milliseconds since the epoch; earlier records are
            dropped.

    Raises:
        ConfigError: the start is negative.

    Example:
        >>> UnlimitedWindows(start_ms=1_700_000_000_000).size_ms
        9223372036854775807
    """

    start_ms: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.start_ms, int) or self.start_ms < 0:
            raise ConfigError(
                f"UnlimitedWindows got start_ms={self.start_ms!r}, but the start must be a "
                "non-negative number of milliseconds since the epoch."
            )

    @property
    def size_ms(self) -> int:
        """The largest timestamp, because the window never ends."""
        return MAX_TIME_MS

    @property
    def tumbles(self) -> bool:
        """False: the start of the window need not be a multiple of its size."""
        return False

    @property
    def step_ms(self) -> None:
        """None: there is only one window."""
        return

    def starts_at(self, timestamp: int) -> tuple[int, ...]:
        """Return the starts of the windows that contain a timestamp.

        Example:
            >>> UnlimitedWindows(start_ms=1_000).starts_at(999), UnlimitedWindows().starts_at(999)
            ((), (0,))
        """
        return (self.start_ms,) if timestamp >= self.start_ms else ()

    @property
    def grace_ms(self) -> int:
        """Zero: the window never ends."""
        return 0

    @property
    def retention_ms(self) -> int:
        """The largest timestamp: the window is never deleted."""
        return MAX_TIME_MS


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """Windows of a fixed size that are aligned to records.

    Kafka Streams' `SlidingWindows`. Each distinct set of records of a key that are at most
    `time_difference` apart is aggregated once, in a window that ends at its last record or starts
    right after a record that is no longer part of it. Start and end are both inclusive (KIP-450).

    Args:
        time_difference: the maximum time difference between the records of a window.
        grace: how long after its end a window accepts late records, in stream time.

    Raises:
        ConfigError: the time difference or the grace period is negative.

    Example:
        >>> SlidingWindows(timedelta(minutes=10), grace=timedelta(minutes=1)).time_difference_ms
        600000
    """

    time_difference: timedelta
    _: KW_ONLY
    grace: timedelta = _ZERO
    #: The fields in milliseconds.
    time_difference_ms: int = field(init=False, repr=False, compare=False)
    grace_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        difference_ms = milliseconds("SlidingWindows", "time_difference", self.time_difference)
        object.__setattr__(self, "time_difference_ms", difference_ms)
        object.__setattr__(self, "grace_ms", milliseconds("SlidingWindows", "grace", self.grace))

    @property
    def size_ms(self) -> int:
        """The size of a window in milliseconds."""
        return self.time_difference_ms

    @property
    def retention_ms(self) -> int:
        """How long a window must be stored to accept all of its records, in milliseconds."""
        return 2 * self.time_difference_ms + self.grace_ms


@dataclass(frozen=True, slots=True)
class SessionWindows:
    """Windows of activity, which grow as records arrive.

    Kafka Streams' `SessionWindows`. Records of a key belong to the same session if each is at most
    `inactivity_gap` away from the next. A record that is close enough to two sessions merges them.

    Args:
        inactivity_gap: the longest pause within a session.
        grace: how long beyond the gap a session accepts late records, in stream time.

    Raises:
        ConfigError: the gap or the grace period is negative.

    Example:
        >>> SessionWindows(timedelta(minutes=30), grace=timedelta(minutes=5)).inactivity_gap_ms
        1800000
    """

    inactivity_gap: timedelta
    _: KW_ONLY
    grace: timedelta = _ZERO
    #: The fields in milliseconds.
    inactivity_gap_ms: int = field(init=False, repr=False, compare=False)
    grace_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        gap_ms = milliseconds("SessionWindows", "inactivity_gap", self.inactivity_gap)
        object.__setattr__(self, "inactivity_gap_ms", gap_ms)
        object.__setattr__(self, "grace_ms", milliseconds("SessionWindows", "grace", self.grace))

    @property
    def retention_ms(self) -> int:
        """How long a session must be stored to accept all its records, in milliseconds."""
        return self.inactivity_gap_ms + self.grace_ms


#: The kinds of windows whose results are stored under the start of the window.
FixedSizeWindows = TimeWindows | UnlimitedWindows | SlidingWindows

#: The type of the argument of `windowed_by`.
AnyWindows = FixedSizeWindows | SessionWindows


def check_windows(windows: object) -> None:
    """Check the argument of `windowed_by`; `JoinWindows`, for example, are rejected.

    Raises:
        TypeError: the argument is not one of the supported kinds of windows.
    """
    if not isinstance(windows, AnyWindows):
        raise type_error(
            "windowed_by() takes TimeWindows, SlidingWindows, SessionWindows or "
            f"UnlimitedWindows, but got {windows!r}."
        )


@dataclass(frozen=True, slots=True)
class JoinWindows:
    """The maximum time difference between two joined records.

    Kafka Streams' `JoinWindows`. A record at time t joins the records of the other stream with
    timestamps from `t - before` to `t + after`, both inclusive. Either `before` or `after` may be
    negative: with `before=timedelta(seconds=-1)`, the other record must be at least one second
    later.

    The window of a record closes when stream time (the largest timestamp of either side) has passed
    its end by the grace period. A left or outer join emits a record without a partner only after
    its window has closed. Both sides are stored for `before + after + grace`.

    Args:
        time_difference: the maximum time difference in both directions.
        before: how much earlier the other record may be; by default `time_difference`.
        after: how much later the other record may be; by default `time_difference`.
        grace: how long to wait for out-of-order records.

    Raises:
        ConfigError: the window ends before it starts, or the time difference or the grace period is
            negative.

    Example:
        >>> JoinWindows(timedelta(minutes=5), before=timedelta(0)).size_ms
        300000
    """

    time_difference: timedelta
    _: KW_ONLY
    before: timedelta | None = None
    after: timedelta | None = None
    grace: timedelta = _ZERO
    #: The bounds and the grace period in milliseconds.
    before_ms: int = field(init=False, repr=False, compare=False)
    after_ms: int = field(init=False, repr=False, compare=False)
    grace_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        difference_ms = milliseconds("JoinWindows", "time_difference", self.time_difference)
        before_ms = after_ms = difference_ms
        if self.before is not None:
            before_ms = milliseconds("JoinWindows", "before", self.before, min_ms=None)
        if self.after is not None:
            after_ms = milliseconds("JoinWindows", "after", self.after, min_ms=None)
        if before_ms + after_ms < 0:
            raise ConfigError(
                f"A join window from {before_ms} ms before to {after_ms} ms after a record ends "
                "before it begins. before + after must be 0 or more."
            )
        object.__setattr__(self, "before_ms", before_ms)
        object.__setattr__(self, "after_ms", after_ms)
        object.__setattr__(self, "grace_ms", milliseconds("JoinWindows", "grace", self.grace))

    @property
    def size_ms(self) -> int:
        """The size of a window in milliseconds."""
        return self.before_ms + self.after_ms

    @property
    def retention_ms(self) -> int:
        """How long records are stored for the join, in milliseconds."""
        return self.size_ms + self.grace_ms
