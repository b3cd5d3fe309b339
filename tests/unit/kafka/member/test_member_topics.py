"""When the leader calls for a rebalance because of topics, and when it must not."""

from __future__ import annotations

from millstream.clock import ManualClock
from millstream.kafka.member.member_assignor import MemberAssignment, MemberSubscription
from millstream.kafka.member.topics import TopicWatch
from millstream.record import TopicPartition

INTERVAL_MS = 300_000


def partitions(topic: str, *numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for number in numbers)


def member(*topics: str, owned: tuple[TopicPartition, ...] = ()) -> MemberSubscription:
    return MemberSubscription(topics, b"", owned, None, None)


def watch(
    clock: ManualClock,
    *,
    members: dict[str, MemberSubscription],
    assigned: tuple[TopicPartition, ...],
    before: dict[str, int],
) -> TopicWatch:
    topics = TopicWatch(clock, INTERVAL_MS)
    topics.begin(members, {"m": MemberAssignment(assigned, b"")}, before)
    return topics


def test_a_topic_the_assignor_created_is_no_change() -> None:
    """Aim: no second rebalance after the one in which the leader created repartition topics."""
    topics = watch(
        ManualClock(),
        members={"m": member("in", "repartition")},
        assigned=partitions("in", 0, 1) + partitions("repartition", 0, 1, 2),
        before={"in": 2},
    )
    assert topics.looked({"in": 2, "repartition": 3}) == []


def test_metadata_older_than_the_assignors_is_no_change() -> None:
    """Aim: the assignor saw partition 2 already, our look before it did not."""
    topics = watch(
        ManualClock(),
        members={"m": member("in")},
        assigned=partitions("in", 0, 1, 2),
        before={"in": 2},
    )
    assert topics.looked({"in": 3}) == []


def test_a_partition_still_owned_by_another_counts_as_known() -> None:
    """Aim: a partition on the move is assigned to nobody, and yet not new."""
    topics = watch(
        ManualClock(),
        members={"m": member("in"), "n": member("in", owned=partitions("in", 2))},
        assigned=partitions("in", 0, 1),
        before={"in": 3},
    )
    assert topics.looked({"in": 3}) == []


def test_new_partitions_and_new_topics_call_for_a_rebalance() -> None:
    topics = watch(
        ManualClock(),
        members={"m": member("in", "missing")},
        assigned=partitions("in", 0, 1),
        before={"in": 2},
    )
    assert topics.looked({"in": 4, "missing": 1}) == [
        "topic in has 4 partitions instead of 2",
        "topic missing appeared with 1 partitions",
    ]


def test_a_new_partition_is_noticed_even_if_our_own_look_was_ahead_of_the_assignor() -> None:
    """Aim: the count that matters is the assignor's, or partition 2 would be nobody's for ever."""
    topics = watch(
        ManualClock(),
        members={"m": member("in")},
        assigned=partitions("in", 0, 1),
        before={"in": 3},
    )
    assert topics.looked({"in": 3}) == ["topic in has 3 partitions instead of 2"]


def test_a_change_the_assignor_does_not_take_up_is_reported_ever_more_rarely() -> None:
    """Aim: an assignor that leaves a partition aside causes no endless series of rebalances."""
    clock = ManualClock()
    topics = TopicWatch(clock, INTERVAL_MS)
    members = {"m": member("in")}
    reported_at: list[int] = []
    for _ in range(60):
        topics.begin(members, {"m": MemberAssignment(partitions("in", 0), b"")}, {"in": 2})
        if topics.looked({"in": 2}):
            reported_at.append(clock.monotonic_ms() // INTERVAL_MS)
        clock.advance(INTERVAL_MS)
    assert reported_at == [0, 1, 3, 7, 15, 31]


def test_a_topic_is_gone_only_after_three_looks() -> None:
    """Aim: a broker that has not heard of a new topic yet does not cause a rebalance."""
    clock = ManualClock()
    topics = watch(
        clock, members={"m": member("in")}, assigned=partitions("in", 0), before={"in": 1}
    )
    assert topics.looked({}) == []
    assert topics.looked({"in": 1}) == []
    assert [topics.looked({}) for _ in range(3)] == [[], [], ["topic in is gone"]]


def test_it_looks_often_while_a_topic_is_missing_and_rarely_else() -> None:
    clock = ManualClock()
    topics = watch(
        clock,
        members={"m": member("in", "missing")},
        assigned=partitions("in", 0),
        before={"in": 1},
    )
    clock.advance(1_000)
    assert topics.due
    topics.looked({"in": 1, "missing": 1})
    clock.advance(INTERVAL_MS - 1)
    assert not topics.due
    clock.advance(1)
    assert topics.due
    topics.look_failed()
    clock.advance(1_000)
    assert topics.due


def test_a_follower_watches_nothing() -> None:
    topics = watch(
        ManualClock(), members={"m": member("in")}, assigned=partitions("in", 0), before={"in": 1}
    )
    topics.stop()
    assert topics.topics == frozenset()
    assert topics.looked({"in": 9}) == []
