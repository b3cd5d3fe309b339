"""Two topologies under one application id: whoever does not fit is told which topics differ."""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Mapping, Sequence

import pytest

from millstream.assignment.leader_assignor import LeaderAssignor
from millstream.assignment.other_topologies import check_same_topology
from millstream.assignment.task_assignment import TaskAssignment, decode_assignment
from millstream.assignment.topics import NewTopic, TopicGroup, TopologyTopics
from millstream.assignment.wire.subscription_info import SubscriptionInfo
from millstream.errors import TopologyError
from millstream.kafka.member.member_assignor import MemberSubscription
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


def given_to(leader: TopologyTopics, **members: MemberSubscription) -> dict[str, TaskAssignment]:
    assigned = LeaderAssignor(leader, TwoPartitions()).assign(members)
    return {
        name: decode_assignment(given.partitions, given.user_data)
        for name, given in assigned.items()
    }


def test_a_stranger_is_told_by_a_leader_that_goes_on() -> None:
    """Goal: the group with the first topology works on; the newcomer alone ends, and knows why."""
    given = given_to(ORDERS, a=member(1, "orders"), b=member(2, "clicks", "views"))
    assert list(given["a"].active) == [TaskId(0, 0), TaskId(0, 1)]
    check_same_topology(ORDERS, given["a"], "shop")
    with pytest.raises(TopologyError) as raised:
        check_same_topology(CLICKS, given["b"], "shop")
    text = str(raised.value)
    assert "under the application id 'shop'" in text
    assert "they alone read 'orders' and this one alone reads 'clicks', 'views'" in text
    assert "an application_id of its own" in text


def test_a_leader_that_checks_nothing_is_found_out() -> None:
    """Goal: tasks that do not exist here are no defect of ours, whatever made the leader give them.

    Kafka Streams, for example, hands them out without a look at who subscribes to what.
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


def test_what_patterns_match_is_nobodys_mistake() -> None:
    """Goal: members find new topics at different times, and subscribe to what they have found."""
    pattern = TopologyTopics((TopicGroup(0, source_patterns=(re.compile("in-.*"),)),))
    given = given_to(pattern, a=member(1, "in-1"), b=member(2, "in-1", "in-2"))
    for each in given.values():
        check_same_topology(pattern, each, "shop")
    assert sum(len(each.active) for each in given.values()) == 2
