"""What the leader of a group makes of a cluster that gives one unlucky answer."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Any, cast

import pytest

from millstream.assignment.placing.high_availability import assign_high_availability
from millstream.assignment.task_assignor import AssignmentConfig
from millstream.assignment.topics import TopicGroup, TopologyTopics
from millstream.assignment.wire.assignment_info import AssignmentInfo
from millstream.assignment.wire.protocol import AssignorError
from millstream.clock import ManualClock
from millstream.errors import BrokerUnavailableError
from millstream.kafka.member.member_assignor import MemberSubscription
from millstream.runtime.ownership.thread_assignor import AssignorCluster, ThreadAssignor

TOPICS = TopologyTopics((TopicGroup(0, source_topics=("orders",)),))


class FlakyAdmin:
    """Stands in for the admin client: knows one topic, and forgets it for some answers."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.asked_at: list[int] = []
        self.missing_answers = 0
        self.silent = False

    def partition_counts(self, topics: Collection[str], timeout_ms: int) -> dict[str, int]:
        self.asked_at.append(self._clock.monotonic_ms())
        if self.silent:
            self._clock.advance(timeout_ms)
            raise BrokerUnavailableError("no answer")
        if self.missing_answers:
            self.missing_answers -= 1
            return {}
        return {topic: 2 for topic in topics if topic in ("orders", "log")}

    def end_offsets(self, partitions: Collection[Any], timeout_ms: int) -> dict[Any, int]:
        return {}

    def committed_offsets(
        self, group_id: str, partitions: Collection[Any], timeout_ms: int
    ) -> dict[Any, int]:
        return {}


class Leader:
    def __init__(self, needed: Collection[str] = ("orders",), timeout_ms: int = 20_000) -> None:
        self.clock = ManualClock()
        self.admin = FlakyAdmin(self.clock)
        self.cluster = AssignorCluster(
            cast(Any, self.admin), "shop", timeout_ms, self.clock, needed
        )
        self.assignor = ThreadAssignor(
            uuid.UUID(int=1),
            "",
            {},
            TOPICS,
            self.cluster,
            dict,
            AssignmentConfig(),
            assign_high_availability,
            self.clock,
        )

    def assign(self) -> tuple[int, int]:
        """How many partitions are assigned, and the error code."""
        subscription = MemberSubscription(("orders",), self.assignor.user_data(), (), None, None)
        given = self.assignor.assign({"one": subscription})["one"]
        return len(given.partitions), AssignmentInfo.decode(given.user_data).error_code


def test_a_source_topic_that_one_answer_lacks_is_asked_for_again() -> None:
    """Aim: a broker that lags behind ends no thread, neither at the start nor later."""
    leader = Leader()
    for _ in range(2):
        leader.admin.missing_answers = 2
        assert leader.assign() == (2, AssignorError.NONE)


def test_a_source_topic_that_stays_missing_is_an_error_soon() -> None:
    leader = Leader()
    leader.admin.missing_answers = 1_000
    assert leader.assign() == (0, AssignorError.INCOMPLETE_SOURCE_TOPIC_METADATA)
    assert 2_000 < leader.clock.monotonic_ms() <= 5_000
    # Not all of a short time is spent on that: the answer that counts needs some.
    leader = Leader(timeout_ms=3_000)
    leader.admin.missing_answers = 1_000
    assert leader.assign() == (0, AssignorError.INCOMPLETE_SOURCE_TOPIC_METADATA)
    assert leader.clock.monotonic_ms() <= 1_000


def test_a_topic_that_was_there_is_asked_for_again_and_a_new_one_is_not() -> None:
    """Aim: a changelog that seems to be gone would be taken for empty, and tasks would move to
    where no state is; one that is yet to be created is waited for by nobody."""
    leader = Leader(needed=())
    leader.admin.missing_answers = 1
    assert leader.cluster.partition_counts(["log"]) == {}
    assert leader.cluster.partition_counts(["log", "new"]) == {"log": 2}
    assert len(leader.admin.asked_at) == 2
    leader.admin.missing_answers = 1
    assert leader.cluster.partition_counts(["log", "new"]) == {"log": 2}
    assert len(leader.admin.asked_at) == 4
    # Once it is known to be gone, too, nobody waits any more.
    leader.admin.missing_answers = 1_000
    assert leader.cluster.partition_counts(["log"]) == {}
    asked = len(leader.admin.asked_at)
    assert leader.cluster.partition_counts(["log"]) == {}
    assert len(leader.admin.asked_at) == asked + 1


def test_no_answer_in_time_is_no_decision() -> None:
    """Nobody is told an error code, by which threads would end; the member has the group join
    again."""
    leader = Leader()
    leader.admin.silent = True
    with pytest.raises(BrokerUnavailableError):
        leader.assign()
    assert leader.clock.monotonic_ms() <= 20_000
