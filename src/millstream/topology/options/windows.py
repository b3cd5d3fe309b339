"""Over which spans of time records are aggregated, and when the results are told."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from enum import Enum
from math import gcd
from typing import Final

from millstream.durations import milliseconds
from millstream.errors import ConfigError
from millstream.topology.arguments import wrong_type
from millstream.windowed import MAX_TIME_MS

_NONE: Final = timedelta(0)


class EmitStrategy(Enum):
    """When the results of a windowed aggregation are sent downstream (KIP-825).

    Example:
        >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING)
        >>> hourly = clicks.group_by_key().windowed_by(TimeWindows(timedelta(hours=1)))
        >>> final = hourly.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count()
    """

    #: Each time a window changes. With caching: the latest change at each commit.
    ON_WINDOW_UPDATE = "on_window_update"

    #: Once, when a window is closed: stream time has passed its end by the grace period. Late
    #: records cannot change it any more. Noticed when a record arrives, at most once a second.
    ON_WINDOW_CLOSE = "on_window_close"


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Windows of a fixed size, tumbling or hopping (Kafka Streams' `TimeWindows`).

    Windows begin at the multiples of `advance`, counted from the epoch. A window has its start and
    does not have its end: with a size of 10 s, a record at 12:00:10 is in the window that begins
    then, not in the one before. If `advance` is smaller than the size, windows overlap and a
    record is in each that spans its time.

    Args:
        size: how long a window is.
        advance: from the start of a window to that of the next one; by default its size.
        grace: how long after its end a window still takes late records, in stream time.

    Raises:
        ConfigError: a size or advance that is not positive, an advance above the size, or a
            negative grace.

    Example:
        >>> tumbling = TimeWindows(timedelta(minutes=5), grace=timedelta(seconds=30))
        >>> hopping = TimeWindows(timedelta(minutes=5), advance=timedelta(minutes=1))
        >>> hopping.size_ms, hopping.advance_ms
        (300000, 60000)
    """

    size: timedelta
    _: KW_ONLY
    advance: timedelta | None = None
    grace: timedelta = _NONE
    #: The same in milliseconds.
    size_ms: int = field(init=False, repr=False, compare=False)
    advance_ms: int = field(init=False, repr=False, compare=False)
    grace_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        size_ms = milliseconds("TimeWindows", "size", self.size, least_ms=1)
        advance_ms = size_ms
        if self.advance is not None:
            advance_ms = milliseconds("TimeWindows", "advance", self.advance, least_ms=1)
        if advance_ms > size_ms:
            raise ConfigError(
                f"Windows of {self.size} that advance by {self.advance} would leave out the "
                "records in between. Give an advance of at most the size."
            )
        object.__setattr__(self, "size_ms", size_ms)
        object.__setattr__(self, "advance_ms", advance_ms)
        object.__setattr__(self, "grace_ms", milliseconds("TimeWindows", "grace", self.grace))

    @property
    def retention_ms(self) -> int:
        """How long windows must be kept so that no record misses its own, in milliseconds."""
        return self.size_ms + self.grace_ms

    @property
    def tumbles(self) -> bool:
        """Whether windows do not overlap."""
        return self.advance_ms == self.size_ms

    @property
    def step_ms(self) -> int:
        """Times that give the same number when divided by this lie in the same windows."""
        return gcd(self.size_ms, self.advance_ms)

    def starts_at(self, timestamp: int) -> range:
        """When the windows start that a time lies in, ascending; none starts before 0.

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
    """One window for each key that never ends (Kafka Streams' `UnlimitedWindows`).

    Args:
        start_ms: when it begins; earlier records are left out. Milliseconds since the epoch.

    Raises:
        ConfigError: a negative start.

    Example:
        >>> UnlimitedWindows(start_ms=1_700_000_000_000).size_ms
        9223372036854775807
    """

    start_ms: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.start_ms, int) or self.start_ms < 0:
            raise ConfigError(
                f"UnlimitedWindows got start_ms={self.start_ms!r}, but it must be a number of "
                "milliseconds since the epoch, and there is no time before 0."
            )

    @property
    def size_ms(self) -> int:
        """The highest number there is for a time."""
        return MAX_TIME_MS

    @property
    def tumbles(self) -> bool:
        """There are no other windows, but this one starts anywhere."""
        return False

    @property
    def step_ms(self) -> None:
        """There are no steps."""
        return

    def starts_at(self, timestamp: int) -> tuple[int, ...]:
        """When the windows start that a time lies in.

        Example:
            >>> UnlimitedWindows(start_ms=1_000).starts_at(999), UnlimitedWindows().starts_at(999)
            ((), (0,))
        """
        return (self.start_ms,) if timestamp >= self.start_ms else ()

    @property
    def grace_ms(self) -> int:
        """None: the window never ends."""
        return 0

    @property
    def retention_ms(self) -> int:
        """For ever."""
        return MAX_TIME_MS


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """Windows of a fixed size that begin and end at records (Kafka Streams' `SlidingWindows`).

    Each distinct combination of records of a key that lie at most `time_difference` apart is
    aggregated once, in a window that ends with the last of them or begins right after a record
    that is no longer in it. Start and end are both in the window (KIP-450).

    Args:
        time_difference: how far apart the records of a window are at most.
        grace: how long after its end a window still takes late records, in stream time.

    Raises:
        ConfigError: a negative time difference or grace.

    Example:
        >>> SlidingWindows(timedelta(minutes=10), grace=timedelta(minutes=1)).time_difference_ms
        600000
    """

    time_difference: timedelta
    _: KW_ONLY
    grace: timedelta = _NONE
    #: The same in milliseconds.
    time_difference_ms: int = field(init=False, repr=False, compare=False)
    grace_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        difference_ms = milliseconds("SlidingWindows", "time_difference", self.time_difference)
        object.__setattr__(self, "time_difference_ms", difference_ms)
        object.__setattr__(self, "grace_ms", milliseconds("SlidingWindows", "grace", self.grace))

    @property
    def size_ms(self) -> int:
        """From the start to the end of a window, in milliseconds."""
        return self.time_difference_ms

    @property
    def retention_ms(self) -> int:
        """How long windows must be kept so that no record misses its own, in milliseconds."""
        return 2 * self.time_difference_ms + self.grace_ms


@dataclass(frozen=True, slots=True)
class SessionWindows:
    """Windows of activity: they grow as long as records come (Kafka Streams' `SessionWindows`).

    Records of a key belong to one session if each is at most `inactivity_gap` away from the next.
    A record between two sessions that is close enough to both joins them to one.

    Args:
        inactivity_gap: the longest pause within a session.
        grace: how much longer than the gap a session still takes late records, in stream time.

    Raises:
        ConfigError: a negative gap or grace.

    Example:
        >>> SessionWindows(timedelta(minutes=30), grace=timedelta(minutes=5)).inactivity_gap_ms
        1800000
    """

    inactivity_gap: timedelta
    _: KW_ONLY
    grace: timedelta = _NONE
    #: The same in milliseconds.
    inactivity_gap_ms: int = field(init=False, repr=False, compare=False)
    grace_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        gap_ms = milliseconds("SessionWindows", "inactivity_gap", self.inactivity_gap)
        object.__setattr__(self, "inactivity_gap_ms", gap_ms)
        object.__setattr__(self, "grace_ms", milliseconds("SessionWindows", "grace", self.grace))

    @property
    def retention_ms(self) -> int:
        """How long sessions must be kept so that no record misses its own, in milliseconds."""
        return self.inactivity_gap_ms + self.grace_ms


#: What `windowed_by` takes for windows whose results are kept by the start of the window.
FixedSizeWindows = TimeWindows | UnlimitedWindows | SlidingWindows

#: What `windowed_by` takes.
AnyWindows = FixedSizeWindows | SessionWindows


def check_windows(windows: object) -> None:
    """Refuse what is none of them, `JoinWindows` for example.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(windows, AnyWindows):
        raise wrong_type(
            "windowed_by() takes TimeWindows, SlidingWindows, SessionWindows or "
            f"UnlimitedWindows, but got {windows!r}."
        )
