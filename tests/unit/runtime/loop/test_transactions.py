"""The order of a commit under exactly-once, how long it may take, and what fails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any
from unittest.mock import Mock

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
from millstream.kafka.data.group_metadata import GroupMetadata
from millstream.kafka.member.events import CommitOffset
from millstream.record import TopicPartition
from millstream.runtime.loop.commits import Commits
from millstream.runtime.loop.transactions import Transactions

TRANSACTION_MS = 10_000
PLACE = TopicPartition("in", 0)
OFFSETS = {PLACE: CommitOffset(7, "")}
MEMBER = GroupMetadata(3, "shop", "one-1")
#: No test makes that many: an endless loop fails instead of hanging.
MOST_TRIES = 1_000


class Cluster:
    """A producer and a member that tell what they were asked, in order.

    Args:
        silent_ms: for how long each kind of request is not answered.
        refused: what a kind of request ends with.
    """

    in_transaction = True

    def __init__(
        self,
        silent_ms: Mapping[str, int] | None = None,
        refused: Mapping[str, StreamsError] | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.told: list[str] = []
        self.steps_ms: list[int] = []
        self.held = False
        self.progressed = 0
        self.is_ready = False
        self._silent_ms = silent_ms or {}
        self._refused = refused or {}
        self.transactions = Transactions(
            self,  # type: ignore[arg-type]
            self,
            self.clock,
            timeout_ms=60_000,
            transaction_timeout_ms=TRANSACTION_MS,
        )

    def _asked(self, what: str, timeout_ms: int) -> None:
        self.steps_ms.append(timeout_ms)
        assert len(self.steps_ms) < MOST_TRIES
        if self.told[-1:] != [what]:
            self.told.append(what)
        if what in self._refused:
            raise self._refused[what]
        if self.clock.now_ms() < self._silent_ms.get(what, 0):
            self.clock.advance(max(timeout_ms, 1))
            raise BrokerUnavailableError(f"no answer to {what}")

    # What the producer is asked.

    def init_transactions(self, timeout_ms: int) -> None:
        self._asked("init", timeout_ms)
        self.is_ready = True

    def flush(self, timeout_ms: int) -> None:
        self._asked("flush", timeout_ms)

    def send_offsets(self, offsets: Any, member: GroupMetadata, timeout_ms: int) -> None:
        assert (offsets, member) == (OFFSETS, MEMBER)
        assert self.held
        self._asked("offsets", timeout_ms)

    def commit_transaction(self, timeout_ms: int) -> None:
        assert not self.held
        self._asked("commit", timeout_ms)

    def purge(self) -> None:
        self.told.append("abort")

    def acked_offsets(self) -> dict[TopicPartition, int]:
        self.told.append("acked")
        return {}

    # What the member is asked.

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

    # What is asked of the commit.

    def commit(self, *tasks: Any, within_ms: int | None = None) -> None:
        Commits(self.transactions, self, self.clock).commit(tasks, within_ms)  # type: ignore[arg-type]

    def _prepared(self) -> None:
        self.told.append("caches")

    def task(self, offsets: Mapping[TopicPartition, CommitOffset] = OFFSETS) -> Any:
        return Mock(
            commit_needed=True,
            prepare_commit=self._prepared,
            offsets_to_commit=Mock(return_value=offsets),
            post_commit=lambda offsets, acked: self.told.append("stores"),
        )


def test_stores_are_written_after_everything_else() -> None:
    """Offsets go after the last record is acknowledged, and the commit after them."""
    cluster = Cluster()
    cluster.commit(cluster.task())
    assert cluster.told == ["caches", "flush", "offsets", "commit", "acked", "stores"]
    assert not cluster.held


def test_a_transaction_without_offsets_is_committed() -> None:
    """A punctuation may have sent something while no offset has moved."""
    cluster = Cluster()
    cluster.commit()
    assert cluster.told == ["flush", "commit", "acked"]


def test_a_transaction_in_which_no_offset_has_moved_is_fenced_all_the_same() -> None:
    """By an offset that is committed already: else a member that the group has given up could
    commit what a punctuation has sent."""
    cluster = Cluster()
    idle = cluster.task()
    idle.commit_needed = False
    cluster.commit(idle)
    assert cluster.told == ["flush", "offsets", "commit", "acked"]


def test_a_transactional_id_that_is_refused_is_asked_for_with_pauses() -> None:
    """Each round of the loop looks whether the id was taken over: without pauses that are kept, it
    would do so thousands of times a second. The client that was refused is replaced."""
    refused = TaskMigratedError("another producer has taken over")
    cluster = Cluster(refused={"init": refused})
    attempts_ms: list[int] = []

    def rounds() -> None:
        for _ in range(100_000):
            before = len(cluster.steps_ms)
            assert not cluster.transactions.is_ready()
            if len(cluster.steps_ms) > before:
                attempts_ms.append(cluster.clock.now_ms())
            cluster.clock.advance(1)

    with pytest.raises(StreamsError, match="cannot be taken over: another producer") as caught:
        rounds()
    # A migrated task would be asked for again, for ever.
    assert not isinstance(caught.value, TaskMigratedError)
    pauses = [late - soon for soon, late in pairwise(attempts_ms)]
    assert pauses[:3] == [100, 200, 400]
    assert set(pauses[5:]) == {2_000}
    assert cluster.told.count("abort") == len(attempts_ms) + 1


def test_a_refused_setting_ends_the_thread_at_once() -> None:
    refused = ConfigError("transaction.timeout.ms is too large")
    cluster = Cluster(refused={"init": refused})
    with pytest.raises(ConfigError):
        cluster.transactions.is_ready()


def test_without_anything_the_cluster_is_not_asked() -> None:
    cluster = Cluster()
    cluster.in_transaction = False
    cluster.commit(Mock(commit_needed=False))
    assert cluster.told == []


@pytest.mark.parametrize(
    ("silent", "gives_up_ms"), [("flush", 10_000), ("offsets", 5_000), ("commit", 10_000)]
)
def test_what_is_not_answered_is_given_up_when_the_broker_has_aborted_it(
    silent: str, gives_up_ms: int
) -> None:
    """In steps in which signals are heard and the thread is known to be alive."""
    cluster = Cluster({silent: 600_000})
    with pytest.raises(TaskMigratedError, match="given up, since it could not be committed"):
        cluster.commit(cluster.task())
    assert cluster.clock.now_ms() == pytest.approx(gives_up_ms, abs=1)
    assert max(cluster.steps_ms) <= 1_000
    assert cluster.progressed >= gives_up_ms // 1_000 - 1
    assert "stores" not in cluster.told
    assert not cluster.held


def test_all_of_it_has_one_bound() -> None:
    """A commit that is part of closing may not take as long as others."""
    cluster = Cluster({"flush": 600_000})
    with pytest.raises(TaskMigratedError, match="within 2500 ms"):
        cluster.commit(cluster.task(), within_ms=2_500)
    assert cluster.clock.now_ms() == pytest.approx(2_500, abs=1)


@pytest.mark.parametrize("silent", ["flush", "offsets", "commit"])
def test_a_cluster_that_is_back_in_time_is_asked_again(silent: str) -> None:
    cluster = Cluster({silent: 3_000})
    cluster.commit(cluster.task())
    assert cluster.told[-1] == "stores"


def test_a_group_that_takes_no_offsets_loses_the_transaction() -> None:
    """They cannot be sent after the rebalance: then others may have the tasks."""
    cluster = Cluster(refused={"offsets": RebalanceInProgressError("The group is rebalancing.")})
    with pytest.raises(TaskMigratedError, match="the group does not take its offsets"):
        cluster.commit(cluster.task())
    assert cluster.told == ["caches", "flush", "offsets"]
    assert not cluster.held


def test_a_join_that_is_on_its_way_loses_nothing() -> None:
    """Nothing was sent to the group yet: the commit is due once more."""
    cluster = Cluster(refused={"hold": RebalanceInProgressError("A join is on its way.")})
    with pytest.raises(RebalanceInProgressError):
        cluster.commit(cluster.task())
    assert cluster.told == ["caches", "flush"]


@pytest.mark.parametrize("step", ["flush", "offsets", "commit"])
@pytest.mark.parametrize("kind", [TaskMigratedError, ProductionError])
def test_what_fails_is_told_and_nothing_follows(step: str, kind: type[StreamsError]) -> None:
    cluster = Cluster(refused={step: kind("It went wrong.")})
    with pytest.raises(kind, match=r"It went wrong\."):
        cluster.commit(cluster.task())
    assert cluster.told[-1] == step


def test_the_id_is_taken_over_before_tasks_begin() -> None:
    """Asked again with pauses; the loop does other things meanwhile."""
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


def test_an_id_that_cannot_be_taken_over_is_an_error_in_the_end() -> None:
    cluster = Cluster({"init": 600_000})

    def wait() -> None:
        for _ in range(MOST_TRIES):
            cluster.transactions.is_ready()
            cluster.clock.advance(500)

    with pytest.raises(BrokerUnavailableError, match="no answer to init"):
        wait()
    assert cluster.clock.now_ms() < 80_000


def test_work_that_is_given_up_is_aborted() -> None:
    cluster = Cluster()
    Commits(cluster.transactions, cluster, cluster.clock).forget_sent()  # type: ignore[arg-type]
    assert cluster.told == ["abort"]
