"""Progress bars are shown only for long restorations on a terminal."""

from __future__ import annotations

import io

import pytest

from millstream.application.listeners import RestoreBars
from millstream.record import TaskId, TopicPartition
from millstream.runtime.thread_control import RestoreEvent, RestoreStep


class Screen(io.StringIO):
    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def event(kind: str, offset: int, *, end: int = 1_000_000) -> RestoreEvent:
    place = TopicPartition("app-counts-changelog", 3)
    return RestoreEvent(RestoreStep(kind), place, "counts", offset, end, 0, TaskId(1, 3))


def test_a_long_restoration_shows_a_bar_until_its_end() -> None:
    screen = Screen(terminal=True)
    bars = RestoreBars(screen)
    assert bars.may_show
    bars.show(event("start", -2))
    bars.show(event("batch", 499_999))
    assert bars._progress is not None
    (bar,) = bars._progress.tasks
    assert (bar.description, bar.percentage) == ("restoring counts 3", 50)
    # The thread was killed, and its successor starts again.
    bars.show(event("start", 500_000))
    bars.show(event("end", 1_000_000))
    assert bars._progress is None
    assert "restoring counts 3" in screen.getvalue()


@pytest.mark.parametrize(("terminal", "end"), [(False, 1_000_000), (True, 1_000)])
def test_no_bar_without_a_terminal_or_for_short_restorations(terminal: bool, end: int) -> None:
    screen = Screen(terminal=terminal)
    bars = RestoreBars(screen)
    for kind, offset in (("start", -2), ("batch", 500), ("end", end)):
        bars.show(event(kind, offset, end=end))
    bars.close()
    assert screen.getvalue() == ""
