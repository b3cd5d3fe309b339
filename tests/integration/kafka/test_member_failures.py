"""A group member during failures: crashes, fencing, stalls, outages, bad assignors."""

from __future__ import annotations

import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from chaos import member_settles
from chaos.member_settles import Worker
from confluent_kafka import Consumer
from kafka import KafkaAdminClient
from kafka.admin import MemberToRemove
from support.broker.group_members import BROKER, SESSION_MS, Assignor, Loop, Start
from support.broker.topics import unique
from support.waiting import HANG_S, NEVER_S, hang_guard, wait_for

from millstream.config.streams_config import StreamsConfig
from millstream.errors import (
    BrokerUnavailableError,
    ConfigError,
    GroupMembershipError,
    MissingSourceTopicError,
    TaskAssignmentError,
    TaskMigratedError,
)
from millstream.kafka.membership.member_events import Assigned, CommitOffset, Failed, Lost, Revoked
from millstream.kafka.settings.librdkafka_settings import kafka_python_settings
from millstream.record import TopicPartition
from millstream.testing import EmbeddedKafka

NEVER_MS = int(NEVER_S * 1_000)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(properties=BROKER) as kafka:
        yield kafka


@pytest.fixture
def worker(broker: EmbeddedKafka) -> Iterator[Callable[..., Worker]]:
    """Start members in their own processes, and kill them after the test."""
    with ExitStack() as running:

        def start_worker(group: str, topic: str, session_ms: int = SESSION_MS) -> Worker:
            return running.enter_context(
                Worker(
                    broker.bootstrap_servers,
                    group,
                    topic,
                    client_id="worker",
                    session_timeout_ms=session_ms,
                )
            )

        yield start_worker


@pytest.mark.parametrize(
    "session_ms", [SESSION_MS, pytest.param(NEVER_MS, marks=pytest.mark.extended)]
)
def test_a_killed_process_loses_its_partitions_when_its_session_ends(
    broker: EmbeddedKafka, start: Start, worker: Callable[..., Worker], session_ms: int
) -> None:
    """Goal: SIGKILL costs a session timeout and a rebalance, no more and no less."""
    topic, group = unique("killed"), unique("killed")
    broker.create_topic(topic, partitions=member_settles.PARTITIONS)
    killed = worker(group, topic, session_ms)
    wait_for(lambda: killed.owned() == 8, 30)
    survivor = start(group, [topic], Assignor({topic: 8}))
    survivor.await_owned(4)
    wait_for(lambda: killed.owned() == 4)

    killed.signal(signal.SIGKILL)
    if session_ms == NEVER_MS:
        assert survivor.stays_quiet(SESSION_MS / 1_000 + 1)
    else:
        # The rebalance timeout, which is five minutes, does not matter.
        survivor.await_owned(8, HANG_S)


@pytest.mark.extended
def test_a_process_paused_beyond_its_session_rejoins(
    broker: EmbeddedKafka, start: Start, worker: Callable[..., Worker]
) -> None:
    """Goal: SIGSTOP beyond the session, like a paused virtual machine: Lost, then Assigned."""
    topic, group = unique("asleep"), unique("asleep")
    broker.create_topic(topic, partitions=member_settles.PARTITIONS)
    sleeper = worker(group, topic)
    wait_for(lambda: sleeper.owned() == 8, 30)
    sleeper.signal(signal.SIGSTOP)
    other = start(group, [topic], Assignor({topic: 8}))
    other.await_owned(8)
    sleeper.signal(signal.SIGCONT)
    wait_for(lambda: sleeper.owned() == 4)
    kinds = [event["event"] for event in sleeper.events]
    assert kinds[:2] == ["assigned", "lost"]
    assert sleeper.events[1]["partitions"] == 8


def test_a_fenced_member_cannot_commit_and_rejoins(
    broker: EmbeddedKafka, start: Start, topic: str
) -> None:
    """Goal: a fenced commit is a TaskMigratedError; the partitions are reported lost, once, and
    nothing can be committed before that is acknowledged."""
    group = unique("fenced")
    # The heartbeat interval is so long that the commit detects it first.
    loop = start(group, [topic], Assignor({topic: 4}), heartbeat_interval_ms=2_900)
    loop.await_owned(4)
    loop.on_lost = lambda event: False
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    admin.remove_group_members(group, [MemberToRemove(member_id=loop.member.member_id)])
    admin.close()
    offsets = {TopicPartition(topic, 0): CommitOffset(5)}
    with pytest.raises(TaskMigratedError, match="no longer in group"):
        loop.member.commit(offsets, 5_000)
    lost = loop.await_event(Lost)
    assert lost.partitions == {TopicPartition(topic, i) for i in range(4)}
    assert loop.stays_quiet(1)
    with pytest.raises(TaskMigratedError):
        loop.member.commit(offsets, 5_000)
    assert loop.member.committed(offsets, 5_000) == dict.fromkeys(offsets)
    loop.member.acknowledge(lost)
    wait_for(lambda: len(loop.of(Assigned)) == 2)
    loop.member.commit(offsets, 5_000)
    assert loop.member.committed(offsets, 5_000) == offsets


def test_a_member_leaves_without_progress_and_rejoins_with_progress(
    start: Start, topic: str
) -> None:
    """Goal: max.poll.interval.ms, enforced by the member's own clock: others get the partitions,
    and the member reports Lost and joins again only after the loop is back and has acknowledged."""
    group = unique("stalled")
    stuck = start(group, [topic], Assignor({topic: 4}), max_poll_interval_ms=2_000)
    stuck.await_owned(4)
    other = start(group, [topic], Assignor({topic: 4}), max_poll_interval_ms=2_000)
    other.await_owned(2)
    stuck.making_progress = False
    other.await_owned(4, seconds=6)
    assert len(stuck.await_event(Lost).partitions) == 2
    assert stuck.stays_quiet(1)
    assert stuck.member.rebalancing
    stuck.making_progress = True
    stuck.await_owned(2)
    other.await_owned(2)


@pytest.mark.parametrize("taken", [True, False])
def test_a_loop_that_recovers_during_an_aborted_revocation(
    start: Start, topic: str, taken: bool
) -> None:
    """Goal: a member whose loop recovers, and which therefore does not leave, must not stay in a
    generation with partitions that no loop processes. This holds before and after the loop has
    received the Revoked event."""
    group = unique("recovers")
    stuck = start(group, [topic], Assignor({topic: 4}))
    stuck.await_owned(4)
    life = stuck.member._membership
    assert life is not None
    stalled, release = threading.Event(), threading.Event()
    give_up = life._revoke

    async def stall_during_revocation(partitions: frozenset[TopicPartition]) -> bool:
        if not taken and not broken_off:
            stalled.set()
        done = await give_up(partitions)
        broken_off.append(done)
        stalled.clear()
        release.set()
        return done

    def hang(event: Revoked) -> None:
        if taken and not broken_off:
            stalled.set()
            release.wait(20)
        stuck.commit_revoked(event)

    broken_off: list[bool] = []
    life._revoke = stall_during_revocation  # type: ignore[method-assign]
    life._without_progress = stalled.is_set  # type: ignore[method-assign]
    stuck.on_revoked = hang
    other = start(group, [topic], Assignor({topic: 4}))
    wait_for(lambda: broken_off)
    assert not broken_off[0]
    stuck.await_owned(2)
    other.await_owned(2)
    assert not stuck.owned & other.owned
    wait_for(lambda: stuck.generations[-1] == other.generations[-1])


def test_a_generation_reset_during_a_join_causes_a_rejoin(start: Start, topic: str) -> None:
    """Goal: kafka-python considers a member joined even if its generation was reset between the
    answer and its use; it would never join again."""
    group = unique("left")
    loop = start(group, [topic], Assignor({topic: 4}))
    loop.await_owned(4)
    life = loop.member._membership
    assert life is not None
    coordinator = life.coordinator
    complete = coordinator._on_join_complete_async

    async def reset_generation(*answer: Any, **named: Any) -> None:
        coordinator._on_join_complete_async = complete  # type: ignore[method-assign]
        coordinator._generation = type(coordinator._generation).NO_GENERATION
        await complete(*answer, **named)

    coordinator._on_join_complete_async = reset_generation  # type: ignore[method-assign]
    generation = loop.generations[-1]
    loop.member.request_rejoin("to have an answer come in")
    loop.await_event(Lost)
    wait_for(lambda: loop.generations[-1] > generation)
    loop.await_owned(4)
    assert -1 not in loop.generations


def test_a_failure_is_reported_even_if_leaving_fails_as_well(start: Start, topic: str) -> None:
    """Goal: a stream thread that is not notified of its member's end would wait forever."""

    def fail() -> None:
        raise ZeroDivisionError("no user data")

    async def leave(reason: str, timeout_ms: int) -> None:
        raise RuntimeError("the connection is in no state to leave")

    assignor = Assignor({topic: 4})
    loop = start(unique("cannot-leave"), [topic], assignor)
    loop.await_owned(4)
    assert loop.member._membership is not None
    loop.member._membership.coordinator.leave = leave  # type: ignore[method-assign]
    assignor.before_user_data = fail
    loop.member.request_rejoin("to make it fail")
    assert isinstance(loop.await_event(Failed).error, TaskAssignmentError)


def test_a_loop_stuck_in_a_revocation_does_not_block_the_group(start: Start, topic: str) -> None:
    """Goal: a Revoked event that is never acknowledged is limited by max.poll.interval.ms as
    well, and the late acknowledgment makes the member rejoin."""
    group = unique("stuck")
    stuck = start(group, [topic], Assignor({topic: 4}), max_poll_interval_ms=2_000)
    stuck.await_owned(4)
    release = threading.Event()
    stuck.on_revoked = lambda event: release.wait(30)
    other = start(group, [topic], Assignor({topic: 4}), max_poll_interval_ms=2_000)
    other.await_owned(4, seconds=10)
    with pytest.raises(TaskMigratedError):
        stuck.member.commit({TopicPartition(topic, 0): CommitOffset(1)}, 2_000)
    assert other.stays_quiet(1.5)
    release.set()
    stuck.await_owned(2)
    other.await_owned(2)
    # Revoked partitions are not lost a second time.
    (lost,) = stuck.of(Lost)
    assert not lost.partitions & stuck.of(Revoked)[0].partitions
    assert len(lost.partitions) == 2


def test_a_static_member_without_progress_keeps_its_partitions_until_its_session_ends(
    start: Start, topic: str
) -> None:
    """Goal: as in Kafka, a static member never leaves by itself.

    Its loop is notified of the loss immediately, the group only when the session expires.
    """
    group = unique("static-stalled")
    stuck = start(
        group,
        [topic],
        Assignor({topic: 4}),
        group_instance_id="one",
        max_poll_interval_ms=2_000,
        session_timeout_ms=2 * SESSION_MS,
    )
    stuck.await_owned(4)
    other = start(group, [topic], Assignor({topic: 4}))
    other.await_owned(2)
    stuck.await_owned(2)
    stuck.making_progress = False
    assert len(stuck.await_event(Lost).partitions) == 2
    assert other.stays_quiet(1)
    with pytest.raises(TaskMigratedError):
        stuck.member.commit({TopicPartition(topic, 0): CommitOffset(1)}, 2_000)
    other.await_owned(4)
    stuck.making_progress = True
    stuck.await_owned(2)
    other.await_owned(2)


def test_a_static_member_returns_within_its_session_without_a_rebalance(
    start: Start, topic: str
) -> None:
    """Goal: it gets its lost partitions back in the same generation, and no other member is
    affected."""
    group = unique("static-back")
    stuck = start(
        group,
        [topic],
        Assignor({topic: 4}),
        group_instance_id="one",
        max_poll_interval_ms=1_000,
        session_timeout_ms=20_000,
    )
    stuck.await_owned(4)
    other = start(group, [topic], Assignor({topic: 4}))
    kept = other.await_owned(2)
    owned = stuck.await_owned(2)
    wait_for(lambda: other.generations[-1] == stuck.generations[-1])
    generation = other.generations[-1]
    stuck.making_progress = False
    assert stuck.await_event(Lost).partitions == owned
    stuck.making_progress = True
    assert stuck.await_owned(2) == owned
    assert other.stays_quiet(1)
    assert (stuck.generations[-1], other.generations[-1]) == (generation, generation)
    assert (other.owned, stuck.owned) == (kept, owned)
    stuck.member.commit(dict.fromkeys(owned, CommitOffset(1)), 5_000)


def test_a_static_member_stalled_during_a_join_does_not_leave(start: Start, topic: str) -> None:
    """Goal: the broker holds its join until another member has revoked its partitions.

    The join completes, so that the group continues, and only then does the member stop
    sending heartbeats.
    """
    group = unique("static-pending")
    first = start(group, [topic], Assignor({topic: 4}), max_poll_interval_ms=60_000)
    first.await_owned(4)
    first.on_revoked = lambda event: False
    second = start(
        group,
        [topic],
        Assignor({topic: 4}),
        group_instance_id="two",
        max_poll_interval_ms=2_000,
        session_timeout_ms=2 * SESSION_MS,
    )
    revoked = first.await_event(Revoked)
    generation = second.generations[-1] if second.generations else 0
    second.member.request_rejoin("to have a join pending")
    wait_for(lambda: second.member.rebalancing)
    second.making_progress = False
    life = second.member._membership
    assert life is not None
    wait_for(life._without_progress)
    assert second.stays_quiet(1)
    first.on_revoked = first.commit_revoked
    first.member.acknowledge(revoked)
    # It got the partitions of the first member, and does not process them until its session ends.
    wait_for(lambda: second.generations and second.generations[-1] > generation)
    second.await_event(Lost)
    wait_for(lambda: first.generations[-1] == second.generations[-1])
    assert first.stays_quiet(1)
    first.await_owned(4)
    second.making_progress = True
    second.await_owned(2)


def test_a_static_member_that_fails_does_not_leave(start: Start, topic: str) -> None:
    """Goal: if it is restarted within the session timeout, its partitions are unchanged."""
    group = unique("static-fails")
    other = start(group, [topic], Assignor({topic: 4}))
    other.await_owned(4)
    bad = Assignor({topic: 4})
    failing = start(group, [topic], bad, group_instance_id="one", session_timeout_ms=20_000)
    owned = failing.await_owned(2)
    other.await_owned(2)
    wait_for(lambda: failing.generations[-1] == other.generations[-1])

    def fail() -> None:
        raise ZeroDivisionError("no user data")

    bad.before_user_data = fail
    failing.member.request_rejoin("to make it fail")
    assert isinstance(failing.await_event(Failed).error, TaskAssignmentError)
    assert other.stays_quiet(3)
    with pytest.raises(TaskMigratedError):
        failing.member.commit(dict.fromkeys(owned, CommitOffset(1)), 1_000)
    again = start(group, [topic], Assignor({topic: 4}), group_instance_id="one")
    assert again.await_owned(2) == owned
    assert other.stays_quiet(1)


@pytest.mark.extended
def test_a_short_broker_outage_causes_no_event(topic: str) -> None:
    """Goal: a crash and restart of the only broker, shorter than the session: no event at all,
    and commits work again. During longer outages commits raise BrokerUnavailableError."""
    with EmbeddedKafka(properties=BROKER) as own:
        own.create_topic("in", partitions=2)
        loop = Loop(
            own.bootstrap_servers, "outage", ["in"], Assignor({"in": 2}), session_timeout_ms=30_000
        ).start()
        try:
            loop.await_owned(2)
            offsets = {TopicPartition("in", 0): CommitOffset(9)}
            own.kill()
            with pytest.raises(BrokerUnavailableError, match="did not respond in time"):
                loop.member.commit(offsets, 1_000)
            own.start()
            loop.member.commit(offsets, 20_000)
            assert loop.member.committed(offsets, 20_000) == offsets
            assert loop.stays_quiet(1.5)
            assert loop.generations == [1]
            own.kill()
        finally:
            with hang_guard("the close"):
                loop.close(timeout_ms=NEVER_MS)


def test_an_assignor_that_raises_fails_its_member_but_not_the_group(
    start: Start, topic: str
) -> None:
    """Goal: the error arrives with its traceback; the other member leads and continues."""
    group = unique("raises")

    def fail() -> None:
        raise ZeroDivisionError("the assignor divided by zero")

    bad = Assignor({topic: 4})
    # The group must not wait for the end of a session.
    leader = start(group, [topic], bad, session_timeout_ms=NEVER_MS)
    leader.await_owned(4)
    follower = start(group, [topic], Assignor({topic: 4}), session_timeout_ms=NEVER_MS)
    follower.await_owned(2)
    wait_for(lambda: leader.generations[-1] == follower.generations[-1])

    bad.before_assign = fail
    leader.member.request_rejoin("to make it fail")
    error = leader.await_event(Failed).error
    assert isinstance(error, TaskAssignmentError)
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert "ZeroDivisionError when computing an assignment" in str(error)
    follower.await_owned(4)
    assert leader.member.next_event(0) == Failed(error)
    with pytest.raises(TaskMigratedError):
        leader.member.commit({TopicPartition(topic, 0): CommitOffset(1)}, 1_000)


def test_failed_lookups_of_the_leader_end_no_member(start: Start, topic: str) -> None:
    """Goal: nothing is assigned without the cluster's answers, and the group rejoins until they
    arrive; no member loses its partitions. This continues for the bootstrap timeout."""
    group = unique("unanswered")
    lookups: list[str] = []

    def fail_twice() -> None:
        lookups.append("leader")
        if len(lookups) <= 2:
            raise BrokerUnavailableError("Looking up topics failed")

    flaky = Assignor({topic: 4})
    leader = start(group, [topic], flaky)
    leader.await_owned(4)
    follower = start(group, [topic], Assignor({topic: 4}))
    kept = follower.await_owned(2)
    wait_for(lambda: leader.generations[-1] == follower.generations[-1])
    generation = leader.generations[-1]
    flaky.before_assign = fail_twice
    leader.member.request_rejoin("for another lookup")
    wait_for(lambda: leader.generations[-1] == follower.generations[-1] > generation)
    assert len(lookups) == 3
    assert leader.generations[-1] >= generation + 3
    assert (len(leader.owned), follower.owned) == (2, kept)
    assert not leader.of(Lost)
    assert not follower.of(Lost)

    failing_assignor = Assignor({topic: 4})
    alone = start(unique("hopeless"), [topic], failing_assignor, bootstrap_timeout_ms=2_000)
    alone.await_owned(4)

    def fail_always() -> None:
        raise BrokerUnavailableError("Looking up topics failed")

    failing_assignor.before_assign = fail_always
    alone.member.request_rejoin("for another lookup")
    assert isinstance(alone.await_event(Failed).error, BrokerUnavailableError)
    assert len(failing_assignor.assign_requests) >= 3


def test_errors_of_an_assignor_keep_their_type(start: Start, topic: str) -> None:
    def fail() -> None:
        raise MissingSourceTopicError("no such topic", topic="orders")

    assignor = Assignor({topic: 4})
    assignor.before_user_data = fail
    error = start(unique("kind"), [topic], assignor).await_event(Failed).error
    assert isinstance(error, MissingSourceTopicError)
    assert error.topic == "orders"

    empty_assignor = Assignor({topic: 4})
    empty_assignor.assign = lambda members: {}  # type: ignore[method-assign]
    error = start(unique("kind"), [topic], empty_assignor).await_event(Failed).error
    assert isinstance(error, TaskAssignmentError)
    assert "returned assignments for []" in str(error)


def test_an_assignor_may_take_longer_than_the_session(start: Start, topic: str) -> None:
    """Goal: creating topics or requesting end offsets must not cost the leader its membership."""
    assignor = Assignor({topic: 4})
    assignor.before_assign = lambda: time.sleep(SESSION_MS / 1000 * 2)
    loop = start(unique("slow"), [topic], assignor)
    loop.await_owned(4)
    assert loop.generations == [1]


def test_a_fenced_static_member_is_notified(start: Start, topic: str) -> None:
    group = unique("instance")
    first = start(group, [topic], Assignor({topic: 4}), group_instance_id="one")
    first.await_owned(4)
    second = start(group, [topic], Assignor({topic: 4}), group_instance_id="one")
    second.await_owned(4)
    error = first.await_event(Failed).error
    assert isinstance(error, GroupMembershipError)
    assert "joined group" in str(error)
    assert "'one'" in str(error)
    assert second.stays_quiet(1)


def test_an_unreachable_cluster_is_reported_in_time_with_its_address() -> None:
    patient = Loop(
        "127.0.0.1:9", "g", ["t"], Assignor({}), name="patient", bootstrap_timeout_ms=NEVER_MS
    ).start()
    loop = Loop("127.0.0.1:9", "g", ["t"], Assignor({}), bootstrap_timeout_ms=1_500).start()
    error = loop.await_event(Failed, HANG_S).error
    assert patient.events == []
    patient.close()
    assert isinstance(error, BrokerUnavailableError)
    assert "127.0.0.1:9" in str(error)
    loop.close()

    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = "{}:{}".format(*silent.getsockname())
        loop = Loop(address, "g", ["t"], Assignor({}), bootstrap_timeout_ms=1_500).start()
        error = loop.await_event(Failed, HANG_S).error
        assert isinstance(error, BrokerUnavailableError)
        assert address in str(error)
        loop.close()

        in_the_midst = Loop(
            address, "g", ["t"], Assignor({}), bootstrap_timeout_ms=NEVER_MS
        ).start()
        with hang_guard("the close"):
            in_the_midst.close(timeout_ms=NEVER_MS)


@pytest.mark.slow
def test_a_member_that_starts_in_an_outage_waits_for_the_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Goal: a worker that is restarted during an outage joins afterwards, logs the reason of the
    wait now and then, and can be closed in the meantime."""
    caplog.set_level(logging.WARNING, "millstream.kafka.membership.group_member")

    def waits() -> list[str]:
        return [one for one in caplog.messages if "waiting for a broker at" in one]

    with EmbeddedKafka(properties=BROKER) as own:
        own.create_topic("in", partitions=2)
        own.kill()
        settings = StreamsConfig(
            application_id="late", bootstrap_servers=own.bootstrap_servers, task_timeout_ms=90_000
        )
        timeout_ms = kafka_python_settings(settings, client_id="m")["bootstrap_timeout_ms"]
        assert timeout_ms == 90_000
        late, closed = (
            Loop(
                own.bootstrap_servers,
                "late",
                ["in"],
                Assignor({"in": 2}),
                name=name,
                bootstrap_timeout_ms=timeout_ms,
            ).start()
            for name in ("late", "closed")
        )
        try:
            wait_for(lambda: len(waits()) >= 6, HANG_S)
            assert any("late: waiting" in one and "for 2 s, at most 90 s" in one for one in waits())
            assert len(set(waits())) == len(waits()), "not more than once per second and member"
            with hang_guard("the close"):
                closed.close(timeout_ms=NEVER_MS)
            assert not closed.events
            own.start()
            late.await_owned(2, 30)
        finally:
            late.close()


@pytest.mark.extended
def test_a_wrong_security_protocol_is_reported_soon(broker: EmbeddedKafka) -> None:
    """Goal: a broker with another protocol does not count as an outage; a server that only
    accepts connections may be an unreachable broker."""
    loop = Loop(
        broker.bootstrap_servers,
        "g",
        ["t"],
        Assignor({}),
        bootstrap_timeout_ms=90_000,
        security_protocol="SSL",
    ).start()
    error = loop.await_event(Failed, 30).error
    assert isinstance(error, BrokerUnavailableError)
    assert "security.protocol=SSL must be PLAINTEXT" in str(error)
    loop.close()


def test_wrong_settings_are_reported_by_name(broker: EmbeddedKafka, start: Start) -> None:
    error = (
        start(unique("typo"), ["t"], Assignor({}), sesion_timeout_ms=1).await_event(Failed).error
    )
    assert isinstance(error, ConfigError)
    assert "Did you mean 'session_timeout_ms'?" in str(error)
    error = (
        start(unique("beat"), ["t"], Assignor({}), heartbeat_interval_ms=SESSION_MS)
        .await_event(Failed)
        .error
    )
    assert isinstance(error, ConfigError)
    error = (
        start(unique("short"), ["t"], Assignor({}), session_timeout_ms=400)
        .await_event(Failed)
        .error
    )
    assert isinstance(error, ConfigError)
    assert "group.min.session.timeout.ms" in str(error)


def test_a_group_of_plain_consumers_is_rejected(
    broker: EmbeddedKafka, start: Start, topic: str
) -> None:
    """Goal: an application id that equals another application's group id yields a clear message."""
    group = unique("plain")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    consumer.subscribe([topic])
    wait_for(lambda: consumer.poll(0.1) or consumer.assignment())
    error = start(group, [topic], Assignor({topic: 4})).await_event(Failed).error
    assert isinstance(error, GroupMembershipError)
    assert "members of another kind" in str(error)
    consumer.close()


@pytest.mark.slow
def test_two_members_with_busy_loops_settle(broker: EmbeddedKafka) -> None:
    """Goal: no unnecessary rebalance, although the processing loops hold the interpreter lock
    for more than a second at a time. `make soak` runs the same for ten minutes."""
    topic = unique("settles")
    broker.create_topic(topic, partitions=member_settles.PARTITIONS)
    assert member_settles.run(broker.bootstrap_servers, topic, seconds=10) == []
