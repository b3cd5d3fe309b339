"""Records that are processed without a commit are noticed."""

from __future__ import annotations

from millstream.clock import ManualClock
from millstream.runtime.control import CommitsOverdue, Report
from millstream.runtime.loop.overdue_commits import UncommittedWork
from millstream.runtime.loop.watchdog import Watchdog

LIMIT_MS = 10_000
INTERVAL_MS = 100
DUE_MS = INTERVAL_MS + 2 * LIMIT_MS


def test_work_without_a_commit_is_overdue_after_twice_the_limits() -> None:
    """However often it is given up and done again."""
    clock = ManualClock()
    work = UncommittedWork(clock, LIMIT_MS)
    for _ in range(20):
        work.processed(INTERVAL_MS)
        clock.advance(DUE_MS // 20)
    assert work.overdue_ms(INTERVAL_MS) == 0
    work.processed(INTERVAL_MS)
    clock.advance(100)
    assert work.overdue_ms(INTERVAL_MS) == work.uncommitted_ms == DUE_MS // 20 * 20 + 100
    work.committed(1)
    assert work.overdue_ms(INTERVAL_MS) == work.uncommitted_ms == 0


def test_a_thread_without_records_has_no_overdue_commits() -> None:
    clock = ManualClock()
    work = UncommittedWork(clock, LIMIT_MS)
    work.processed(INTERVAL_MS)
    clock.advance(10 * DUE_MS)
    assert work.overdue_ms(INTERVAL_MS) == 0
    work.processed(INTERVAL_MS)
    assert work.uncommitted_ms == 0


def test_the_watchdog_reports_overdue_commits_again_when_they_have_lasted_twice_as_long() -> None:
    overdue_ms, told = [0], list[Report]()
    clock = ManualClock()
    dog = Watchdog(
        "thread", lambda: 0, 1_000, told.append, clock, uncommitted_ms=lambda: overdue_ms[0]
    )
    for overdue in (0, 21_000, 30_000, 42_000, 0, 0):
        overdue_ms[0] = overdue
        dog.look_at_commits()
    assert told == [CommitsOverdue(21_000), CommitsOverdue(42_000), CommitsOverdue(None)]
