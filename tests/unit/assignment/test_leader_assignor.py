"""How the leader computes assignments from subscriptions, and how members decode them."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from millstream.assignment.client_members import decode_members
from millstream.assignment.leader_assignor import LeaderAssignor
from millstream.assignment.task_assignment import TaskAssignment, decode_assignment
from millstream.assignment.task_assignor import (
    ApplicationState,
    AssignmentConfig,
    ProcessAssignment,
)
from millstream.assignment.topic_metadata import (
    ChangelogSpec,
    NewTopic,
    RepartitionSpec,
    TopicGroup,
    TopologyTopics,
)
from millstream.assignment.wire_format import (
    LATEST_OFFSET,
    AssignmentInfo,
    AssignorError,
    HostInfo,
    SubscriptionInfo,
)
from millstream.errors import (
    BrokerUnavailableError,
    CopartitionError,
    MissingSourceTopicError,
    TaskAssignmentError,
    TopologyError,
)
from millstream.kafka.membership.member_assignor import MemberAssignment, MemberSubscription
from millstream.record import TaskId, TopicPartition

P1, P2 = uuid.UUID(int=1), uuid.UUID(int=2)


class FakeCluster:
    """A cluster as seen by the assignor: topics and partition counts."""

    def __init__(self, **counts: int) -> None:
        self.counts = counts
        self.created: list[NewTopic] = []
        self.ends: dict[TopicPartition, int] = {}
        #: The rack of each partition's only replica. If None, requests fail.
        self.racks: dict[TopicPartition, str] | None = {}
        self.rack_requests: list[set[str]] = []

    def partition_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        return {topic: self.counts[topic] for topic in topics if topic in self.counts}

    def replica_racks(self, topics: Collection[str]) -> Mapping[TopicPartition, frozenset[str]]:
        self.rack_requests.append(set(topics))
        if self.racks is None:
            raise BrokerUnavailableError("no broker answered")
        return {place: frozenset([rack]) for place, rack in self.racks.items()}

    def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {partition: self.ends.get(partition, 0) for partition in partitions}

    def committed_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def create_topics(self, topics: Sequence[NewTopic]) -> None:
        self.created += topics
        self.counts |= {topic.name: topic.partitions for topic in topics}


def _subscription(
    info: SubscriptionInfo, owned: tuple[TopicPartition, ...] = ()
) -> MemberSubscription:
    return MemberSubscription((), info.encode(), owned, None, None)


def _member(
    process: uuid.UUID, *owned: str, end_point: str = "", **sums: int
) -> MemberSubscription:
    """Return a member; `owned` are partitions such as `in-0`, `sums` offset sums such as
    `t0_1=5`."""
    info = SubscriptionInfo(
        process, end_point, {TaskId.parse(name[1:]): total for name, total in sums.items()}
    )
    return _subscription(info, tuple(map(_partition, owned)))


def _partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def _partitions(*texts: str) -> frozenset[TopicPartition]:
    return frozenset(map(_partition, texts))


def _read(given: MemberAssignment) -> TaskAssignment:
    return decode_assignment(given.partitions, given.user_data)


_COUNT = TopologyTopics(
    (
        TopicGroup(0, ("in",), ("app-r",)),
        TopicGroup(
            1,
            ("app-r",),
            (),
            {"app-r": RepartitionSpec(config={"cleanup.policy": "delete"})},
            {"app-s-changelog": ChangelogSpec({"cleanup.policy": "compact"})},
        ),
    )
)
_STATEFUL = TopologyTopics((TopicGroup(0, ("in",), changelog_topics={"log": ChangelogSpec()}),))
_STATELESS = TopologyTopics((TopicGroup(0, ("in",)),))


def test_internal_topics_are_created_once() -> None:
    cluster = FakeCluster(**{"in": 2})
    assignor = LeaderAssignor(_COUNT, cluster)
    members = {"m1": _member(P1)}
    first = assignor.assign(members)
    assert cluster.created == [
        NewTopic("app-r", 2, {"cleanup.policy": "delete"}),
        NewTopic("app-s-changelog", 2, {"cleanup.policy": "compact"}),
    ]
    assert assignor.assign(members) == first
    assert len(cluster.created) == 2


def test_tasks_are_distributed_over_the_threads_of_processes() -> None:
    """Each task once, evenly over threads, with partitions and tasks in the same order."""
    members = {"m1": _member(P1), "m2": _member(P1), "m3": _member(P2), "m4": _member(P2)}
    given = LeaderAssignor(_COUNT, FakeCluster(**{"in": 4})).assign(members)
    tasks = {name: _read(assignment).active for name, assignment in given.items()}
    assert {name: len(owned) for name, owned in tasks.items()} == dict.fromkeys(members, 2)
    everything = {task_id: tps for owned in tasks.values() for task_id, tps in owned.items()}
    assert everything == {TaskId(0, p): {TopicPartition("in", p)} for p in range(4)} | {
        TaskId(1, p): {TopicPartition("app-r", p)} for p in range(4)
    }


def test_a_task_is_listed_for_each_of_its_partitions() -> None:
    topics = TopologyTopics((TopicGroup(0, ("b", "a")),), (frozenset({"a", "b"}),))
    given = LeaderAssignor(topics, FakeCluster(a=2, b=2)).assign({"m": _member(P1)})["m"]
    assert given.partitions == tuple(map(_partition, ("a-0", "a-1", "b-0", "b-1")))
    info = AssignmentInfo.decode(given.user_data)
    assert info.active_tasks == (TaskId(0, 0), TaskId(0, 1), TaskId(0, 0), TaskId(0, 1))
    assert _read(given).active == {
        TaskId(0, 0): _partitions("a-0", "b-0"),
        TaskId(0, 1): _partitions("a-1", "b-1"),
    }
    assert _read(given).next_rebalance_ms is None


def test_a_moving_task_is_withheld_until_it_is_revoked() -> None:
    """As in KIP-429. In the first round, the old owner loses it, and the new owner only gets an
    immediate follow-up rebalance. In the second round, the new owner gets it."""
    assignor = LeaderAssignor(_STATEFUL, FakeCluster(**{"in": 2}))
    old = _member(P1, "in-0", "in-1", t0_0=LATEST_OFFSET, t0_1=LATEST_OFFSET)
    first = assignor.assign({"old": old, "new": _member(P2)})
    assert _read(first["old"]).active == {TaskId(0, 0): _partitions("in-0")}
    assert _read(first["old"]).next_rebalance_ms is None
    assert _read(first["new"]).active == {}
    assert _read(first["new"]).next_rebalance_ms == 0
    assert first["new"].partitions == ()

    second = assignor.assign(
        {"old": _member(P1, "in-0", t0_0=LATEST_OFFSET, t0_1=70), "new": _member(P2)}
    )
    assert _read(second["old"]).active == {TaskId(0, 0): _partitions("in-0")}
    assert _read(second["new"]).active == {TaskId(0, 1): _partitions("in-1")}
    assert _read(second["new"]).next_rebalance_ms is None


def test_a_withheld_task_remains_a_standby() -> None:
    assignor = LeaderAssignor(_STATEFUL, FakeCluster(**{"in": 2}))
    given = assignor.assign(
        {
            "old": _member(P1, "in-0", "in-1", t0_0=LATEST_OFFSET, t0_1=LATEST_OFFSET),
            "new": _member(P2, t0_1=70),
        }
    )
    assert _read(given["new"]).active == {}
    assert _read(given["new"]).standby == {TaskId(0, 1): _partitions("in-1")}


def test_a_task_is_withheld_while_any_of_its_partitions_is_owned() -> None:
    topics = TopologyTopics((TopicGroup(0, ("a", "b")),))
    members = {
        "m1": _member(P1, "a-0"),
        "m2": _member(P2, "b-0"),
    }
    given = LeaderAssignor(topics, FakeCluster(a=1, b=1)).assign(members)
    assert [_read(given[name]).active for name in members] == [{}, {}]
    assert sorted(str(_read(given[name]).next_rebalance_ms) for name in members) == ["0", "None"]


def test_a_task_that_moves_between_threads_of_a_process_is_withheld() -> None:
    assignor = LeaderAssignor(_STATELESS, FakeCluster(**{"in": 2}))
    given = assignor.assign({"m1": _member(P1, "in-0", "in-1"), "m2": _member(P1)})
    assert _read(given["m1"]).active == {TaskId(0, 0): _partitions("in-0")}
    assert _read(given["m2"]).active == {}
    assert _read(given["m2"]).next_rebalance_ms == 0


def test_threads_keep_their_stateful_tasks() -> None:
    assignor = LeaderAssignor(_STATEFUL, FakeCluster(**{"in": 4}))
    members = {
        "m1": _member(P1, "in-3", "in-0", t0_3=LATEST_OFFSET, t0_0=LATEST_OFFSET, t0_1=3),
        "m2": _member(P1, "in-2", "in-1", t0_2=LATEST_OFFSET, t0_1=LATEST_OFFSET),
    }
    given = assignor.assign(members)
    assert given["m1"].partitions == (_partition("in-0"), _partition("in-3"))
    assert given["m2"].partitions == (_partition("in-1"), _partition("in-2"))
    assert all(_read(assignment).next_rebalance_ms is None for assignment in given.values())


def test_all_members_get_the_hosts_of_tasks() -> None:
    """The host map contains the future locations, including those of withheld tasks."""
    assignor = LeaderAssignor(_STATELESS, FakeCluster(**{"in": 2}))
    members = {
        "m1": _member(P1, "in-0", "in-1", end_point="one:1"),
        "m2": _member(P2, end_point="http://two:2"),
        "m3": _member(uuid.UUID(int=3)),
    }
    given = assignor.assign(members)
    for assignment in given.values():
        assert _read(assignment).partitions_by_host == {
            HostInfo("one", 1): _partitions("in-0"),
            HostInfo("two", 2): _partitions("in-1"),
        }
        assert _read(assignment).standby_partitions_by_host == {
            HostInfo("one", 1): frozenset(),
            HostInfo("two", 2): frozenset(),
        }


def test_the_hosts_of_an_instance_share_one_address() -> None:
    """An instance has one address for its processes on all hosts. The address has the tasks and
    standbys of all of them."""
    cluster = FakeCluster(**{"in": 3, "log": 3})
    assignor = LeaderAssignor(_STATEFUL, cluster, config=AssignmentConfig(num_standby_replicas=1))
    members = {
        f"m{number}": _member(uuid.UUID(int=number), end_point="one:1") for number in (1, 2, 3)
    }
    given = {name: _read(each) for name, each in assignor.assign(members).items()}
    everything = _partitions("in-0", "in-1", "in-2")
    for assignment in given.values():
        assert assignment.partitions_by_host == {HostInfo("one", 1): everything}
        assert assignment.standby_partitions_by_host == {HostInfo("one", 1): everything}
        assert not assignment.active.keys() & assignment.standby.keys()
        # A member that does not find its own address in the host map requests another rebalance.
        assert assignment.next_rebalance_ms is None
    assert sum(len(assignment.active) for assignment in given.values()) == 3


def test_standbys_and_follow_up_rebalances_of_a_custom_task_assignor() -> None:
    """The results of a custom task assignor reach the threads; one thread per process gets the
    follow-up rebalance."""

    def assign(state: ApplicationState) -> dict[uuid.UUID, ProcessAssignment]:
        assert [process.threads for process in state.processes.values()] == [2, 1]
        return {
            P1: ProcessAssignment(frozenset({TaskId(0, 0)}), frozenset({TaskId(0, 1)}), 5_000),
            P2: ProcessAssignment(frozenset({TaskId(0, 1)})),
        }

    assignor = LeaderAssignor(_STATEFUL, FakeCluster(**{"in": 2}), assign)
    given = assignor.assign({"m1": _member(P1), "m2": _member(P1), "m3": _member(P2)})
    read = {name: _read(assignment) for name, assignment in given.items()}
    assert read["m1"].active == {TaskId(0, 0): _partitions("in-0")}
    assert read["m2"].standby == {TaskId(0, 1): _partitions("in-1")}
    assert [read[name].next_rebalance_ms for name in ("m1", "m2", "m3")] == [5_000, None, None]


def test_a_withheld_task_replaces_a_later_follow_up() -> None:
    """An immediate rebalance makes a later one unnecessary."""

    def assign(state: ApplicationState) -> dict[uuid.UUID, ProcessAssignment]:
        return {
            P1: ProcessAssignment(frozenset({TaskId(0, 0)}), frozenset(), 5_000),
            P2: ProcessAssignment(frozenset({TaskId(0, 1)})),
        }

    assignor = LeaderAssignor(_STATEFUL, FakeCluster(**{"in": 2}), assign)
    given = assignor.assign(
        {"m1": _member(P1), "m2": _member(P1), "m3": _member(P2, "in-0", "in-1")}
    )
    assert _read(given["m1"]).next_rebalance_ms == 0
    assert _read(given["m2"]).next_rebalance_ms is None


def _errors(given: Mapping[str, MemberAssignment]) -> set[AssignorError]:
    assert all(assignment.partitions == () for assignment in given.values())
    return {_read(assignment).error for assignment in given.values()}


def test_all_members_get_the_error_of_a_missing_source_topic(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = FakeCluster(other=1)
    given = LeaderAssignor(_COUNT, cluster).assign({"m1": _member(P1), "m2": _member(P2)})
    assert _errors(given) == {AssignorError.INCOMPLETE_SOURCE_TOPIC_METADATA}
    assert "'in'" in caplog.text
    assert cluster.created == []
    with pytest.raises(MissingSourceTopicError):
        _read(given["m1"]).raise_for_error()


def test_all_members_get_a_shutdown_request() -> None:
    info = SubscriptionInfo(P2, error_code=AssignorError.SHUTDOWN_REQUESTED)
    given = LeaderAssignor(_COUNT, FakeCluster()).assign(
        {"m1": _member(P1), "m2": _subscription(info)}
    )
    assert _errors(given) == {AssignorError.SHUTDOWN_REQUESTED}
    assert _read(given["m1"]).shutdown_requested
    assert _read(given["m1"]).requested_by == ("m2",)
    _read(given["m1"]).raise_for_error()


def test_all_members_get_an_error_for_unreadable_bytes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = dataclasses.replace(_member(P2), user_data=b"\x00")
    given = LeaderAssignor(_COUNT, FakeCluster(**{"in": 1})).assign(
        {"m1": _member(P1), "m2": broken}
    )
    assert _errors(given) == {AssignorError.ASSIGNMENT_ERROR}
    assert "member m2" in caplog.text
    with pytest.raises(TaskAssignmentError, match="ASSIGNMENT_ERROR"):
        _read(given["m1"]).raise_for_error()


def test_all_members_get_an_error_for_an_invalid_assignment() -> None:
    assignor = LeaderAssignor(_COUNT, FakeCluster(**{"in": 1}), lambda state: {})
    assert _errors(assignor.assign({"m1": _member(P1)})) == {AssignorError.ASSIGNMENT_ERROR}


def test_errors_of_the_program_are_raised() -> None:
    """As in Kafka Streams, the leader fails with the actual error."""
    joined = TopologyTopics((TopicGroup(0, ("a", "b")),), (frozenset({"a", "b"}),))
    with pytest.raises(CopartitionError):
        LeaderAssignor(joined, FakeCluster(a=1, b=2)).assign({"m1": _member(P1)})
    with pytest.raises(TopologyError, match="expected 2, actual 3"):
        LeaderAssignor(_COUNT, FakeCluster(**{"in": 2, "app-r": 3})).assign({"m1": _member(P1)})


def test_a_group_with_an_older_member_uses_its_version() -> None:
    """In a rolling upgrade, newer members get the older version and downgrade to it."""
    old = SubscriptionInfo(P1, version=9, latest_version=9)
    given = LeaderAssignor(_STATELESS, FakeCluster(**{"in": 2})).assign(
        {"old": _subscription(old), "new": _member(P2)}
    )
    for assignment in given.values():
        info = AssignmentInfo.decode(assignment.user_data)
        assert (info.version, info.common_version) == (9, 9)
    read = _read(given["new"])
    assert (read.subscription_version, read.next_rebalance_ms) == (9, 0)
    # After the upgrade, the version increases again, with another rebalance.
    upgraded = _subscription(dataclasses.replace(old, latest_version=11))
    given = LeaderAssignor(_STATELESS, FakeCluster(**{"in": 2})).assign({"m1": upgraded})
    last = decode_assignment(given["m1"].partitions, given["m1"].user_data, subscription_version=9)
    assert (last.subscription_version, last.next_rebalance_ms) == (11, 0)


def test_a_member_of_a_future_version_gets_tasks_in_our_version() -> None:
    """As in Kafka Streams, the member reads our version and rejoins with it."""
    future = dataclasses.replace(_member(P2), user_data=bytes.fromhex("0000000c0000000d"))
    given = LeaderAssignor(_STATELESS, FakeCluster(**{"in": 2})).assign(
        {"m1": _member(P1), "future": future}
    )
    info = AssignmentInfo.decode(given["future"].user_data)
    assert (info.version, info.common_version) == (11, 11)
    assert len(given["future"].partitions) == 1


def test_a_member_rejects_inconsistent_assignments() -> None:
    data = AssignmentInfo((TaskId(0, 0),)).encode()
    with pytest.raises(TaskAssignmentError, match="assigned 2 partitions but tasks for 1"):
        decode_assignment(_partitions("in-0", "in-1"), data)
    with pytest.raises(TaskAssignmentError, match="sent a subscription of version 10"):
        decode_assignment(_partitions("in-0"), data, subscription_version=10)
    with pytest.raises(TaskAssignmentError, match="all members support 12"):
        decode_assignment((), AssignmentInfo(common_version=12).encode())


def test_a_member_sorts_its_partitions() -> None:
    """Tasks belong to partitions in sorted order, independent of the order in the assignment."""
    data = AssignmentInfo((TaskId(0, 0), TaskId(1, 0), TaskId(2, 0))).encode()
    for texts in (("a-10", "b-0", "a-2"), ("b-0", "a-2", "a-10")):
        assert decode_assignment(map(_partition, texts), data).active == {
            TaskId(0, 0): _partitions("a-2"),
            TaskId(1, 0): _partitions("a-10"),
            TaskId(2, 0): _partitions("b-0"),
        }


def test_the_previous_tasks_of_a_process() -> None:
    """A task is active if its partition is owned or its state is in use, otherwise a standby. Never
    both, whatever two threads report about it."""
    client = decode_members(
        {
            "m2": _member(P1, t0_0=7, t0_2=LATEST_OFFSET, t0_3=3, t0_1=4),
            "m1": _member(P1, "in-0", "gone-5", t0_0=LATEST_OFFSET, t0_2=9),
        }
    ).clients[0]
    task_of = {TopicPartition("in", number): TaskId(0, number) for number in range(4)}
    state = client.state(task_of)
    assert state.threads == 2
    assert state.previous_active == {TaskId(0, 0), TaskId(0, 2)}
    assert state.previous_standby == {TaskId(0, 1), TaskId(0, 3)}
    assert client.previous_tasks(task_of) == {
        "m1": [TaskId(0, 0)],
        "m2": [TaskId(0, 2), TaskId(0, 1), TaskId(0, 3)],
    }


def test_an_unknown_error_code_is_an_assignment_error() -> None:
    read = decode_assignment((), AssignmentInfo(error_code=77).encode())
    assert read.error == AssignorError.ASSIGNMENT_ERROR


@pytest.mark.parametrize(
    ("encoded_ms", "end_point", "expected"),
    [
        (2**63 - 1, "", None),
        (2**63 - 1, "one:1", None),
        (2**63 - 1, "two:2", 0),
        (9_000, "", 9_000),
        (9_000, "two:2", 0),
        (0, "one:1", 0),
    ],
)
def test_the_time_of_the_next_rebalance(
    encoded_ms: int, end_point: str, expected: int | None
) -> None:
    """Immediately if the other members do not have the address of the process, otherwise the
    leader's time."""
    info = AssignmentInfo(
        partitions_by_host={HostInfo("one", 1): frozenset()}, next_rebalance_ms=encoded_ms
    )
    assert decode_assignment((), info.encode(), end_point=end_point).next_rebalance_ms == expected


def test_a_partition_claimed_by_two_members_is_assigned_to_one() -> None:
    """Conflicting claims of a member that was temporarily out of the group are resolved
    immediately."""
    assignor = LeaderAssignor(_STATELESS, FakeCluster(**{"in": 1}))
    given = assignor.assign({"m1": _member(P1, "in-0"), "m2": _member(P2, "in-0")})
    assert [len(given[name].partitions) for name in ("m1", "m2")] == [1, 0]


def _in_racks(cluster: FakeCluster, *racks: str | None, **config: Any) -> list[set[TaskId]]:
    """The tasks of two processes in racks; with three racks, the first process has two threads.

    The partitions are in the racks opposite to the default assignment.
    """
    cluster.counts = {"in": 2}
    if cluster.racks is not None:
        cluster.racks = {_partition("in-0"): "b", _partition("in-1"): "a"}
        cluster.racks |= {_partition("log-0"): "a", _partition("log-1"): "b"}
    processes = [P1, P2] if len(racks) == 2 else [P1, P1, P2]
    members = {
        f"m{number}": dataclasses.replace(_member(process), rack_id=rack)
        for number, (process, rack) in enumerate(zip(processes, racks, strict=True))
    }
    strategy = AssignmentConfig(rack_aware_assignment_strategy="min_traffic", **config)
    given = LeaderAssignor(_STATEFUL, cluster, config=strategy).assign(members)
    tasks = [set(_read(assignment).active) for assignment in given.values()]
    return tasks if len(tasks) == 2 else [tasks[0] | tasks[1], tasks[2]]


_BY_RACK = [{TaskId(0, 1)}, {TaskId(0, 0)}]
_IN_TURN = [{TaskId(0, 0)}, {TaskId(0, 1)}]


def test_members_get_tasks_with_partitions_in_their_rack() -> None:
    cluster = FakeCluster()
    assert _in_racks(cluster, "a", "b") == _BY_RACK
    assert cluster.rack_requests == [{"in"}]
    assert _in_racks(cluster, "a", "b", num_standby_replicas=1) == _BY_RACK
    assert cluster.rack_requests[1:] == [{"in", "log"}]


@pytest.mark.parametrize("racks", [("a", None), ("a", ""), ("a", "b", "b")])
def test_racks_are_not_requested_if_racks_of_members_are_unknown(
    racks: tuple[str | None, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """A member has no rack, or two threads of a process disagree."""
    cluster = FakeCluster()
    given = _in_racks(cluster, *racks)
    assert cluster.rack_requests == []
    assert "has no client.rack" in caplog.text
    if len(racks) == 2:
        assert given == _IN_TURN


def test_racks_are_ignored_if_the_cluster_is_unavailable(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = FakeCluster()
    cluster.racks = None
    assert _in_racks(cluster, "a", "b") == _IN_TURN
    assert "ignoring racks in the assignment: no broker answered" in caplog.text


def test_racks_are_not_requested_without_a_strategy() -> None:
    cluster = FakeCluster(**{"in": 2})
    members = {"m1": dataclasses.replace(_member(P1), rack_id="a")}
    LeaderAssignor(_STATEFUL, cluster).assign(members)
    assert cluster.rack_requests == []
