"""Assignments by the leader of a group while the cluster gives incomplete answers or none."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Any, cast

import pytest

from millstream.assignment.placement.high_availability import assign_high_availability
from millstream.assignment.task_assignor import AssignmentConfig
from millstream.assignment.topic_metadata import TopicGroup, TopologyTopics
from millstream.assignment.wire_format import AssignmentInfo, AssignorError
from millstream.clock import ManualClock
from millstream.errors import BrokerUnavailableError
from millstream.kafka.membership.member_assignor import MemberSubscription
from millstream.runtime.task_management.thread_assignor import AssignorCluster, ThreadAssignor

TOPICS = TopologyTopics((TopicGroup(0, source_topics=("orders",)),))


class FlakyAdmin:
    """A fake admin client that omits its topics from some answers."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.requests_ms: list[int] = []
        self.missing_answers = 0
        self.unavailable = False

    def partition_counts(self, topics: Collection[str], timeout_ms: int) -> dict[str, int]:
        self.requests_ms.append(self._clock.monotonic_ms())
        if self.unavailable:
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
        """Return the number of assigned partitions and the error code."""
        subscription = MemberSubscription(("orders",), self.assignor.user_data(), (), None, None)
        assignment = self.assignor.assign({"one": subscription})["one"]
        return len(assignment.partitions), AssignmentInfo.decode(assignment.user_data).error_code


def test_source_topic_that_is_missing_from_one_answer_is_requested_again() -> None:
    """A broker that lags behind stops no thread, neither at the start nor later."""
    leader = Leader()
    for _ in range(2):
        leader.admin.missing_answers = 2
        assert leader.assign() == (2, AssignorError.NONE)


def test_source_topic_that_stays_missing_is_an_error_soon() -> None:
    leader = Leader()
    leader.admin.missing_answers = 1_000
    assert leader.assign() == (0, AssignorError.INCOMPLETE_SOURCE_TOPIC_METADATA)
    assert 2_000 < leader.clock.monotonic_ms() <= 5_000
    # With a short timeout, retries take only a part of it: the final request needs time as well.
    leader = Leader(timeout_ms=3_000)
    leader.admin.missing_answers = 1_000
    assert leader.assign() == (0, AssignorError.INCOMPLETE_SOURCE_TOPIC_METADATA)
    assert leader.clock.monotonic_ms() <= 1_000


def test_missing_topic_is_requested_again_and_a_new_topic_is_not() -> None:
    """A changelog that seems to be missing would count as empty, and tasks would move to processes
    without state. A changelog that is not created yet requires no wait."""
    leader = Leader(needed=())
    leader.admin.missing_answers = 1
    assert leader.cluster.partition_counts(["log"]) == {}
    assert leader.cluster.partition_counts(["log", "new"]) == {"log": 2}
    assert len(leader.admin.requests_ms) == 2
    leader.admin.missing_answers = 1
    assert leader.cluster.partition_counts(["log", "new"]) == {"log": 2}
    assert len(leader.admin.requests_ms) == 4
    # Once the topic is known to be missing, there are no further retries.
    leader.admin.missing_answers = 1_000
    assert leader.cluster.partition_counts(["log"]) == {}
    requests = len(leader.admin.requests_ms)
    assert leader.cluster.partition_counts(["log"]) == {}
    assert len(leader.admin.requests_ms) == requests + 1


def test_timeout_of_a_request_leads_to_no_assignment() -> None:
    """The leader sends no error code, which would stop threads; its member makes the group
    rejoin."""
    leader = Leader()
    leader.admin.unavailable = True
    with pytest.raises(BrokerUnavailableError):
        leader.assign()
    assert leader.clock.monotonic_ms() <= 20_000
