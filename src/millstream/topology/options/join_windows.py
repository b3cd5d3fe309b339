"""How far apart in time two records may be that are joined."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import Final

from millstream.durations import milliseconds
from millstream.errors import ConfigError

_NONE: Final = timedelta(0)


@dataclass(frozen=True, slots=True)
class JoinWindows:
    """When two records of equal key belong together (Kafka Streams' `JoinWindows`).

    A record of the other stream is a partner of one of this stream at time t if its time is from
    `t - before` to `t + after`, both included. One of the two may be negative: with
    `before=timedelta(seconds=-1)` a partner must be later by a second at least.

    A record's partners are awaited until stream time (the highest time on either side) has passed
    the end of its window by the grace period. Only then does a left or outer join give it up. Both
    sides are kept in stores for `before + after + grace`.

    Args:
        time_difference: how far a partner may be before or after.
        before: how far before, if that differs.
        after: how far after, if that differs.
        grace: how long to wait for records that are out of order.

    Raises:
        ConfigError: a window that ends before it begins, or a negative time difference or grace.

    Example:
        >>> JoinWindows(timedelta(minutes=5), before=timedelta(0)).size_ms
        300000
    """

    time_difference: timedelta
    _: KW_ONLY
    before: timedelta | None = None
    after: timedelta | None = None
    grace: timedelta = _NONE
    #: The two bounds and the grace period in milliseconds.
    before_ms: int = field(init=False, repr=False, compare=False)
    after_ms: int = field(init=False, repr=False, compare=False)
    grace_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        difference_ms = milliseconds("JoinWindows", "time_difference", self.time_difference)
        before_ms = after_ms = difference_ms
        if self.before is not None:
            before_ms = milliseconds("JoinWindows", "before", self.before, least_ms=None)
        if self.after is not None:
            after_ms = milliseconds("JoinWindows", "after", self.after, least_ms=None)
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
        """From the beginning to the end of a window, in milliseconds."""
        return self.before_ms + self.after_ms

    @property
    def retention_ms(self) -> int:
        """How long records are kept to be joined, in milliseconds."""
        return self.size_ms + self.grace_ms
