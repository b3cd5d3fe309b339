"""A thread without a group: given nothing, once, and woken by others."""

from __future__ import annotations

import threading

import pytest

from millstream.errors import IllegalStateError
from millstream.kafka.member.events import Assigned
from millstream.runtime.ownership.no_group import NoGroup
from millstream.waker import Waker


def test_it_is_assigned_nothing_and_then_hears_no_more() -> None:
    member = NoGroup(Waker())
    assert member.next_event() is None
    member.start()
    event = member.next_event(10_000)
    assert isinstance(event, Assigned)
    assert event.partitions == frozenset()
    assert member.next_event() is None
    member.request_rejoin("the global stores are read again")
    assert member.next_event(10_000) == event


def test_a_wait_ends_when_the_thread_is_woken() -> None:
    waker = Waker()
    member = NoGroup(waker)
    threading.Timer(0.05, waker.wake).start()
    assert member.next_event(60_000) is None


def test_there_is_nowhere_to_commit() -> None:
    member = NoGroup(Waker())
    with pytest.raises(IllegalStateError):
        member.commit({}, 1_000)
    with pytest.raises(IllegalStateError), member.without_rejoin():
        pass
