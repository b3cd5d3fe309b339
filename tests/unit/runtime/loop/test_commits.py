"""What a commit waits for, and how long."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any
from unittest.mock import Mock

import pytest

from millstream.clock import Deadline, ManualClock
from millstream.errors import BrokerUnavailableError, ProductionError
from millstream.kafka.member.events import CommitOffset
from millstream.record import TopicPartition
from millstream.runtime.loop.at_least_once import AtLeastOnce
from millstream.runtime.loop.commits import Commits, UnfinishedError
from millstream.runtime.loop.patience import Patience
from millstream.runtime.states import TaskState

FLUSH_MS = 130_000
COMMIT_MS = 15_000
STEP_MS = 1_000
#: No test makes that many: an endless loop fails instead of hanging.
MOST_TRIES = 10_000


class Cluster:
    """A producer and a group whose answers take time that goes by on a manual clock.

    Args:
        task_timeout_ms: `task.timeout.ms`.
        flush_takes_ms: how long records take to be acknowledged.
        commit_takes_ms: how long an answer to a commit takes.
        down_ms: for how long nothing is answered.
        commit_down_ms: for how long no commit is answered.
        most_wait_ms: how long the group lets others wait.
    """

    def __init__(
        self,
        task_timeout_ms: int,
        *,
        flush_takes_ms: int = 0,
        commit_takes_ms: int = 0,
        down_ms: int = 0,
        commit_down_ms: int = 0,
        most_wait_ms: int | None = None,
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
        # What is answered at once is heard when it is asked for.
        self.member.begin_commit = lambda offsets, timeout_ms: Mock(
            is_there=commit_down_ms == 0, take=lambda within_ms: commit(timeout_ms)
        )
        self.producer = producer
        self.task: Any = Mock(commit_needed=True, offsets_to_commit=Mock(return_value={}))
        self.commits = Commits(
            AtLeastOnce(producer, self.member, self.clock, task_timeout_ms, FLUSH_MS),
            producer,
            self.clock,
            self.member.progress,
            most_wait_ms,
        )

    def _flush(self, timeout_ms: int) -> None:
        """What was sent goes on being sent in between."""
        self.flushes.append(timeout_ms)
        assert len(self.flushes) < MOST_TRIES
        left_ms = self._acknowledged_ms - self.clock.now_ms()
        self.clock.advance(max(0, min(timeout_ms, left_ms)))
        if left_ms > timeout_ms:
            raise BrokerUnavailableError(f"1 record was not acknowledged within {timeout_ms} ms")

    def _answers(self, tries: list[int], takes_ms: int) -> Callable[[int], None]:
        def answer(timeout_ms: int) -> None:
            tries.append(timeout_ms)
            assert len(tries) < MOST_TRIES
            if max(takes_ms, self._down_ms - self.clock.now_ms()) > timeout_ms:
                self.clock.advance(timeout_ms)
                raise BrokerUnavailableError("no answer")
            self.clock.advance(takes_ms)

        return answer


class Lasting:
    """A task of which something runs for a while, and something else never begins.

    Args:
        clock: goes on while it is waited for.
        runs_ms: how long it runs; it is finished then, unless something waits.
        waits: whether something is queued, which never begins.
    """

    task_id = "0_0"

    def __init__(self, clock: ManualClock, runs_ms: int, *, waits: bool = True) -> None:
        self._clock = clock
        self._runs_ms = runs_ms
        self._waits = waits
        self.halted_ms: int | None = None

    @property
    def may_land(self) -> bool:
        return self.halted_ms is None or self._clock.now_ms() < self._runs_ms

    def drain(self, deadline: Deadline) -> bool:
        most_ms = deadline.remaining_ms(1_000_000)
        if self.halted_ms is not None or not self._waits:
            most_ms = min(most_ms, max(0, self._runs_ms - self._clock.now_ms()))
        self._clock.advance(most_ms)
        return not self._waits and self._clock.now_ms() >= self._runs_ms

    def halt(self) -> None:
        self.halted_ms = self._clock.now_ms()


def test_all_that_is_given_up_is_waited_for_together() -> None:
    """One deadline for all: they come to their ends beside each other."""
    cluster = Cluster(0)
    tasks: Any = [Lasting(cluster.clock, 0), Lasting(cluster.clock, 0)]
    cluster.commits.drain(tasks)
    assert cluster.clock.now_ms() == 5_000
    assert [task.halted_ms for task in tasks] == [5_000, 5_000]


@pytest.mark.parametrize(
    ("patience", "runs_ms", "waited_ms"),
    [
        (Patience(700, None), 20_000, 20_000),
        (Patience(700, 300), 20_000, 1_000),
        (Patience(700, 300), 900, 900),
        (Patience(0, 0), 900, 0),
        (Patience(700, None), 90_000, 60_000),
        (Patience(80_000, None), 90_000, 60_000),
    ],
)
def test_first_all_is_waited_for_then_what_runs(
    patience: Patience, runs_ms: int, waited_ms: int
) -> None:
    """Within the time that the group gives, of which it hears meanwhile."""
    cluster = Cluster(0, most_wait_ms=60_000)
    cluster.commits.when_given_up = patience
    task: Any = Lasting(cluster.clock, runs_ms)
    cluster.commits.drain([task])
    assert cluster.clock.now_ms() == waited_ms
    assert task.halted_ms == min(patience.all_ms, 60_000)
    assert cluster.member.progress.call_count >= waited_ms // STEP_MS - 1


def test_what_is_finished_in_time_is_not_halted() -> None:
    cluster = Cluster(0)
    task: Any = Lasting(cluster.clock, 300, waits=False)
    cluster.commits.drain([task])
    assert (cluster.clock.now_ms(), task.halted_ms) == (300, None)


def test_closing_leaves_half_of_its_time_to_the_commit() -> None:
    cluster = Cluster(0)
    cluster.commits.when_closing = Patience(1_000_000, None)
    task: Any = Lasting(cluster.clock, 50_000)
    assert not cluster.commits.drain_to_close([task], 30_000)
    assert cluster.clock.now_ms() == 15_000
    assert cluster.commits.drain_to_close([], 30_000)


def test_tasks_that_stay_are_waited_for_without_an_end_to_their_work() -> None:
    cluster = Cluster(0)
    cluster.commits.when_given_up = Patience(400, None)
    task: Any = Lasting(cluster.clock, 0)
    cluster.commits.land([task])
    assert (cluster.clock.now_ms(), task.halted_ms) == (400, None)


def test_what_caches_hold_back_stays_there_until_all_may_commit() -> None:
    """A commit that waits is tried again and again."""
    cluster = Cluster(0)
    waits: Any = Mock(commit_needed=True, awaits_sent=False)
    waits.may_commit.return_value = False
    with pytest.raises(UnfinishedError):
        cluster.commits.commit([cluster.task, waits])
    cluster.task.prepare_commit.assert_not_called()


def test_tasks_are_looked_after_in_turn() -> None:
    """One that only goes on while it is looked after does not wait for the end of another."""
    cluster = Cluster(0)
    drains: list[str] = []

    def drain_of(name: str, rounds: int) -> Any:
        def drain(deadline: Deadline) -> bool:
            drains.append(name)
            cluster.clock.advance(deadline.remaining_ms(STEP_MS))
            return drains.count(name) >= rounds

        return Mock(drain=drain, may_land=True)

    cluster.commits.drain([drain_of("long", 5), drain_of("short", 2)])
    assert "".join(each[0] for each in drains) == "lslslll"


@pytest.mark.parametrize("commit_needed", [True, False])
def test_what_was_sent_since_the_last_commit_is_waited_for(commit_needed: bool) -> None:
    """With nothing sent, a cluster that does not answer holds nobody up."""
    cluster = Cluster(7_000)
    cluster.commits.settle([Mock(commit_needed=False), Mock(commit_needed=commit_needed)])
    assert cluster.flushes == ([STEP_MS] if commit_needed else [])


def test_without_any_retries_the_first_try_has_its_time() -> None:
    """Hunts for `task.timeout.ms` as the time of a request: 0 would forbid every commit."""
    cluster = Cluster(0, flush_takes_ms=90_000, commit_takes_ms=14_000)
    cluster.commits.commit([cluster.task])
    assert cluster.clock.now_ms() == 90_000 + 14_000
    assert cluster.offset_commits == [COMMIT_MS]
    assert cluster.commits.total == 1
    cluster.task.post_commit.assert_called_once()


@pytest.mark.parametrize(
    ("flush_ms", "commit_ms"), [(FLUSH_MS + 1, 0), (0, COMMIT_MS + 1)], ids=["flush", "commit"]
)
def test_without_any_retries_the_second_try_is_not_made(flush_ms: int, commit_ms: int) -> None:
    cluster = Cluster(0, flush_takes_ms=flush_ms, commit_takes_ms=commit_ms)
    with pytest.raises(BrokerUnavailableError):
        cluster.commits.commit([cluster.task])
    assert cluster.clock.now_ms() == (FLUSH_MS if flush_ms else COMMIT_MS)
    assert len(cluster.offset_commits) == (commit_ms > 0)
    cluster.task.post_commit.assert_not_called()


def test_the_time_for_retries_begins_with_the_first_failure() -> None:
    """Hunts for a deadline that a long, successful flush has used up before the commit."""
    cluster = Cluster(20_000, flush_takes_ms=100_000, commit_down_ms=130_000)
    cluster.commits.commit([cluster.task])
    # At 100 s, and at 115 s, when the first has failed.
    assert cluster.offset_commits == [COMMIT_MS] * 2
    cluster = Cluster(20_000, down_ms=1_000_000)
    with pytest.raises(BrokerUnavailableError, match=f"not acknowledged after {FLUSH_MS} ms"):
        cluster.commits.commit([cluster.task])
    # The first fails at 130 s, the next at 260 s, which is more than 20 s later.
    assert cluster.clock.now_ms() == 2 * FLUSH_MS


def test_what_the_group_does_not_answer_later_is_sent_again() -> None:
    """The first try is the one that nobody has waited for; the tasks have gone on meanwhile."""
    cluster = Cluster(20_000, commit_down_ms=20_000)
    cluster.task.offsets_to_commit.return_value = {TopicPartition("in", 0): CommitOffset(1)}
    cluster.task.state = TaskState.RUNNING
    cluster.commits.commit([cluster.task], soon=True)
    cluster.commits.hear()
    assert cluster.offset_commits == []
    cluster.task.post_commit.assert_not_called()
    cluster.commits.commit([cluster.task])
    # The first has failed at 15 s, the second has an answer at 20 s; then comes the new one.
    assert cluster.offset_commits == [COMMIT_MS] * 3
    assert cluster.task.post_commit.call_count == 2
    assert cluster.commits.total == 2


def test_without_offsets_no_answer_is_waited_for() -> None:
    """Of a thread that only reads global topics, or of tasks that have sent something only."""
    cluster = Cluster(0)
    cluster.commits.commit([cluster.task], soon=True)
    assert not cluster.commits.is_open
    assert cluster.offset_commits == []
    cluster.task.post_commit.assert_called_once()


def test_an_outage_is_waited_out_without_seeming_to_hang() -> None:
    """Hunts for a member that leaves its group after `max.poll.interval.ms`, since nobody told it
    that the loop is alive: neither while records are sent nor while offsets are committed."""
    cluster = Cluster(300_000, flush_takes_ms=90_000, commit_down_ms=200_000)
    told_ms = [0]
    cluster.member.progress = lambda: told_ms.append(cluster.clock.now_ms())
    cluster.commits.commit([cluster.task])
    assert cluster.clock.now_ms() >= 200_000 - COMMIT_MS
    told_ms.append(cluster.clock.now_ms())
    pauses = [after - before for before, after in pairwise(told_ms)]
    assert max(pauses) <= COMMIT_MS + STEP_MS
    assert max(pauses[:80]) <= STEP_MS


def test_a_commit_with_a_bound_keeps_it_in_all_its_parts() -> None:
    cluster = Cluster(300_000, flush_takes_ms=2_000, down_ms=1_000_000)
    with pytest.raises(BrokerUnavailableError):
        cluster.commits.commit([cluster.task], 5_000)
    assert cluster.clock.now_ms() == 5_000
    cluster = Cluster(300_000, flush_takes_ms=2_000, commit_takes_ms=4_000)
    with pytest.raises(BrokerUnavailableError):
        cluster.commits.commit([cluster.task], 5_000)
    assert cluster.offset_commits == [3_000]
    assert cluster.clock.now_ms() == 5_000


def test_what_can_never_be_written_is_not_tried_again() -> None:
    cluster = Cluster(300_000)
    cluster.producer.flush = Mock(side_effect=ProductionError("too large"))
    with pytest.raises(ProductionError):
        cluster.commits.commit([cluster.task])
    cluster.producer.flush.assert_called_once()


def test_questions_are_answered_while_what_was_sent_is_waited_for() -> None:
    """Most of a commit is waiting, which without it would be a wait for whoever asks as well."""
    cluster = Cluster(300_000, flush_takes_ms=40)
    asked_ms: list[int] = []

    def meanwhile() -> bool:
        asked_ms.append(cluster.clock.now_ms())
        return True

    cluster.commits.commit([cluster.task], meanwhile=meanwhile)
    # First after the flush of the caches, last before the stores write.
    assert asked_ms[0] == 0
    assert asked_ms[-1] == cluster.clock.now_ms() == 40
    assert max(later - earlier for earlier, later in pairwise(asked_ms)) <= 5
    assert len(cluster.offset_commits) == 1


def test_without_questions_a_commit_waits_in_one_piece() -> None:
    cluster = Cluster(300_000, flush_takes_ms=40)
    cluster.task.awaits_sent = False
    cluster.commits.commit([cluster.task], meanwhile=lambda: False)
    assert len(cluster.flushes) == 1


def test_questions_do_not_keep_a_commit_from_noticing_an_outage() -> None:
    """`task.timeout.ms` bounds the tries after the first one, as ever."""
    cluster = Cluster(1_000, down_ms=10 * FLUSH_MS)
    with pytest.raises(BrokerUnavailableError):
        cluster.commits.commit([cluster.task], meanwhile=lambda: True)
    assert cluster.clock.now_ms() <= 2 * FLUSH_MS + 2_000
