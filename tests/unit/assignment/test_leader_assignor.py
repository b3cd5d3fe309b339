"""The leader's work from subscriptions to assignments, and each member's reading of its own."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from millstream.assignment.clients import read_group
from millstream.assignment.leader_assignor import ConsumerAssignment, LeaderAssignor
from millstream.assignment.task_assignment import TaskAssignment, decode_assignment
from millstream.assignment.task_assignor import (
    ApplicationState,
    AssignmentConfig,
    ProcessAssignment,
)
from millstream.assignment.topics import (
    ChangelogSpec,
    NewTopic,
    RepartitionSpec,
    TopicGroup,
    TopologyTopics,
)
from millstream.assignment.wire.assignment_info import AssignmentInfo, HostInfo
from millstream.assignment.wire.protocol import LATEST_OFFSET, AssignorError
from millstream.assignment.wire.subscription_info import SubscriptionInfo
from millstream.errors import (
    BrokerUnavailableError,
    CopartitionError,
    MissingSourceTopicError,
    TaskAssignmentError,
    TopologyError,
)
from millstream.record import TaskId, TopicPartition

P1, P2 = uuid.UUID(int=1), uuid.UUID(int=2)


class FakeCluster:
    """A cluster as the assignor sees it: topics and their partition counts."""

    def __init__(self, **counts: int) -> None:
        self.counts = counts
        self.created: list[NewTopic] = []
        self.ends: dict[TopicPartition, int] = {}
        #: The rack of each partition's only replica; with None the cluster does not answer.
        self.racks: dict[TopicPartition, str] | None = {}
        self.asked_for_racks: list[set[str]] = []

    def partition_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        return {topic: self.counts[topic] for topic in topics if topic in self.counts}

    def replica_racks(self, topics: Collection[str]) -> Mapping[TopicPartition, frozenset[str]]:
        self.asked_for_racks.append(set(topics))
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


@dataclass(frozen=True)
class Member:
    info: SubscriptionInfo
    owned_partitions: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    rack_id: str | None = None

    @property
    def user_data(self) -> bytes:
        return self.info.encode()


def _member(process: uuid.UUID, *owned: str, end_point: str = "", **sums: int) -> Member:
    """`owned` are partitions like `in-0`, `sums` offset sums like `t0_1=5`."""
    info = SubscriptionInfo(
        process, end_point, {TaskId.parse(name[1:]): total for name, total in sums.items()}
    )
    return Member(info, tuple(map(_partition, owned)))


def _partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def _partitions(*texts: str) -> frozenset[TopicPartition]:
    return frozenset(map(_partition, texts))


def _read(given: ConsumerAssignment) -> TaskAssignment:
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


def test_tasks_are_spread_over_threads_of_processes() -> None:
    """Aim: every task once, each thread its share, partitions and tasks in the same order."""
    members = {"m1": _member(P1), "m2": _member(P1), "m3": _member(P2), "m4": _member(P2)}
    given = LeaderAssignor(_COUNT, FakeCluster(**{"in": 4})).assign(members)
    tasks = {name: _read(assignment).active for name, assignment in given.items()}
    assert {name: len(owned) for name, owned in tasks.items()} == dict.fromkeys(members, 2)
    everything = {task_id: tps for owned in tasks.values() for task_id, tps in owned.items()}
    assert everything == {TaskId(0, p): {TopicPartition("in", p)} for p in range(4)} | {
        TaskId(1, p): {TopicPartition("app-r", p)} for p in range(4)
    }


def test_a_task_of_several_partitions_is_named_for_each() -> None:
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


def test_a_moving_task_is_withheld_until_it_is_given_up() -> None:
    """Aim: KIP-429. First round: gone from the old owner, not told to the new one, who is told to
    rebalance at once; second round: it is the new owner's."""
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


def test_a_withheld_task_stays_a_standby_where_it_was_one() -> None:
    assignor = LeaderAssignor(_STATEFUL, FakeCluster(**{"in": 2}))
    given = assignor.assign(
        {
            "old": _member(P1, "in-0", "in-1", t0_0=LATEST_OFFSET, t0_1=LATEST_OFFSET),
            "new": _member(P2, t0_1=70),
        }
    )
    assert _read(given["new"]).active == {}
    assert _read(given["new"]).standby == {TaskId(0, 1): _partitions("in-1")}


def test_a_task_of_which_one_partition_is_still_owned_is_withheld_whole() -> None:
    topics = TopologyTopics((TopicGroup(0, ("a", "b")),))
    members = {
        "m1": _member(P1, "a-0"),
        "m2": _member(P2, "b-0"),
    }
    given = LeaderAssignor(topics, FakeCluster(a=1, b=1)).assign(members)
    assert [_read(given[name]).active for name in members] == [{}, {}]
    assert sorted(str(_read(given[name]).next_rebalance_ms) for name in members) == ["0", "None"]


def test_a_task_that_moves_between_threads_of_one_process_is_withheld_too() -> None:
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


def test_everyone_learns_where_tasks_are() -> None:
    """Aim: the host map tells where tasks will be, those included that are still withheld."""
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


def test_the_hosts_of_one_instance_are_one_place_to_ask() -> None:
    """Aim: an instance has one address, however many clients its hosts are: what all of them have
    is found there, a task as well as its copy on another of its hosts."""
    cluster = FakeCluster(**{"in": 3, "log": 3})
    assignor = LeaderAssignor(_STATEFUL, cluster, config=AssignmentConfig(num_standby_replicas=1))
    members = {
        f"m{number}": _member(uuid.UUID(int=number), end_point="one:1") for number in (1, 2, 3)
    }
    given = {name: _read(each) for name, each in assignor.assign(members).items()}
    everything = _partitions("in-0", "in-1", "in-2")
    for told in given.values():
        assert told.partitions_by_host == {HostInfo("one", 1): everything}
        assert told.standby_partitions_by_host == {HostInfo("one", 1): everything}
        assert not told.active.keys() & told.standby.keys()
        # Who does not find its own address there asks for another rebalance.
        assert told.next_rebalance_ms is None
    assert sum(len(told.active) for told in given.values()) == 3


def test_standbys_and_follow_up_rebalances_of_another_task_assignor() -> None:
    """Aim: the task assignor can be swapped, and all it says reaches the threads: the follow-up
    rebalance one thread of the process."""

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


def test_a_withheld_task_takes_the_place_of_a_later_follow_up() -> None:
    """Aim: a rebalance at once makes one that is due later needless."""

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


def _errors(given: Mapping[str, ConsumerAssignment]) -> set[AssignorError]:
    assert all(assignment.partitions == () for assignment in given.values())
    return {_read(assignment).error for assignment in given.values()}


def test_a_missing_source_topic_is_told_to_all(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(other=1)
    given = LeaderAssignor(_COUNT, cluster).assign({"m1": _member(P1), "m2": _member(P2)})
    assert _errors(given) == {AssignorError.INCOMPLETE_SOURCE_TOPIC_METADATA}
    assert "'in'" in caplog.text
    assert cluster.created == []
    with pytest.raises(MissingSourceTopicError):
        _read(given["m1"]).raise_for_error()


def test_a_request_to_shut_down_is_told_to_all() -> None:
    info = SubscriptionInfo(P2, error_code=AssignorError.SHUTDOWN_REQUESTED)
    given = LeaderAssignor(_COUNT, FakeCluster()).assign({"m1": _member(P1), "m2": Member(info)})
    assert _errors(given) == {AssignorError.SHUTDOWN_REQUESTED}
    assert _read(given["m1"]).shutdown_requested
    assert _read(given["m1"]).asked_by == ("m2",)
    _read(given["m1"]).raise_for_error()


def test_bytes_that_cannot_be_read_end_in_an_error_for_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Garbage(Member):
        user_data = b"\x00"

    broken = Garbage(SubscriptionInfo(P2))
    given = LeaderAssignor(_COUNT, FakeCluster(**{"in": 1})).assign(
        {"m1": _member(P1), "m2": broken}
    )
    assert _errors(given) == {AssignorError.ASSIGNMENT_ERROR}
    assert "member m2" in caplog.text
    with pytest.raises(TaskAssignmentError, match="ASSIGNMENT_ERROR"):
        _read(given["m1"]).raise_for_error()


def test_a_task_assignor_with_an_error_ends_in_an_error_for_all() -> None:
    assignor = LeaderAssignor(_COUNT, FakeCluster(**{"in": 1}), lambda state: {})
    assert _errors(assignor.assign({"m1": _member(P1)})) == {AssignorError.ASSIGNMENT_ERROR}


def test_what_only_a_change_of_the_program_can_mend_is_raised() -> None:
    """Aim: as in Kafka Streams, the leader fails with the real story."""
    joined = TopologyTopics((TopicGroup(0, ("a", "b")),), (frozenset({"a", "b"}),))
    with pytest.raises(CopartitionError):
        LeaderAssignor(joined, FakeCluster(a=1, b=2)).assign({"m1": _member(P1)})
    with pytest.raises(TopologyError, match="expected 2, actual 3"):
        LeaderAssignor(_COUNT, FakeCluster(**{"in": 2, "app-r": 3})).assign({"m1": _member(P1)})


def test_a_group_with_an_older_member_speaks_its_version() -> None:
    """Aim: a rolling upgrade. The newer member gets the older version, and steps down to it."""
    old = Member(SubscriptionInfo(P1, version=9, latest_version=9))
    given = LeaderAssignor(_STATELESS, FakeCluster(**{"in": 2})).assign(
        {"old": old, "new": _member(P2)}
    )
    for assignment in given.values():
        info = AssignmentInfo.decode(assignment.user_data)
        assert (info.version, info.common_version) == (9, 9)
    read = _read(given["new"])
    assert (read.subscription_version, read.next_rebalance_ms) == (9, 0)
    # The upgrade is over: the version goes up again, once more with a rebalance.
    upgraded = dataclasses.replace(old.info, latest_version=11)
    given = LeaderAssignor(_STATELESS, FakeCluster(**{"in": 2})).assign({"m1": Member(upgraded)})
    last = decode_assignment(*given["m1"], subscription_version=9)
    assert (last.subscription_version, last.next_rebalance_ms) == (11, 0)


def test_a_member_of_a_future_version_gets_tasks_in_ours() -> None:
    """Aim: follows Kafka Streams: it reads our version, then comes back with it."""

    class Future(Member):
        user_data = bytes.fromhex("0000000c0000000d")

    given = LeaderAssignor(_STATELESS, FakeCluster(**{"in": 2})).assign(
        {"m1": _member(P1), "future": Future(SubscriptionInfo(P2))}
    )
    info = AssignmentInfo.decode(given["future"].user_data)
    assert (info.version, info.common_version) == (11, 11)
    assert len(given["future"].partitions) == 1


def test_a_member_reads_only_what_fits() -> None:
    data = AssignmentInfo((TaskId(0, 0),)).encode()
    with pytest.raises(TaskAssignmentError, match="assigned 2 partitions but tasks for 1"):
        decode_assignment(_partitions("in-0", "in-1"), data)
    with pytest.raises(TaskAssignmentError, match="sent a subscription of version 10"):
        decode_assignment(_partitions("in-0"), data, subscription_version=10)
    with pytest.raises(TaskAssignmentError, match="all understand 12"):
        decode_assignment((), AssignmentInfo(common_version=12).encode())


def test_a_member_sorts_its_partitions() -> None:
    """Aim: tasks are found by the order of the partitions, whatever order those came in."""
    data = AssignmentInfo((TaskId(0, 0), TaskId(1, 0), TaskId(2, 0))).encode()
    for texts in (("a-10", "b-0", "a-2"), ("b-0", "a-2", "a-10")):
        assert decode_assignment(map(_partition, texts), data).active == {
            TaskId(0, 0): _partitions("a-2"),
            TaskId(1, 0): _partitions("a-10"),
            TaskId(2, 0): _partitions("b-0"),
        }


def test_what_a_process_had() -> None:
    """Aim: a task is active where its partition is owned or its state is in use, else a standby;
    never both, whatever two threads report of it."""
    client = read_group(
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


def test_an_unknown_error_is_an_error() -> None:
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
def test_when_to_rebalance_again(encoded_ms: int, end_point: str, expected: int | None) -> None:
    """Aim: at once if the others do not know this process' address, else as the leader says."""
    info = AssignmentInfo(
        partitions_by_host={HostInfo("one", 1): frozenset()}, next_rebalance_ms=encoded_ms
    )
    assert decode_assignment((), info.encode(), end_point=end_point).next_rebalance_ms == expected


def test_a_partition_that_two_members_claim_goes_to_one_of_them() -> None:
    """Aim: conflicting claims, left by a member that was out for a while, settle at once."""
    assignor = LeaderAssignor(_STATELESS, FakeCluster(**{"in": 1}))
    given = assignor.assign({"m1": _member(P1, "in-0"), "m2": _member(P2, "in-0")})
    assert [len(given[name].partitions) for name in ("m1", "m2")] == [1, 0]


def _in_racks(cluster: FakeCluster, *racks: str | None, **config: Any) -> list[set[TaskId]]:
    """The tasks of two processes in racks, the first of which has two threads if three are given;
    what they read from is in the rack of the other one than they would be given it."""
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


_NEAR = [{TaskId(0, 1)}, {TaskId(0, 0)}]
_AS_DEALT_OUT = [{TaskId(0, 0)}, {TaskId(0, 1)}]


def test_members_get_tasks_whose_partitions_are_in_their_rack() -> None:
    cluster = FakeCluster()
    assert _in_racks(cluster, "a", "b") == _NEAR
    assert cluster.asked_for_racks == [{"in"}]
    assert _in_racks(cluster, "a", "b", num_standby_replicas=1) == _NEAR
    assert cluster.asked_for_racks[1:] == [{"in", "log"}]


@pytest.mark.parametrize("racks", [("a", None), ("a", ""), ("a", "b", "b")])
def test_the_cluster_is_not_asked_for_racks_if_those_of_the_members_are_not_known(
    racks: tuple[str | None, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """One has none, or two threads of a process disagree."""
    cluster = FakeCluster()
    given = _in_racks(cluster, *racks)
    assert cluster.asked_for_racks == []
    assert "has no client.rack" in caplog.text
    if len(racks) == 2:
        assert given == _AS_DEALT_OUT


def test_racks_are_left_aside_if_the_cluster_does_not_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = FakeCluster()
    cluster.racks = None
    assert _in_racks(cluster, "a", "b") == _AS_DEALT_OUT
    assert "without regard to racks: no broker answered" in caplog.text


def test_nobody_is_asked_for_racks_without_a_strategy() -> None:
    cluster = FakeCluster(**{"in": 2})
    members = {"m1": dataclasses.replace(_member(P1), rack_id="a")}
    LeaderAssignor(_STATEFUL, cluster).assign(members)
    assert cluster.asked_for_racks == []
