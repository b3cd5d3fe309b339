"""A group member on a real broker: joining, sharing, committing, changing topics, leaving."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from kafka import KafkaProducer
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata
from support.broker.group_members import BROKER, SESSION_MS, Assignor, Loop, Start
from support.broker.topics import unique
from support.waiting import NEVER_S, hang_guard, wait_for

from millstream.errors import (
    BrokerUnavailableError,
    ConfigError,
    IllegalStateError,
    RebalanceInProgressError,
)
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.kafka.membership.member_events import Assigned, CommitOffset, Revoked
from millstream.kafka.membership.membership import Membership
from millstream.record import TopicPartition
from millstream.testing import EmbeddedKafka

#: Long, because no test here waits for an expired session: if the machine stalls for a few seconds,
#: a short session would expire and disturb tests that expect no events.
LONG_SESSION_MS = 20_000
NEVER_MS = int(NEVER_S * 1_000)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(properties={**BROKER, "broker.rack": "eu-1"}) as kafka:
        yield kafka


@pytest.fixture
def member_settings() -> dict[str, int]:
    return {"session_timeout_ms": LONG_SESSION_MS}


def admin(broker: EmbeddedKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


def membership(loop: Loop) -> Membership:
    """The membership of a loop's member."""
    life = loop.member._membership
    assert life is not None
    return life


def all_in(loops: list[Loop], generation: int) -> bool:
    return all(loop.generations[-1] == generation for loop in loops)


def test_the_racks_of_replicas(broker: EmbeddedKafka, topic: str) -> None:
    """The leader compares them with the members' `client_rack`."""
    with contextlib.closing(
        ClusterAdmin({"bootstrap.servers": broker.bootstrap_servers})
    ) as cluster_admin:
        racks = cluster_admin.replica_racks([topic, unique("absent")])
    assert racks == {TopicPartition(topic, number): {"eu-1"} for number in range(4)}


def test_a_single_member_gets_everything_and_its_own_user_data(
    broker: EmbeddedKafka, start: Start, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: the assignor's input and output arrive unchanged; there is one Assigned event."""
    caplog.set_level(logging.INFO, "millstream.kafka.membership.group_member")
    assignor = Assignor({topic: 4}, b"\x00from the member\xff")
    loop = start("single-" + topic, [topic], assignor, client_rack="eu-1")
    loop.await_owned(4)

    (assigned,) = loop.of(Assigned)
    assert assigned.partitions == {TopicPartition(topic, i) for i in range(4)}
    assert assigned.generation == 1 == loop.member.generation
    assert assigned.member_id == loop.member.member_id
    assert assigned.user_data == f"round 1 for {assigned.member_id}".encode()
    assert not loop.member.rebalancing

    (members,) = assignor.assign_requests
    (subscription,) = members.values()
    assert subscription.topics == (topic,)
    assert subscription.user_data == b"\x00from the member\xff"
    assert subscription.owned_partitions == ()
    assert subscription.rack_id == "eu-1"
    assert "joined generation 1 of group" in caplog.text
    assert "as leader with 4 partitions" in caplog.text


def test_two_members_share_and_moved_partitions_are_committed_first(
    start: Start, topic: str
) -> None:
    """Goal: cooperative rebalancing in three generations.

    The new member finds the commit that the first member made while it handled Revoked.
    """
    group = unique("share")
    first = start(group, [topic], Assignor({topic: 4}))
    first.await_owned(4)

    def commit_late(event: Revoked) -> None:
        time.sleep(0.5)
        first.commit_revoked(event)

    first.on_revoked = commit_late
    second = start(group, [topic], Assignor({topic: 4}))
    moved = second.await_owned(2)
    first.await_owned(2)

    (revoked,) = first.of(Revoked)
    assert revoked.partitions == moved
    found = second.member.committed(moved, 5_000)
    assert found == {tp: CommitOffset(100 + tp.partition, f"from {tp}") for tp in moved}
    assert wait_for(lambda: first.generations == [1, 2, 3] and second.generations == [2, 3])
    assert first.stays_quiet(2)
    assert second.generations == [2, 3]
    # The events of the first member: all partitions, then Revoked before the assignment without
    # them.
    assert [type(event) for event in first.events] == [Assigned, Revoked, Assigned, Assigned]


def test_offsets_are_returned_with_metadata_and_epoch(start: Start, topic: str) -> None:
    loop = start(unique("offsets"), [topic], Assignor({topic: 4}))
    loop.await_owned(4)
    zero, one, two = (TopicPartition(topic, i) for i in range(3))
    offsets = {zero: CommitOffset(7, "AgAAAA==", 0), one: CommitOffset(2**40)}
    loop.member.commit(offsets, 5_000)
    assert loop.member.committed([zero, one, two], 5_000) == {**offsets, two: None}
    assert loop.member.committed([], 5_000) == {}
    loop.member.commit({}, 5_000)


def test_commits_arrive_in_order(start: Start, topic: str) -> None:
    """The last offset stays committed, whether the caller waits for the answers or not."""
    loop = start(unique("begun"), [topic], Assignor({topic: 4}))
    loop.await_owned(4)
    place = TopicPartition(topic, 0)
    begun = [loop.member.begin_commit({place: CommitOffset(offset)}, 5_000) for offset in range(20)]
    loop.member.commit({place: CommitOffset(20)}, 5_000)
    assert all(answer.is_done for answer in begun)
    for answer in begun:
        answer.result()
    assert loop.member.committed([place], 5_000) == {place: CommitOffset(20)}


def test_a_follower_can_request_a_rebalance(start: Start, topic: str) -> None:
    """Goal: a request causes a generation even with unchanged user data, but not if it is
    already satisfied."""
    group = unique("rejoin")
    loops = [start(group, [topic], Assignor({topic: 4})) for _ in range(2)]
    for loop in loops:
        loop.await_owned(2)
    wait_for(lambda: loops[0].generations[-1] == loops[1].generations[-1])
    generation = loops[0].generations[-1]
    leader = next(loop for loop in loops if membership(loop).coordinator.is_leader)
    follower = next(loop for loop in loops if loop is not leader)

    for _ in range(3):
        generation += 1
        follower.member.request_rejoin("requested by a test")
        wait_for(partial(all_in, loops, generation))
    for loop in loops:
        loop.member.request_rejoin("late", generation=generation - 1)
    assert leader.stays_quiet(1.5)
    follower.member.request_rejoin("in time", generation=generation)
    wait_for(lambda: all(loop.generations[-1] == generation + 1 for loop in loops))


def test_missing_topics_are_tolerated_and_not_created(
    broker: EmbeddedKafka, start: Start, topic: str
) -> None:
    """Goal: a subscription may contain topics that do not exist; they are watched, not created,
    and their appearance causes a rebalance."""
    missing = unique("missing")
    assignor = Assignor({topic: 4, missing: 2})
    assignor.counts.pop(missing)
    loop = start(unique("missing"), [topic, missing], assignor)
    loop.await_owned(4)
    assert loop.stays_quiet(2.5)
    assert missing not in admin(broker).list_topics(timeout=10).topics

    assignor.counts[missing] = 2
    broker.create_topic(missing, partitions=2)
    loop.await_owned(6)
    assert loop.generations == [1, 2]


def test_topics_the_assignor_creates_cause_no_further_rebalance(
    broker: EmbeddedKafka, start: Start, topic: str
) -> None:
    """Goal: repartition topics created while the leader assigns do not look like a change
    afterwards."""
    internal = unique("repartition")
    assignor = Assignor({topic: 4, internal: 3})
    assignor.before_assign = lambda: broker.create_topic(internal, partitions=3)
    loop = start(unique("creates"), [topic, internal], assignor, metadata_max_age_ms=300)
    loop.await_owned(7)
    assert loop.stays_quiet(3)
    assert loop.generations == [1]


def test_partitions_added_to_a_source_topic_cause_one_rebalance(
    broker: EmbeddedKafka, start: Start, topic: str
) -> None:
    """Goal: as in Java, the leader watches the topics of the group."""
    group = unique("grows")
    assignors = [Assignor({topic: 4}) for _ in "ab"]
    loops = [start(group, [topic], each, metadata_max_age_ms=300) for each in assignors]
    for loop in loops:
        loop.await_owned(2)
    wait_for(lambda: loops[0].generations[-1] == loops[1].generations[-1])
    assert loops[0].stays_quiet(1)
    before = loops[0].generations[-1]
    for assignor in assignors:
        assignor.counts[topic] = 6
    client = admin(broker)
    client.create_partitions([NewPartitions(topic, 6)])[topic].result(10)
    for loop in loops:
        loop.await_owned(3)
    assert loops[0].stays_quiet(2)
    assert loops[0].generations[-1] == before + 1


def test_a_pattern_matches_whole_topic_names(broker: EmbeddedKafka, start: Start) -> None:
    prefix = unique("pattern")
    broker.create_topic(f"{prefix}-a", partitions=1)
    broker.create_topic(f"x{prefix}-a", partitions=1)
    counts = {f"{prefix}-a": 1, f"{prefix}-b": 1, f"x{prefix}-a": 1}
    assignor = Assignor(counts)
    loop = start(unique("pattern"), None, assignor, pattern=f"{prefix}-.*", metadata_max_age_ms=300)
    assert loop.await_owned(1) == {TopicPartition(f"{prefix}-a", 0)}
    broker.create_topic(f"{prefix}-b", partitions=1)
    assert loop.await_owned(2) == {TopicPartition(f"{prefix}-{x}", 0) for x in "ab"}
    assert loop.stays_quiet(1.5)
    assert loop.generations == [1, 2]


def test_a_close_leaves_the_group_or_keeps_partitions_until_the_session_ends(
    start: Start, topic: str
) -> None:
    """Goal: others take over at once with leave_group=True, after the session timeout otherwise.

    Method: only one session ends during the test.
    """
    group = unique("leave")
    first, second, third = (
        start(group, [topic], Assignor({topic: 4}), session_timeout_ms=session_ms)
        for session_ms in (NEVER_MS, SESSION_MS, NEVER_MS)
    )
    wait_for(lambda: sum(len(loop.owned) for loop in (first, second, third)) == 4)
    wait_for(lambda: all(loop.owned for loop in (first, second, third)))

    third.close(leave_group=True)
    wait_for(lambda: len(first.owned) + len(second.owned) == 4)

    second.close(leave_group=False)
    first.await_owned(4)

    fourth = start(group, [topic], Assignor({topic: 4}), session_timeout_ms=NEVER_MS)
    fourth.await_owned(2)
    first.await_owned(2)
    fourth.close(leave_group=False)
    assert first.stays_quiet(SESSION_MS / 1_000 + 1)


def test_a_close_does_not_wait_for_a_delayed_join(start: Start, topic: str) -> None:
    """Goal: the broker holds this member's join until the first member has revoked its
    partitions; the close uses another connection, and the group continues without the member."""
    group = unique("pending")
    first = start(group, [topic], Assignor({topic: 4}))
    first.await_owned(4)
    first.on_revoked = lambda event: False
    second = start(group, [topic], Assignor({topic: 4}))
    revoked = first.await_event(Revoked)
    second.member.request_rejoin("to have a join pending")
    wait_for(lambda: second.member.rebalancing)
    assert second.member.committed([TopicPartition(topic, 0)], 2_000) == {
        TopicPartition(topic, 0): None
    }
    with hang_guard("the close"):
        second.close(timeout_ms=NEVER_MS)
    first.on_revoked = first.commit_revoked
    first.member.acknowledge(revoked)
    first.await_owned(4)


def test_no_join_is_sent_during_a_transaction_commit(start: Start, topic: str) -> None:
    """Goal: the group metadata stay valid between reading and checking them."""
    loop = start(unique("hold"), [topic], Assignor({topic: 4}))
    loop.await_owned(4)
    with loop.member.without_rejoin():
        loop.member.request_rejoin("not now")
        assert loop.stays_quiet(1)
        assert loop.member.generation == 1
        assert not loop.member.rebalancing
    wait_for(lambda: loop.generations == [1, 2])

    hold_up = Assignor({topic: 4})
    hold_up.before_assign = lambda: time.sleep(1)
    slow = start(unique("hold"), [topic], hold_up)
    wait_for(lambda: hold_up.assign_requests)
    with pytest.raises(RebalanceInProgressError), slow.member.without_rejoin():
        pass
    with pytest.raises(RebalanceInProgressError):
        slow.member.commit({TopicPartition(topic, 0): CommitOffset(1)}, 5_000)
    slow.await_owned(4)


def test_offsets_wait_for_open_transactions_and_old_generations_are_fenced(
    broker: EmbeddedKafka, start: Start, topic: str
) -> None:
    """Goal: a transactional producer needs generation and member id (KIP-447), and a new owner
    must not start from offsets that a transaction is about to replace."""
    group = unique("eos")
    loop = start(group, [topic], Assignor({topic: 4}), isolation_level="read_committed")
    loop.await_owned(4)
    partition = TopicPartition(topic, 0)
    stale = ConsumerGroupMetadata(group, loop.member.generation, loop.member.member_id)
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=unique("tx"), retries=3
    )
    try:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({partition: OffsetAndMetadata(42, "m", -1)}, stale)
        with pytest.raises(BrokerUnavailableError, match="UnstableOffsetCommitError"):
            loop.member.committed([partition], 500)
        producer.commit_transaction()
        assert loop.member.committed([partition], 5_000) == {partition: CommitOffset(42, "m")}

        loop.member.request_rejoin("a new generation")
        wait_for(lambda: loop.generations == [1, 2])
        producer.begin_transaction()
        with pytest.raises(Exception, match=r"IllegalGeneration|CommitFailed"):
            producer.send_offsets_to_transaction({partition: OffsetAndMetadata(1, "", -1)}, stale)
        producer.abort_transaction()
    finally:
        producer.close(timeout=5)


def test_a_static_member_returns_to_its_partitions_without_a_rebalance(
    start: Start, topic: str
) -> None:
    """Goal: KIP-345, also for the leader, which continues to watch the topics (KIP-814)."""
    group = unique("static")
    first = start(group, [topic], Assignor({topic: 4}), group_instance_id="one")
    first.await_owned(4)
    second = start(group, [topic], Assignor({topic: 4}), group_instance_id="two")
    owned = second.await_owned(2)
    wait_for(lambda: second.generations[-1] == first.generations[-1])
    generation = second.generations[-1]
    first.close(leave_group=False)
    again = start(group, [topic], Assignor({topic: 4}), group_instance_id="one")
    again.await_owned(2)
    assert again.generations == [generation]
    assert second.owned == owned
    assert again.stays_quiet(1.5)
    assert second.generations[-1] == generation
    assert membership(again)._topic_monitor.topics == {topic}

    again.close(leave_group=True)
    second.await_owned(4, seconds=LONG_SESSION_MS / 1000 / 2)


def test_calls_in_the_wrong_order_are_rejected(broker: EmbeddedKafka, start: Start) -> None:
    loop = Loop(broker.bootstrap_servers, unique("order"), ["t"], Assignor({}))
    with pytest.raises(IllegalStateError, match="has not joined yet"):
        loop.member.commit({TopicPartition("t", 0): CommitOffset(1)}, 1_000)
    assert loop.member.rebalancing
    assert (loop.member.generation, loop.member.member_id) == (-1, "")
    loop.start()
    loop.await_event(Assigned)
    with pytest.raises(IllegalStateError, match="started once"):
        loop.member.start()
    loop.close()
    with pytest.raises(IllegalStateError, match="is closed"):
        loop.member.commit({TopicPartition("t", 0): CommitOffset(1)}, 1_000)
    loop.member.close(leave_group=True, timeout_ms=1_000)
    assert loop.member.next_event(0) is None
    with pytest.raises(ConfigError, match="either to topics or to a pattern"):
        Loop(broker.bootstrap_servers, "g", None, Assignor({}))
