"""Events from a member to its stream thread: order, acknowledgments, bounds."""

from __future__ import annotations

import threading

from millstream.errors import GroupMembershipError
from millstream.kafka.membership.member_events import (
    Assigned,
    Failed,
    Lost,
    MemberEventQueue,
    Revoked,
)
from millstream.record import TopicPartition

ONE = frozenset({TopicPartition("t", 1)})


def assigned(generation: int) -> Assigned:
    return Assigned(frozenset(), b"", generation, "member")


def drain(queue: MemberEventQueue) -> list[object]:
    events: list[object] = []
    while (event := queue.take(0)) is not None:
        events.append(event)
    return events


def test_events_are_ordered_and_newer_assignments_replace_pending_ones() -> None:
    """A slow thread gets one `Assigned` for a series of rebalances, but no event that needs an
    acknowledgment is skipped or overtaken."""
    queue = MemberEventQueue(lambda: None)
    revoked, lost = Revoked(ONE), Lost(ONE)
    for event in (assigned(1), assigned(2), revoked, assigned(3), assigned(4), lost, assigned(5)):
        queue.put(event)
    assert drain(queue) == [assigned(2), revoked, assigned(4), lost, assigned(5)]


def test_equal_events_are_acknowledged_separately() -> None:
    acknowledgements: list[int] = []
    queue = MemberEventQueue(lambda: acknowledgements.append(1))
    first, second = Revoked(ONE), Revoked(ONE)
    queue.put(first)
    queue.put(second)
    queue.acknowledge(first)
    assert not queue.is_unacknowledged(first)
    assert queue.is_unacknowledged(second)
    assert queue.is_unacknowledged()
    queue.acknowledge(second)
    queue.acknowledge(second)
    assert not queue.is_unacknowledged()
    assert len(acknowledgements) == 3


def test_an_event_can_be_withdrawn_only_before_it_is_taken() -> None:
    queue = MemberEventQueue(lambda: None)
    event = Revoked(ONE)
    queue.put(event)
    assert queue.withdraw(event)
    assert not queue.is_unacknowledged()
    assert queue.take(0) is None
    queue.put(event)
    assert queue.take(0) is event
    assert not queue.withdraw(event)
    assert queue.is_unacknowledged(event)


def test_failed_is_the_last_event() -> None:
    queue = MemberEventQueue(lambda: None)
    failed = Failed(GroupMembershipError("out"))
    queue.put(failed)
    queue.put(assigned(1))
    assert [queue.take(0) for _ in range(3)] == [failed] * 3


def test_close_ends_a_waiting_take() -> None:
    queue = MemberEventQueue(lambda: None)
    taken: list[object] = []
    waiter = threading.Thread(target=lambda: taken.append(queue.take(60_000)))
    waiter.start()
    queue.close()
    waiter.join(5)
    assert taken == [None]
    queue.put(assigned(1))
    assert queue.take(0) is None
