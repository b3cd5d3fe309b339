"""Commits under exactly-once: their order, timeouts and failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest

from millstream.clock import ManualClock
from millstream.errors import (
    BrokerUnavailableError,
    ConfigError,
    ProductionError,
    RebalanceInProgressError,
    StreamsError,
    TaskMigratedError,
)
from millstream.kafka.clients.group_metadata import GroupMetadata
from millstream.kafka.membership.member_events import CommitOffset
from millstream.record import TopicPartition
from millstream.runtime.loop.commits import TaskCommitter
from millstream.runtime.loop.exactly_once import ExactlyOnce

TRANSACTION_MS = 10_000
PLACE = TopicPartition("in", 0)
OFFSETS = {PLACE: CommitOffset(7, "")}
MEMBER = GroupMetadata(3, "shop", "one-1")
#: More attempts than any test needs: an endless loop fails instead of hanging.
MAX_ATTEMPTS = 1_000


class Cluster:
    """A producer and a member that log their calls, in order.

    Args:
        silent_ms: how long each kind of request is not answered.
        refused: the error that a kind of request fails with.
    """

    in_transaction = True

    def __init__(
        self,
        silent_ms: Mapping[str, int] | None = None,
        refused: Mapping[str, StreamsError] | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.calls: list[str] = []
        self.steps_ms: list[int] = []
        self.held = False
        self.progressed = 0
        self.is_ready = False
        self._silent_ms = silent_ms or {}
        self._refused = refused or {}
        self.transactions = ExactlyOnce(
            self,  # type: ignore[arg-type]
            self,
            self.clock,
            timeout_ms=60_000,
            transaction_timeout_ms=TRANSACTION_MS,
        )

    def _request(self, kind: str, timeout_ms: int) -> None:
        self.steps_ms.append(timeout_ms)
        assert len(self.steps_ms) < MAX_ATTEMPTS
        if self.calls[-1:] != [kind]:
            self.calls.append(kind)
        if kind in self._refused:
            raise self._refused[kind]
        if self.clock.now_ms() < self._silent_ms.get(kind, 0):
            self.clock.advance(max(timeout_ms, 1))
            raise BrokerUnavailableError(f"no answer to {kind}")

    # Calls of the producer.

    def init_transactions(self, timeout_ms: int) -> None:
        self._request("init", timeout_ms)
        self.is_ready = True

    def flush(self, timeout_ms: int) -> None:
        self._request("flush", timeout_ms)

    def send_offsets(self, offsets: Any, member: GroupMetadata, timeout_ms: int) -> None:
        assert (offsets, member) == (OFFSETS, MEMBER)
        assert self.held
        self._request("offsets", timeout_ms)

    def commit_transaction(self, timeout_ms: int) -> None:
        assert not self.held
        self._request("commit", timeout_ms)

    def purge(self) -> None:
        self.calls.append("abort")

    def acked_offsets(self) -> dict[TopicPartition, int]:
        self.calls.append("acked")
        return {}

    # Calls of the member.

    @contextmanager
    def without_rejoin(self) -> Iterator[GroupMetadata]:
        if "hold" in self._refused:
            raise self._refused["hold"]
        self.held = True
        try:
            yield MEMBER
        finally:
            self.held = False

    def progress(self) -> None:
        self.progressed += 1

    # The commit under test.

    def commit(self, *tasks: Any, within_ms: int | None = None) -> None:
        TaskCommitter(self.transactions, self, self.clock).commit(tasks, within_ms)  # type: ignore[arg-type]

    def _prepared(self) -> None:
        self.calls.append("caches")

    def task(self, offsets: Mapping[TopicPartition, CommitOffset] = OFFSETS) -> Any:
        return MagicMock(
            commit_needed=True,
            prepare_commit=self._prepared,
            offsets_to_commit=Mock(return_value=offsets),
            post_commit=lambda offsets, acked: self.calls.append("stores"),
        )


def test_stores_are_written_after_everything_else() -> None:
    """Offsets are sent after the last acknowledgment, and the commit after the offsets."""
    cluster = Cluster()
    cluster.commit(cluster.task())
    assert cluster.calls == ["caches", "flush", "offsets", "commit", "acked", "stores"]
    assert not cluster.held


def test_a_transaction_without_offsets_is_committed() -> None:
    """A punctuation may have sent records although no offset has moved."""
    cluster = Cluster()
    cluster.commit()
    assert cluster.calls == ["flush", "commit", "acked"]


def test_transaction_without_new_offsets_is_fenced_as_well() -> None:
    """It sends offsets that are already committed. Otherwise a member that was removed from the
    group could commit the records of a punctuation."""
    cluster = Cluster()
    idle = cluster.task()
    idle.commit_needed = False
    cluster.commit(idle)
    assert cluster.calls == ["flush", "offsets", "commit", "acked"]


def test_refused_transactional_id_is_requested_again_with_backoff() -> None:
    """Each round of the loop checks the id: without a backoff there would be thousands of requests
    per second. The refused client is replaced."""
    refused = TaskMigratedError("another producer has taken over")
    cluster = Cluster(refused={"init": refused})
    attempts_ms: list[int] = []

    def run_rounds() -> None:
        for _ in range(100_000):
            before = len(cluster.steps_ms)
            assert not cluster.transactions.is_ready()
            if len(cluster.steps_ms) > before:
                attempts_ms.append(cluster.clock.now_ms())
            cluster.clock.advance(1)

    with pytest.raises(
        StreamsError, match="Cannot take over the transactional id: another producer"
    ) as caught:
        run_rounds()
    # A migrated task would be requested again forever.
    assert not isinstance(caught.value, TaskMigratedError)
    pauses = [later - earlier for earlier, later in pairwise(attempts_ms)]
    assert pauses[:3] == [100, 200, 400]
    assert set(pauses[5:]) == {2_000}
    assert cluster.calls.count("abort") == len(attempts_ms) + 1


def test_invalid_setting_ends_the_thread_at_once() -> None:
    refused = ConfigError("transaction.timeout.ms is too large")
    cluster = Cluster(refused={"init": refused})
    with pytest.raises(ConfigError):
        cluster.transactions.is_ready()


def test_empty_commit_sends_no_requests() -> None:
    cluster = Cluster()
    cluster.in_transaction = False
    cluster.commit(Mock(commit_needed=False))
    assert cluster.calls == []


@pytest.mark.parametrize(
    ("silent", "abandoned_ms"), [("flush", 10_000), ("offsets", 5_000), ("commit", 10_000)]
)
def test_unanswered_commit_is_abandoned_once_the_broker_has_aborted_it(
    silent: str, abandoned_ms: int
) -> None:
    """In short steps, which handle signals and report progress."""
    cluster = Cluster({silent: 600_000})
    with pytest.raises(TaskMigratedError, match="aborted because it could not be committed"):
        cluster.commit(cluster.task())
    assert cluster.clock.now_ms() == pytest.approx(abandoned_ms, abs=1)
    assert max(cluster.steps_ms) <= 1_000
    assert cluster.progressed >= abandoned_ms // 1_000 - 1
    assert "stores" not in cluster.calls
    assert not cluster.held


def test_timeout_covers_the_whole_commit() -> None:
    """A commit at closing has less time than others."""
    cluster = Cluster({"flush": 600_000})
    with pytest.raises(TaskMigratedError, match="within 2500 ms"):
        cluster.commit(cluster.task(), within_ms=2_500)
    assert cluster.clock.now_ms() == pytest.approx(2_500, abs=1)


@pytest.mark.parametrize("silent", ["flush", "offsets", "commit"])
def test_requests_are_repeated_until_the_cluster_is_back(silent: str) -> None:
    cluster = Cluster({silent: 3_000})
    cluster.commit(cluster.task())
    assert cluster.calls[-1] == "stores"


def test_rejected_offsets_lose_the_transaction() -> None:
    """They cannot be sent after the rebalance: other members may own the tasks by then."""
    cluster = Cluster(refused={"offsets": RebalanceInProgressError("The group is rebalancing.")})
    with pytest.raises(TaskMigratedError, match="the group does not accept its offsets"):
        cluster.commit(cluster.task())
    assert cluster.calls == ["caches", "flush", "offsets"]
    assert not cluster.held


def test_pending_join_loses_nothing() -> None:
    """Nothing was sent to the group: the commit is still due."""
    cluster = Cluster(refused={"hold": RebalanceInProgressError("A join is in progress.")})
    with pytest.raises(RebalanceInProgressError):
        cluster.commit(cluster.task())
    assert cluster.calls == ["caches", "flush"]


@pytest.mark.parametrize("step", ["flush", "offsets", "commit"])
@pytest.mark.parametrize("kind", [TaskMigratedError, ProductionError])
def test_failed_step_raises_and_ends_the_commit(step: str, kind: type[StreamsError]) -> None:
    cluster = Cluster(refused={step: kind("It went wrong.")})
    with pytest.raises(kind, match=r"It went wrong\."):
        cluster.commit(cluster.task())
    assert cluster.calls[-1] == step


def test_transactional_id_is_taken_over_before_tasks_start() -> None:
    """With retries and a backoff, while the loop continues."""
    cluster = Cluster({"init": 7_000})
    ready = []
    for _ in range(100):
        ready.append(cluster.transactions.is_ready())
        if ready[-1]:
            break
        cluster.clock.advance(100)
    assert ready[0] is False
    assert ready[-1] is True
    assert 3 <= len(cluster.steps_ms) <= 20
    assert cluster.transactions.is_ready()
    assert max(cluster.steps_ms) <= 3_000


def test_unavailable_transactional_id_is_an_error_after_the_timeout() -> None:
    cluster = Cluster({"init": 600_000})

    def wait() -> None:
        for _ in range(MAX_ATTEMPTS):
            cluster.transactions.is_ready()
            cluster.clock.advance(500)

    with pytest.raises(BrokerUnavailableError, match="no answer to init"):
        wait()
    assert cluster.clock.now_ms() < 80_000


def test_discarded_work_aborts_the_transaction() -> None:
    cluster = Cluster()
    TaskCommitter(cluster.transactions, cluster, cluster.clock).discard_uncommitted()  # type: ignore[arg-type]
    assert cluster.calls == ["abort"]
