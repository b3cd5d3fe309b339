"""Bars are drawn for long restorations on a terminal, and only there."""

from __future__ import annotations

import io

import pytest

from millstream.application.restore_bars import RestoreBars
from millstream.record import TaskId, TopicPartition
from millstream.runtime.control import RestoreEvent, RestoreStep


class Screen(io.StringIO):
    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def event(kind: str, offset: int, *, end: int = 1_000_000) -> RestoreEvent:
    place = TopicPartition("app-counts-changelog", 3)
    return RestoreEvent(RestoreStep(kind), place, "counts", offset, end, 0, TaskId(1, 3))


def test_a_long_restoration_gets_a_bar_that_goes_when_it_is_over() -> None:
    screen = Screen(terminal=True)
    bars = RestoreBars(screen)
    assert bars.may_show
    bars.show(event("start", -2))
    bars.show(event("batch", 499_999))
    assert bars._progress is not None
    (bar,) = bars._progress.tasks
    assert (bar.description, bar.percentage) == ("restoring counts 3", 50)
    # The thread was killed, and its successor begins anew.
    bars.show(event("start", 500_000))
    bars.show(event("end", 1_000_000))
    assert bars._progress is None
    assert "restoring counts 3" in screen.getvalue()


@pytest.mark.parametrize(("terminal", "end"), [(False, 1_000_000), (True, 1_000)])
def test_nothing_is_drawn_elsewhere_or_for_little(terminal: bool, end: int) -> None:
    screen = Screen(terminal=terminal)
    bars = RestoreBars(screen)
    for kind, offset in (("start", -2), ("batch", 500), ("end", end)):
        bars.show(event(kind, offset, end=end))
    bars.close()
    assert screen.getvalue() == ""
