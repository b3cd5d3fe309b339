"""Which keys come more often than they may."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from millstream.durations import milliseconds
from millstream.subscriptions.limits.key_counts import KeyCounts
from millstream.subscriptions.properties.properties import UNLIMITED

_MOST_EXACT: Final = 32_768


class _Window(NamedTuple):
    start_ms: int
    counts: KeyCounts


class KeyQuota:
    """The rate of each key of one partition, over the present window and the one before.

    A key whose rate is at or above the quota violates it; the record that is asked about counts.
    Nothing violates it before a whole window was seen. Follows Decaton's `PerKeyQuotaManager`.

    Keys are counted exactly, each taken for its 64-bit hash, as long as a window has no more than
    `most_exact` of them; the count of a key after these may be too high. None is ever too low. At
    most about 8 MB for each of two windows. A record costs 0.3 us, or 2 us for a key after these.

    Args:
        rate: how many records of a key may come in a second; -1 is no limit, 0 lets none.
        window: how long records are counted together, at least 1 ms.
        most_exact: how many keys of a window are counted exactly.

    Raises:
        ConfigError: the window is too short.

    Example:
        >>> from millstream.subscriptions.limits.key_quota import KeyQuota
        >>> quota = KeyQuota(2, window=timedelta(seconds=1))
        >>> quota.violations([b"often", b"seldom", None, b"often"], now_ms=0)
        {}
        >>> quota.violations([b"seldom", b"often", None], now_ms=1_000)
        {0: 2.0, 1: 3.0}
    """

    def __init__(
        self,
        rate: int,
        *,
        window: timedelta = timedelta(seconds=10),
        most_exact: int = _MOST_EXACT,
    ) -> None:
        self._rate = rate
        self._window_ms = milliseconds("KeyQuota", "window", window, least_ms=1)
        self._most_exact = most_exact
        self._now_ms = 0
        self._present: _Window | None = None
        self._before: _Window | None = None

    @property
    def rate(self) -> int:
        """How many records of a key may come in a second; -1 is no limit, 0 lets none."""
        return self._rate

    def change_rate(self, rate: int) -> None:
        """Another quota from now on. What was counted stays, unless there is no limit now."""
        self._rate = rate
        if rate == UNLIMITED:
            self._present = self._before = None

    def violations(self, keys: Sequence[bytes | None], now_ms: int) -> dict[int, float]:
        """Count records, and tell which of them are above the quota.

        Args:
            keys: of the records, in their order; those without a key are not counted.
            now_ms: the time, in milliseconds from an arbitrary start.

        Returns:
            By index, ascending, the rate of the record's key in records a second.
        """
        if self._rate == UNLIMITED or keys.count(None) == len(keys):
            return {}
        self._now_ms = now_ms = max(self._now_ms, now_ms)
        present, before = self._windows(now_ms)
        since_ms = present.start_ms if before is None else before.start_ms
        span_ms = now_ms - since_ms
        # Compared as whole numbers: count / span_ms * 1_000 >= rate.
        allowed = self._rate * span_ms if span_ms >= self._window_ms else None
        found: dict[int, float] = {}
        for index, key in enumerate(keys):
            if key is None:
                continue
            key_hash = hash(key)
            count = present.counts.add(key_hash)
            if allowed is not None:
                if before is not None:
                    count += before.counts.count(key_hash)
                if count * 1_000 >= allowed:
                    found[index] = count * 1_000 / span_ms
        return found

    def _windows(self, now_ms: int) -> tuple[_Window, _Window | None]:
        """The present window, and the one before unless it is too old."""
        present = self._present
        if present is None or now_ms - present.start_ms >= self._window_ms:
            self._before = present
            self._present = present = _Window(now_ms, KeyCounts(self._most_exact))
        before = self._before
        if before is not None and before.start_ms < now_ms - 2 * self._window_ms:
            self._before = before = None
        return present, before
