"""What a commit waits for, and how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from millstream.clock import ManualClock
from millstream.errors import BrokerUnavailableError, ProductionError
from millstream.runtime.commits import Commits

FLUSH_MS = 130_000
COMMIT_MS = 15_000


class Cluster:
    """A producer and a group whose answers take time that goes by on a manual clock.

    Args:
        task_timeout_ms: `task.timeout.ms`.
        flush_takes_ms: how long records take to be acknowledged.
        commit_takes_ms: how long an answer to a commit takes.
        down_ms: for how long nothing is answered.
    """

    def __init__(
        self,
        task_timeout_ms: int,
        *,
        flush_takes_ms: int = 0,
        commit_takes_ms: int = 0,
        down_ms: int = 0,
    ) -> None:
        self.clock = ManualClock()
        self.flushes: list[int] = []
        self.offset_commits: list[int] = []
        self._down_ms = down_ms
        producer: Any = Mock(acked_offsets=Mock(return_value={}))
        producer.flush = self._answers(self.flushes, flush_takes_ms)
        commit = self._answers(self.offset_commits, commit_takes_ms)
        member: Any = Mock(commit=lambda offsets, timeout_ms: commit(timeout_ms))
        self.producer = producer
        self.task: Any = Mock(commit_needed=True, offsets_to_commit=Mock(return_value={}))
        self.commits = Commits(producer, member, self.clock, task_timeout_ms, FLUSH_MS)

    def _answers(self, tries: list[int], takes_ms: int) -> Callable[[int], None]:
        def answer(timeout_ms: int) -> None:
            tries.append(timeout_ms)
            if max(takes_ms, self._down_ms - self.clock.now_ms()) > timeout_ms:
                self.clock.advance(timeout_ms)
                raise BrokerUnavailableError("no answer")
            self.clock.advance(takes_ms)

        return answer


@pytest.mark.parametrize("commit_needed", [True, False])
def test_what_was_sent_since_the_last_commit_is_waited_for(commit_needed: bool) -> None:
    """With nothing sent, a cluster that does not answer holds nobody up."""
    cluster = Cluster(7_000)
    cluster.commits.settle([Mock(commit_needed=False), Mock(commit_needed=commit_needed)])
    assert cluster.flushes == ([FLUSH_MS] if commit_needed else [])


def test_without_any_retries_the_first_try_has_its_time() -> None:
    """Hunts for `task.timeout.ms` as the time of a request: 0 would forbid every commit."""
    cluster = Cluster(0, flush_takes_ms=90_000, commit_takes_ms=14_000)
    cluster.commits.commit([cluster.task])
    assert (cluster.flushes, cluster.offset_commits) == ([FLUSH_MS], [COMMIT_MS])
    assert cluster.commits.total == 1
    cluster.task.post_commit.assert_called_once()


@pytest.mark.parametrize(
    ("flush_ms", "commit_ms"), [(FLUSH_MS + 1, 0), (0, COMMIT_MS + 1)], ids=["flush", "commit"]
)
def test_without_any_retries_the_second_try_is_not_made(flush_ms: int, commit_ms: int) -> None:
    cluster = Cluster(0, flush_takes_ms=flush_ms, commit_takes_ms=commit_ms)
    with pytest.raises(BrokerUnavailableError):
        cluster.commits.commit([cluster.task])
    assert len(cluster.flushes) == 1
    assert len(cluster.offset_commits) == (commit_ms > 0)
    cluster.task.post_commit.assert_not_called()


def test_the_time_for_retries_begins_with_the_first_failure() -> None:
    """Hunts for a deadline that a long, successful flush has used up before the commit."""
    cluster = Cluster(20_000, flush_takes_ms=100_000, down_ms=130_000)
    cluster.commits.commit([cluster.task])
    # At 100 s; failed at 115 s, at 130 s.
    assert cluster.offset_commits == [COMMIT_MS] * 2
    cluster = Cluster(20_000, flush_takes_ms=100_000, down_ms=1_000_000)
    with pytest.raises(BrokerUnavailableError):
        cluster.commits.commit([cluster.task])
    # The first fails at 130 s, the next at 260 s, which is more than 20 s later.
    assert cluster.flushes == [FLUSH_MS] * 2


def test_a_commit_with_a_bound_keeps_it_in_all_its_parts() -> None:
    cluster = Cluster(300_000, flush_takes_ms=2_000, down_ms=1_000_000)
    with pytest.raises(BrokerUnavailableError):
        cluster.commits.commit([cluster.task], 5_000)
    assert cluster.clock.now_ms() == 5_000
    cluster = Cluster(300_000, flush_takes_ms=2_000, commit_takes_ms=4_000)
    with pytest.raises(BrokerUnavailableError):
        cluster.commits.commit([cluster.task], 5_000)
    assert (cluster.flushes, cluster.offset_commits) == ([5_000], [3_000])


def test_what_can_never_be_written_is_not_tried_again() -> None:
    cluster = Cluster(300_000)
    cluster.producer.flush = Mock(side_effect=ProductionError("too large"))
    with pytest.raises(ProductionError):
        cluster.commits.commit([cluster.task])
    cluster.producer.flush.assert_called_once()
