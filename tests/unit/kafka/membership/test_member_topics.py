"""Topic changes that cause a rebalance, and those that must not."""

from __future__ import annotations

from millstream.clock import ManualClock
from millstream.kafka.membership.member_assignor import MemberAssignment, MemberSubscription
from millstream.kafka.membership.topic_changes import TopicMonitor
from millstream.record import TopicPartition

INTERVAL_MS = 300_000


def partitions(topic: str, *numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for number in numbers)


def member(*topics: str, owned: tuple[TopicPartition, ...] = ()) -> MemberSubscription:
    return MemberSubscription(topics, b"", owned, None, None)


def make_monitor(
    clock: ManualClock,
    *,
    members: dict[str, MemberSubscription],
    assigned: tuple[TopicPartition, ...],
    before: dict[str, int],
) -> TopicMonitor:
    monitor = TopicMonitor(clock, INTERVAL_MS)
    monitor.watch_assignment(members, {"m": MemberAssignment(assigned, b"")}, before)
    return monitor


def test_a_topic_created_by_the_assignor_is_not_a_change() -> None:
    """No second rebalance after the leader has created repartition topics."""
    monitor = make_monitor(
        ManualClock(),
        members={"m": member("in", "repartition")},
        assigned=partitions("in", 0, 1) + partitions("repartition", 0, 1, 2),
        before={"in": 2},
    )
    assert monitor.compare({"in": 2, "repartition": 3}) == []


def test_metadata_older_than_that_of_the_assignor_is_not_a_change() -> None:
    """The assignor has seen partition 2, the preceding metadata request has not."""
    monitor = make_monitor(
        ManualClock(),
        members={"m": member("in")},
        assigned=partitions("in", 0, 1, 2),
        before={"in": 2},
    )
    assert monitor.compare({"in": 3}) == []


def test_a_partition_owned_by_another_member_is_not_new() -> None:
    """A partition that moves is temporarily unassigned."""
    monitor = make_monitor(
        ManualClock(),
        members={"m": member("in"), "n": member("in", owned=partitions("in", 2))},
        assigned=partitions("in", 0, 1),
        before={"in": 3},
    )
    assert monitor.compare({"in": 3}) == []


def test_new_partitions_and_topics_cause_a_rebalance() -> None:
    monitor = make_monitor(
        ManualClock(),
        members={"m": member("in", "missing")},
        assigned=partitions("in", 0, 1),
        before={"in": 2},
    )
    assert monitor.compare({"in": 4, "missing": 1}) == [
        "topic in has 4 partitions instead of 2",
        "topic missing appeared (partitions: 1)",
    ]


def test_a_new_partition_is_detected_if_the_assignor_used_older_metadata() -> None:
    """The assignor's count is compared; otherwise partition 2 would never be assigned."""
    monitor = make_monitor(
        ManualClock(),
        members={"m": member("in")},
        assigned=partitions("in", 0, 1),
        before={"in": 3},
    )
    assert monitor.compare({"in": 3}) == ["topic in has 3 partitions instead of 2"]


def test_reports_of_a_change_that_the_assignor_ignores_become_rarer() -> None:
    """An assignor that omits a partition does not cause endless rebalances."""
    clock = ManualClock()
    monitor = TopicMonitor(clock, INTERVAL_MS)
    members = {"m": member("in")}
    reported_at: list[int] = []
    for _ in range(60):
        monitor.watch_assignment(
            members, {"m": MemberAssignment(partitions("in", 0), b"")}, {"in": 2}
        )
        if monitor.compare({"in": 2}):
            reported_at.append(clock.monotonic_ms() // INTERVAL_MS)
        clock.advance(INTERVAL_MS)
    assert reported_at == [0, 1, 3, 7, 15, 31]


def test_a_topic_counts_as_deleted_after_three_checks() -> None:
    """A broker that does not have a new topic in its metadata yet does not cause a rebalance."""
    clock = ManualClock()
    monitor = make_monitor(
        clock, members={"m": member("in")}, assigned=partitions("in", 0), before={"in": 1}
    )
    assert monitor.compare({}) == []
    assert monitor.compare({"in": 1}) == []
    assert [monitor.compare({}) for _ in range(3)] == [[], [], ["topic in was deleted"]]


def test_checks_are_frequent_while_a_topic_is_missing() -> None:
    clock = ManualClock()
    monitor = make_monitor(
        clock,
        members={"m": member("in", "missing")},
        assigned=partitions("in", 0),
        before={"in": 1},
    )
    clock.advance(1_000)
    assert monitor.is_due
    monitor.compare({"in": 1, "missing": 1})
    clock.advance(INTERVAL_MS - 1)
    assert not monitor.is_due
    clock.advance(1)
    assert monitor.is_due
    monitor.check_failed()
    clock.advance(1_000)
    assert monitor.is_due


def test_a_follower_monitors_no_topics() -> None:
    monitor = make_monitor(
        ManualClock(), members={"m": member("in")}, assigned=partitions("in", 0), before={"in": 1}
    )
    monitor.stop()
    assert monitor.topics == frozenset()
    assert monitor.compare({"in": 9}) == []
