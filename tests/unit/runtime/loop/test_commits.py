"""Waits and timeouts of commits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest

from millstream.clock import Deadline, ManualClock
from millstream.errors import BrokerUnavailableError, ProductionError
from millstream.kafka.membership.member_events import CommitOffset
from millstream.record import TopicPartition
from millstream.runtime.loop.at_least_once import AtLeastOnce
from millstream.runtime.loop.commits import DrainTimeouts, TaskCommitter, TasksInFlightError
from millstream.runtime.states.thread_states import TaskState

FLUSH_MS = 130_000
COMMIT_MS = 15_000
STEP_MS = 1_000
#: More attempts than any test needs: an endless loop fails instead of hanging.
MAX_ATTEMPTS = 10_000


class Cluster:
    """A producer and a group. Their answers take time on a manual clock.

    Args:
        task_timeout_ms: `task.timeout.ms`.
        flush_takes_ms: the time until records are acknowledged.
        commit_takes_ms: the time until a commit is answered.
        down_ms: how long there are no answers at all.
        commit_down_ms: how long commits are not answered.
        max_wait_ms: the longest wait that the group allows.
    """

    def __init__(
        self,
        task_timeout_ms: int,
        *,
        flush_takes_ms: int = 0,
        commit_takes_ms: int = 0,
        down_ms: int = 0,
        commit_down_ms: int = 0,
        max_wait_ms: int | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.flushes: list[int] = []
        self.offset_commits: list[int] = []
        self._down_ms = max(down_ms, commit_down_ms)
        producer: Any = Mock(acked_offsets=Mock(return_value={}))
        producer.flush = self._flush
        self._acknowledged_ms = max(flush_takes_ms, down_ms)
        commit = self._answers(self.offset_commits, commit_takes_ms)
        self.member: Any = Mock(commit=lambda offsets, timeout_ms: commit(timeout_ms))
        # An immediate answer is available as soon as it is requested.
        self.member.begin_commit = lambda offsets, timeout_ms: Mock(
            is_done=commit_down_ms == 0, result=lambda within_ms: commit(timeout_ms)
        )
        self.producer = producer
        self.task: Any = MagicMock(commit_needed=True, offsets_to_commit=Mock(return_value={}))
        self.commits = TaskCommitter(
            AtLeastOnce(producer, self.member, self.clock, task_timeout_ms, FLUSH_MS),
            producer,
            self.clock,
            self.member.progress,
            max_wait_ms,
        )

    def _flush(self, timeout_ms: int) -> None:
        """Advance the clock as a flush does; records are still being sent between the calls."""
        self.flushes.append(timeout_ms)
        assert len(self.flushes) < MAX_ATTEMPTS
        left_ms = self._acknowledged_ms - self.clock.now_ms()
        self.clock.advance(max(0, min(timeout_ms, left_ms)))
        if left_ms > timeout_ms:
            raise BrokerUnavailableError(f"1 record was not acknowledged within {timeout_ms} ms")

    def _answers(self, attempts: list[int], takes_ms: int) -> Callable[[int], None]:
        def answer(timeout_ms: int) -> None:
            attempts.append(timeout_ms)
            assert len(attempts) < MAX_ATTEMPTS
            if max(takes_ms, self._down_ms - self.clock.now_ms()) > timeout_ms:
                self.clock.advance(timeout_ms)
                raise BrokerUnavailableError("no answer")
            self.clock.advance(takes_ms)

        return answer


class TaskInFlight:
    """A task with running work that ends after a while, and queued work that never starts.

    Args:
        clock: advances during waits.
        runs_ms: the duration of the running work. The task finishes then, if nothing is queued.
        queued: whether there is queued work.
    """

    task_id = "0_0"

    def __init__(self, clock: ManualClock, runs_ms: int, *, queued: bool = True) -> None:
        self._clock = clock
        self._runs_ms = runs_ms
        self._queued = queued
        self.halted_ms: int | None = None

    @property
    def can_finish(self) -> bool:
        return self.halted_ms is None or self._clock.now_ms() < self._runs_ms

    def drain(self, deadline: Deadline) -> bool:
        limit_ms = deadline.remaining_ms(1_000_000)
        if self.halted_ms is not None or not self._queued:
            limit_ms = min(limit_ms, max(0, self._runs_ms - self._clock.now_ms()))
        self._clock.advance(limit_ms)
        return not self._queued and self._clock.now_ms() >= self._runs_ms

    def halt(self) -> None:
        self.halted_ms = self._clock.now_ms()

    def located_errors(self) -> AbstractContextManager[None]:
        return nullcontext()


def test_drain_waits_for_all_tasks_together() -> None:
    """There is one deadline for all: their work finishes concurrently."""
    cluster = Cluster(0)
    tasks: Any = [TaskInFlight(cluster.clock, 0), TaskInFlight(cluster.clock, 0)]
    cluster.commits.drain(tasks)
    assert cluster.clock.now_ms() == 5_000
    assert [task.halted_ms for task in tasks] == [5_000, 5_000]


@pytest.mark.parametrize(
    ("timeouts", "runs_ms", "waited_ms"),
    [
        (DrainTimeouts(700, None), 20_000, 20_000),
        (DrainTimeouts(700, 300), 20_000, 1_000),
        (DrainTimeouts(700, 300), 900, 900),
        (DrainTimeouts(0, 0), 900, 0),
        (DrainTimeouts(700, None), 90_000, 60_000),
        (DrainTimeouts(80_000, None), 90_000, 60_000),
    ],
)
def test_drain_waits_for_all_work_and_then_for_running_work(
    timeouts: DrainTimeouts, runs_ms: int, waited_ms: int
) -> None:
    """Within the time that the group allows, while the thread keeps reporting progress."""
    cluster = Cluster(0, max_wait_ms=60_000)
    cluster.commits.revocation_timeouts = timeouts
    task: Any = TaskInFlight(cluster.clock, runs_ms)
    cluster.commits.drain([task])
    assert cluster.clock.now_ms() == waited_ms
    assert task.halted_ms == min(timeouts.drain_ms, 60_000)
    assert cluster.member.progress.call_count >= waited_ms // STEP_MS - 1


def test_task_that_finishes_in_time_is_not_halted() -> None:
    cluster = Cluster(0)
    task: Any = TaskInFlight(cluster.clock, 300, queued=False)
    cluster.commits.drain([task])
    assert (cluster.clock.now_ms(), task.halted_ms) == (300, None)


def test_closing_leaves_half_of_its_time_for_the_commit() -> None:
    cluster = Cluster(0)
    cluster.commits.closing_timeouts = DrainTimeouts(1_000_000, None)
    task: Any = TaskInFlight(cluster.clock, 50_000)
    assert not cluster.commits.drain_to_close([task], 30_000)
    assert cluster.clock.now_ms() == 15_000
    assert cluster.commits.drain_to_close([], 30_000)


def test_waiting_for_tasks_that_stay_does_not_halt_them() -> None:
    cluster = Cluster(0)
    cluster.commits.revocation_timeouts = DrainTimeouts(400, None)
    task: Any = TaskInFlight(cluster.clock, 0)
    cluster.commits.wait_for_in_flight([task])
    assert (cluster.clock.now_ms(), task.halted_ms) == (400, None)


def test_caches_are_not_flushed_until_all_tasks_can_commit() -> None:
    """A commit that has to wait is attempted repeatedly."""
    cluster = Cluster(0)
    unfinished: Any = MagicMock(commit_needed=True, awaits_delivery=False)
    unfinished.can_commit.return_value = False
    with pytest.raises(TasksInFlightError):
        cluster.commits.commit([cluster.task, unfinished])
    cluster.task.prepare_commit.assert_not_called()


def test_tasks_are_drained_in_turn() -> None:
    """A task that only makes progress while it is drained does not wait for the end of another."""
    cluster = Cluster(0)
    drains: list[str] = []

    def drain_of(name: str, rounds: int) -> Any:
        def drain(deadline: Deadline) -> bool:
            drains.append(name)
            cluster.clock.advance(deadline.remaining_ms(STEP_MS))
            return drains.count(name) >= rounds

        return MagicMock(drain=drain, can_finish=True)

    cluster.commits.drain([drain_of("long", 5), drain_of("short", 2)])
    assert "".join(each[0] for each in drains) == "lslslll"


@pytest.mark.parametrize("commit_needed", [True, False])
def test_records_sent_since_the_last_commit_are_awaited(commit_needed: bool) -> None:
    """If nothing was sent, an unavailable cluster causes no wait."""
    cluster = Cluster(7_000)
    cluster.commits.await_delivery([Mock(commit_needed=False), Mock(commit_needed=commit_needed)])
    assert cluster.flushes == ([STEP_MS] if commit_needed else [])


def test_first_attempt_has_its_full_time_without_retries() -> None:
    """Detects `task.timeout.ms` as the timeout of a request: 0 would prevent every commit."""
    cluster = Cluster(0, flush_takes_ms=90_000, commit_takes_ms=14_000)
    cluster.commits.commit([cluster.task])
    assert cluster.clock.now_ms() == 90_000 + 14_000
    assert cluster.offset_commits == [COMMIT_MS]
    assert cluster.commits.total == 1
    cluster.task.post_commit.assert_called_once()


@pytest.mark.parametrize(
    ("flush_ms", "commit_ms"), [(FLUSH_MS + 1, 0), (0, COMMIT_MS + 1)], ids=["flush", "commit"]
)
def test_there_is_no_second_attempt_without_retries(flush_ms: int, commit_ms: int) -> None:
    cluster = Cluster(0, flush_takes_ms=flush_ms, commit_takes_ms=commit_ms)
    with pytest.raises(BrokerUnavailableError):
        cluster.commits.commit([cluster.task])
    assert cluster.clock.now_ms() == (FLUSH_MS if flush_ms else COMMIT_MS)
    assert len(cluster.offset_commits) == (commit_ms > 0)
    cluster.task.post_commit.assert_not_called()


def test_time_for_retries_starts_with_the_first_failure() -> None:
    """Detects a deadline that a long, successful flush uses up before the commit."""
    cluster = Cluster(20_000, flush_takes_ms=100_000, commit_down_ms=130_000)
    cluster.commits.commit([cluster.task])
    # At 100 s, and at 115 s after the first failure.
    assert cluster.offset_commits == [COMMIT_MS] * 2
    cluster = Cluster(20_000, down_ms=1_000_000)
    with pytest.raises(BrokerUnavailableError, match=f"not acknowledged within {FLUSH_MS} ms"):
        cluster.commits.commit([cluster.task])
    # The first attempt fails at 130 s, the next at 260 s, more than 20 s later.
    assert cluster.clock.now_ms() == 2 * FLUSH_MS


def test_unanswered_asynchronous_commit_is_sent_again() -> None:
    """The loop has not waited for the first attempt; the tasks have continued meanwhile."""
    cluster = Cluster(20_000, commit_down_ms=20_000)
    cluster.task.offsets_to_commit.return_value = {TopicPartition("in", 0): CommitOffset(1)}
    cluster.task.state = TaskState.RUNNING
    cluster.commits.commit([cluster.task], asynchronous=True)
    cluster.commits.finish_pending()
    assert cluster.offset_commits == []
    cluster.task.post_commit.assert_not_called()
    cluster.commits.commit([cluster.task])
    # The first attempt fails at 15 s, the second is answered at 20 s; the new commit follows.
    assert cluster.offset_commits == [COMMIT_MS] * 3
    assert cluster.task.post_commit.call_count == 2
    assert cluster.commits.total == 2


def test_commit_without_offsets_waits_for_no_answer() -> None:
    """For example of a thread that only reads global topics, or of tasks that only sent records."""
    cluster = Cluster(0)
    cluster.commits.commit([cluster.task], asynchronous=True)
    assert not cluster.commits.has_pending_work
    assert cluster.offset_commits == []
    cluster.task.post_commit.assert_called_once()


def test_progress_is_reported_during_an_outage() -> None:
    """Detects a member that leaves its group after `max.poll.interval.ms` because the loop reports
    no progress while it flushes records or commits offsets."""
    cluster = Cluster(300_000, flush_takes_ms=90_000, commit_down_ms=200_000)
    progress_ms = [0]
    cluster.member.progress = lambda: progress_ms.append(cluster.clock.now_ms())
    cluster.commits.commit([cluster.task])
    assert cluster.clock.now_ms() >= 200_000 - COMMIT_MS
    progress_ms.append(cluster.clock.now_ms())
    pauses = [after - before for before, after in pairwise(progress_ms)]
    assert max(pauses) <= COMMIT_MS + STEP_MS
    assert max(pauses[:80]) <= STEP_MS


def test_timeout_of_a_commit_covers_all_its_steps() -> None:
    cluster = Cluster(300_000, flush_takes_ms=2_000, down_ms=1_000_000)
    with pytest.raises(BrokerUnavailableError):
        cluster.commits.commit([cluster.task], 5_000)
    assert cluster.clock.now_ms() == 5_000
    cluster = Cluster(300_000, flush_takes_ms=2_000, commit_takes_ms=4_000)
    with pytest.raises(BrokerUnavailableError):
        cluster.commits.commit([cluster.task], 5_000)
    assert cluster.offset_commits == [3_000]
    assert cluster.clock.now_ms() == 5_000


def test_permanent_send_failure_is_not_retried() -> None:
    cluster = Cluster(300_000)
    cluster.producer.flush = Mock(side_effect=ProductionError("too large"))
    with pytest.raises(ProductionError):
        cluster.commits.commit([cluster.task])
    cluster.producer.flush.assert_called_once()


def test_queries_are_answered_during_a_flush() -> None:
    """Most of a commit is waiting; without this, queries would wait as well."""
    cluster = Cluster(300_000, flush_takes_ms=40)
    query_ms: list[int] = []

    def meanwhile() -> bool:
        query_ms.append(cluster.clock.now_ms())
        return True

    cluster.commits.commit([cluster.task], meanwhile=meanwhile)
    # First after the caches are flushed, last before the stores are written.
    assert query_ms[0] == 0
    assert query_ms[-1] == cluster.clock.now_ms() == 40
    assert max(later - earlier for earlier, later in pairwise(query_ms)) <= 5
    assert len(cluster.offset_commits) == 1


def test_commit_without_queries_waits_in_one_call() -> None:
    cluster = Cluster(300_000, flush_takes_ms=40)
    cluster.task.awaits_delivery = False
    cluster.commits.commit([cluster.task], meanwhile=lambda: False)
    assert len(cluster.flushes) == 1


def test_queries_do_not_hide_an_outage_from_a_commit() -> None:
    """`task.timeout.ms` still bounds the attempts after the first."""
    cluster = Cluster(1_000, down_ms=10 * FLUSH_MS)
    with pytest.raises(BrokerUnavailableError):
        cluster.commits.commit([cluster.task], meanwhile=lambda: True)
    assert cluster.clock.now_ms() <= 2 * FLUSH_MS + 2_000
