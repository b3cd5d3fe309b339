"""Detection of records that are processed without a commit."""

from __future__ import annotations

from millstream.clock import ManualClock
from millstream.runtime.loop.uncommitted_work import UncommittedWork
from millstream.runtime.loop.watchdog import Watchdog
from millstream.runtime.thread_control import CommitsOverdue, Report

LIMIT_MS = 10_000
INTERVAL_MS = 100
DUE_MS = INTERVAL_MS + 2 * LIMIT_MS


def process(work: UncommittedWork, clock: ManualClock, records: int = 1) -> None:
    """Process a batch that takes no time."""
    work.batch_began(clock.monotonic_ms())
    work.batch_ended(records, INTERVAL_MS)


def test_work_without_a_commit_is_overdue_after_twice_the_limits() -> None:
    """However often the work is discarded and repeated."""
    clock = ManualClock()
    work = UncommittedWork(clock, LIMIT_MS)
    for _ in range(20):
        process(work, clock)
        clock.advance(DUE_MS // 20)
    assert work.overdue_ms(INTERVAL_MS) == 0
    process(work, clock)
    clock.advance(100)
    assert work.overdue_ms(INTERVAL_MS) == work.uncommitted_ms == DUE_MS // 20 * 20 + 100
    work.committed(1)
    assert work.overdue_ms(INTERVAL_MS) == work.uncommitted_ms == 0


def test_a_thread_without_records_has_no_overdue_commits() -> None:
    clock = ManualClock()
    work = UncommittedWork(clock, LIMIT_MS)
    process(work, clock)
    clock.advance(10 * DUE_MS)
    assert work.overdue_ms(INTERVAL_MS) == 0
    process(work, clock)
    assert work.uncommitted_ms == 0


def test_watchdog_reports_overdue_commits_again_after_twice_the_time() -> None:
    overdue_ms, reports = [0], list[Report]()
    clock = ManualClock()
    watchdog = Watchdog(
        "thread", lambda: 0, 1_000, reports.append, clock, uncommitted_ms=lambda: overdue_ms[0]
    )
    for overdue in (0, 21_000, 30_000, 42_000, 0, 0):
        overdue_ms[0] = overdue
        watchdog.check_commits()
    assert reports == [CommitsOverdue(21_000), CommitsOverdue(42_000), CommitsOverdue(None)]


def test_uncommitted_work_is_described_with_its_limit() -> None:
    """From the start of its first batch until the commit. A batch without records does not
    count."""
    clock = ManualClock()
    work = UncommittedWork(clock, LIMIT_MS, "transaction.timeout.ms")
    process(work, clock, records=0)
    assert work.describe() == ""
    clock.advance(500)
    work.batch_began(clock.monotonic_ms())
    clock.advance(7_000)
    work.batch_ended(1, INTERVAL_MS)
    clock.advance(2_000)
    process(work, clock)
    clock.advance(2_000)
    expected = " The uncommitted work has taken 11000 ms; limit: 10000 ms (transaction.timeout.ms)."
    assert work.describe() == expected
    work.committed(1)
    assert work.describe() == ""
    assert UncommittedWork(clock, None).describe() == ""


def test_failed_batch_is_described_as_well() -> None:
    """The producer was fenced while the first record was being processed."""
    clock = ManualClock()
    work = UncommittedWork(clock, LIMIT_MS)
    work.batch_began(clock.monotonic_ms())
    clock.advance(11_000)
    assert "taken 11000 ms; limit: 10000 ms (max.poll.interval.ms)." in work.describe()


def test_each_attempt_is_described_separately() -> None:
    """For overdue commits, all attempts count together."""
    clock = ManualClock()
    work = UncommittedWork(clock, LIMIT_MS)
    for _ in range(3):
        process(work, clock)
        clock.advance(6_000)
        assert "taken 6000 ms" in work.describe()
        work.discarded()
        assert work.describe() == ""
    assert work.uncommitted_ms == 18_000
