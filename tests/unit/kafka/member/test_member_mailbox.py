"""Events between a member and its stream thread: order, receipts, bounds."""

from __future__ import annotations

import threading

from millstream.errors import GroupMembershipError
from millstream.kafka.member.events import Assigned, Failed, Lost, Revoked
from millstream.kafka.member.mailbox import Mailbox
from millstream.record import TopicPartition

ONE = frozenset({TopicPartition("t", 1)})


def assigned(generation: int) -> Assigned:
    return Assigned(frozenset(), b"", generation, "member")


def drain(mailbox: Mailbox) -> list[object]:
    events: list[object] = []
    while (event := mailbox.take(0)) is not None:
        events.append(event)
    return events


def test_events_come_in_order_and_newer_assignments_replace_untaken_ones() -> None:
    """Aim: a slow thread sees one Assigned for a run of rebalances, but no event that needs a
    receipt is skipped or overtaken."""
    mailbox = Mailbox(lambda: None)
    revoked, lost = Revoked(ONE), Lost(ONE)
    for event in (assigned(1), assigned(2), revoked, assigned(3), assigned(4), lost, assigned(5)):
        mailbox.put(event)
    assert drain(mailbox) == [assigned(2), revoked, assigned(4), lost, assigned(5)]


def test_receipts_are_told_apart_although_the_events_are_equal() -> None:
    receipts: list[int] = []
    mailbox = Mailbox(lambda: receipts.append(1))
    first, second = Revoked(ONE), Revoked(ONE)
    mailbox.put(first)
    mailbox.put(second)
    mailbox.acknowledge(first)
    assert not mailbox.awaits(first)
    assert mailbox.awaits(second)
    assert mailbox.awaits()
    mailbox.acknowledge(second)
    mailbox.acknowledge(second)
    assert not mailbox.awaits()
    assert len(receipts) == 3


def test_an_event_can_be_withdrawn_only_before_it_is_taken() -> None:
    mailbox = Mailbox(lambda: None)
    event = Revoked(ONE)
    mailbox.put(event)
    assert mailbox.withdraw(event)
    assert not mailbox.awaits()
    assert mailbox.take(0) is None
    mailbox.put(event)
    assert mailbox.take(0) is event
    assert not mailbox.withdraw(event)
    assert mailbox.awaits(event)


def test_nothing_follows_failed_and_failed_stays() -> None:
    mailbox = Mailbox(lambda: None)
    failed = Failed(GroupMembershipError("out"))
    mailbox.put(failed)
    mailbox.put(assigned(1))
    assert [mailbox.take(0) for _ in range(3)] == [failed] * 3


def test_close_wakes_whoever_waits() -> None:
    mailbox = Mailbox(lambda: None)
    taken: list[object] = []
    waiter = threading.Thread(target=lambda: taken.append(mailbox.take(60_000)))
    waiter.start()
    mailbox.close()
    waiter.join(5)
    assert taken == [None]
    mailbox.put(assigned(1))
    assert mailbox.take(0) is None
