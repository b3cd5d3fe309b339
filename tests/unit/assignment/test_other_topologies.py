"""Two topologies under one application id: the error names the differing topics."""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Mapping, Sequence

import pytest

from millstream.assignment.leader_assignor import LeaderAssignor
from millstream.assignment.other_topologies import check_same_topology
from millstream.assignment.task_assignment import TaskAssignment, decode_assignment
from millstream.assignment.topic_metadata import NewTopic, TopicGroup, TopologyTopics
from millstream.assignment.wire_format import SubscriptionInfo
from millstream.errors import TopologyError
from millstream.kafka.membership.member_assignor import MemberSubscription
from millstream.record import TaskId, TopicPartition

ORDERS = TopologyTopics((TopicGroup(0, source_topics=("orders",)),))
CLICKS = TopologyTopics(
    (
        TopicGroup(0, source_topics=("clicks",)),
        TopicGroup(1, source_topics=("views",)),
    )
)


class TwoPartitions:
    """A cluster in which every topic has two partitions."""

    def partition_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        return dict.fromkeys(topics, 2)

    def replica_racks(self, topics: Collection[str]) -> Mapping[TopicPartition, frozenset[str]]:
        return {}

    def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def committed_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def create_topics(self, topics: Sequence[NewTopic]) -> None: ...


def member(process: int, *topics: str) -> MemberSubscription:
    return MemberSubscription(
        topics, SubscriptionInfo(uuid.UUID(int=process)).encode(), (), None, None
    )


def assignments_of(
    leader: TopologyTopics, **members: MemberSubscription
) -> dict[str, TaskAssignment]:
    assigned = LeaderAssignor(leader, TwoPartitions()).assign(members)
    return {
        name: decode_assignment(given.partitions, given.user_data)
        for name, given in assigned.items()
    }


def test_a_member_with_another_topology_gets_an_error() -> None:
    """The group with the first topology continues; only the new member fails."""
    given = assignments_of(ORDERS, a=member(1, "orders"), b=member(2, "clicks", "views"))
    assert list(given["a"].active) == [TaskId(0, 0), TaskId(0, 1)]
    check_same_topology(ORDERS, given["a"], "shop")
    with pytest.raises(TopologyError) as raised:
        check_same_topology(CLICKS, given["b"], "shop")
    text = str(raised.value)
    assert "under the application id 'shop'" in text
    assert "only they read 'orders' and only this instance reads 'clicks', 'views'" in text
    assert "a separate application_id" in text


def test_tasks_of_another_topology_are_rejected() -> None:
    """From any leader.

    Kafka Streams, for example, assigns tasks without checking subscriptions.
    """
    for task_id, topic in ((TaskId(0, 1), "orders"), (TaskId(2, 1), "clicks")):
        place = frozenset({TopicPartition(topic, 1)})
        for given in (
            TaskAssignment(active={task_id: place}),
            TaskAssignment(standby={task_id: place}),
        ):
            with pytest.raises(
                TopologyError,
                match=f"{topic}-1 as task {task_id}",
            ):
                check_same_topology(CLICKS, given, "shop")
    check_same_topology(
        CLICKS,
        TaskAssignment(active={TaskId(1, 1): frozenset({TopicPartition("views", 1)})}),
        "shop",
    )


def test_different_matches_of_a_pattern_are_accepted() -> None:
    """Members find new topics at different times, and subscribe to the topics found."""
    pattern = TopologyTopics((TopicGroup(0, source_patterns=(re.compile("in-.*"),)),))
    given = assignments_of(pattern, a=member(1, "in-1"), b=member(2, "in-1", "in-2"))
    for each in given.values():
        check_same_topology(pattern, each, "shop")
    assert sum(len(each.active) for each in given.values()) == 2
