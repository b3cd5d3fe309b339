"""Sliding windows compared with their definition by record times (KIP-450)."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from millstream.operators.aggregates.sliding_aggregate import EMPTY, changed_windows

#: The record times in each window, by the window's start.
Windows = dict[int, list[int]]


@given(st.integers(0, 12), st.lists(st.integers(0, 40), max_size=25))
def test_windows_match_their_definition(difference: int, times: Sequence[int]) -> None:
    """Records arrive in any order; all windows and their contents are compared."""
    windows: Windows = {}
    for done, time in enumerate(times, 1):
        _add(windows, time, difference)
        assert windows == _defined(times[:done], difference)


def _add(windows: Windows, time: int, difference: int) -> None:
    nearby = range(time - 2 * difference, time + 2)
    found = [(at, windows[at], max(windows[at])) for at in sorted(windows) if at in nearby]
    for start, content, latest in changed_windows(found, time, difference, list):
        content_times = [] if content is EMPTY else content
        windows[start] = sorted([*content_times, time]) if start <= time else content_times
        assert max(windows[start]) == max(latest, time)


def _defined(times: Sequence[int], difference: int) -> Windows:
    """The windows that end at a record or start 1 ms after one, and contain a record."""
    starts = {max(0, time - difference) for time in times} | {time + 1 for time in times}
    ordered = sorted(times)
    all_windows = {
        start: [time for time in ordered if start <= time <= start + difference] for start in starts
    }
    return {start: content_times for start, content_times in all_windows.items() if content_times}
