"""Which sliding windows there are, against their definition by the times of records (KIP-450)."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from millstream.operators.aggregates.sliding_aggregate import EMPTY, changed_windows

#: By the start of a window the times of its records.
Windows = dict[int, list[int]]


@given(st.integers(0, 12), st.lists(st.integers(0, 40), max_size=25))
def test_windows_follow_from_the_times_alone(difference: int, times: Sequence[int]) -> None:
    """A window that is missing, too many, or with a record too many or too few, in any order."""
    windows: Windows = {}
    for done, time in enumerate(times, 1):
        _add(windows, time, difference)
        assert windows == _defined(times[:done], difference)


def _add(windows: Windows, time: int, difference: int) -> None:
    nearby = range(time - 2 * difference, time + 2)
    found = [(at, windows[at], max(windows[at])) for at in sorted(windows) if at in nearby]
    for start, content, latest in changed_windows(found, time, difference, list):
        held = [] if content is EMPTY else content
        windows[start] = sorted([*held, time]) if start <= time else held
        assert max(windows[start]) == max(latest, time)


def _defined(times: Sequence[int], difference: int) -> Windows:
    """What ends with a record, and what begins 1 ms after one, if a record is in it."""
    starts = {max(0, time - difference) for time in times} | {time + 1 for time in times}
    ordered = sorted(times)
    all_windows = {
        start: [time for time in ordered if start <= time <= start + difference] for start in starts
    }
    return {start: held for start, held in all_windows.items() if held}
