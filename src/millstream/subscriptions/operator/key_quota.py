"""The per-key quota of a partition."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from millstream.durations import milliseconds
from millstream.subscriptions.properties.subscription_properties import UNLIMITED

#: Cells per row. On average, a cell overestimates by 1 / width of all additions.
_WIDTH: Final = 1 << 17
_COLUMN: Final = _WIDTH - 1


class CountMinSketch:
    """A count-min sketch in 4 MiB. Counts are never too low and rarely too high.

    A count is the minimum of four cells, one per row, selected by the hash of the key. An addition
    raises only the lowest of them (conservative update), which reduces the effect of collisions.
    """

    __slots__ = ("_cells",)

    def __init__(self) -> None:
        self._cells = array("Q", bytes(8 * 4 * _WIDTH))

    def add(self, key_hash: int) -> int:
        cells = self._cells
        indices = _cell_indices(key_hash)
        a, b, c, d = indices
        count = min(cells[a], cells[b], cells[c], cells[d]) + 1
        for index in indices:
            if cells[index] < count:
                cells[index] = count
        return count

    def count(self, key_hash: int) -> int:
        cells = self._cells
        a, b, c, d = _cell_indices(key_hash)
        return min(cells[a], cells[b], cells[c], cells[d])


class KeyCounts:
    """Exact counts for the first keys, and a sketch for all further keys.

    Keys are identified by their 64-bit hash, whatever their length. Uses at most about 110 bytes
    for each exactly counted key, and 4 MiB for the sketch, which is allocated on demand.
    """

    __slots__ = ("_exact", "_max_exact", "_sketch")

    def __init__(self, max_exact: int) -> None:
        self._exact: dict[int, int] = {}
        self._max_exact = max_exact
        self._sketch: CountMinSketch | None = None

    def add(self, key_hash: int) -> int:
        exact = self._exact
        count = exact.get(key_hash)
        if count is not None:
            exact[key_hash] = count = count + 1
            return count
        if len(exact) < self._max_exact:
            exact[key_hash] = 1
            return 1
        if self._sketch is None:
            self._sketch = CountMinSketch()
        return self._sketch.add(key_hash)

    def count(self, key_hash: int) -> int:
        count = self._exact.get(key_hash)
        if count is not None:
            return count
        return 0 if self._sketch is None else self._sketch.count(key_hash)


def _cell_indices(key_hash: int) -> tuple[int, int, int, int]:
    """Return one cell per row, by double hashing (Kirsch and Mitzenmacher)."""
    step = (key_hash >> 32) | 1
    second = key_hash + step
    third = second + step
    return (
        key_hash & _COLUMN,
        (second & _COLUMN) + _WIDTH,
        (third & _COLUMN) + 2 * _WIDTH,
        ((third + step) & _COLUMN) + 3 * _WIDTH,
    )


#: The number of keys of a window that are counted exactly.
_MAX_EXACT: Final = 32_768


class _Window(NamedTuple):
    start_ms: int
    counts: KeyCounts


class KeyQuota:
    """Measures the rate of each key of one partition.

    The rate covers the current and the previous window. A key violates the quota if its rate,
    including the record being checked, is at or above the quota. There are no violations before one
    full window has passed. Follows Decaton's `PerKeyQuotaManager`.

    Keys are identified by their 64-bit hash. The first `max_exact` keys of a window are counted
    exactly; the counts of further keys may be too high, but never too low. Uses at most about 8 MB
    for each of two windows. A record takes 0.3 us, or 2 us if its key is not counted exactly.

    Args:
        rate: the allowed records per key and second; -1 means unlimited, 0 allows none.
        window: the length of a window, at least 1 ms.

    Raises:
        ConfigError: the window is shorter than 1 ms.
    """

    def __init__(
        self, rate: int, *, window: timedelta = timedelta(seconds=10), max_exact: int = _MAX_EXACT
    ) -> None:
        self.rate = rate
        self._window_ms = milliseconds("KeyQuota", "window", window, min_ms=1)
        self._max_exact = max_exact
        self._now_ms = 0
        self._current: _Window | None = None
        self._previous: _Window | None = None

    def change_rate(self, rate: int) -> None:
        """Change the quota. Existing counts are kept unless the new quota is unlimited."""
        self.rate = rate
        if rate == UNLIMITED:
            self._current = self._previous = None

    def violations(self, keys: Sequence[bytes | None], now_ms: int) -> dict[int, float]:
        """Count records, and return the rates of those that violate the quota.

        The result maps the indices of these records, in ascending order, to rates in records per
        second. `now_ms` is the time since an arbitrary start. Records without a key are not
        counted.
        """
        if self.rate == UNLIMITED or keys.count(None) == len(keys):
            return {}
        self._now_ms = now_ms = max(self._now_ms, now_ms)
        current, previous = self._windows(now_ms)
        since_ms = current.start_ms if previous is None else previous.start_ms
        span_ms = now_ms - since_ms
        # Integer arithmetic for: count / span_ms * 1_000 >= rate.
        allowed = self.rate * span_ms if span_ms >= self._window_ms else None
        found: dict[int, float] = {}
        for index, key in enumerate(keys):
            if key is None:
                continue
            key_hash = hash(key)
            count = current.counts.add(key_hash)
            if allowed is not None:
                if previous is not None:
                    count += previous.counts.count(key_hash)
                if count * 1_000 >= allowed:
                    found[index] = count * 1_000 / span_ms
        return found

    def _windows(self, now_ms: int) -> tuple[_Window, _Window | None]:
        """Return the current window, and the previous one unless it is too old."""
        current = self._current
        if current is None or now_ms - current.start_ms >= self._window_ms:
            self._previous = current
            self._current = current = _Window(now_ms, KeyCounts(self._max_exact))
        previous = self._previous
        if previous is not None and previous.start_ms < now_ms - 2 * self._window_ms:
            self._previous = previous = None
        return current, previous
