"""The membership of a thread without a group: empty assignments, and wake-ups."""

from __future__ import annotations

import threading

import pytest

from millstream.clock import Waker
from millstream.errors import IllegalStateError
from millstream.kafka.membership.member_events import Assigned
from millstream.runtime.task_management.no_group import NoGroup


def test_each_join_leads_to_one_empty_assignment() -> None:
    member = NoGroup(Waker())
    assert member.next_event() is None
    member.start()
    event = member.next_event(10_000)
    assert isinstance(event, Assigned)
    assert event.partitions == frozenset()
    assert member.next_event() is None
    member.request_rejoin("the global stores are read again")
    assert member.next_event(10_000) == event


def test_wait_ends_when_the_thread_is_woken() -> None:
    waker = Waker()
    member = NoGroup(waker)
    threading.Timer(0.05, waker.wake).start()
    assert member.next_event(60_000) is None


def test_commits_raise() -> None:
    member = NoGroup(Waker())
    with pytest.raises(IllegalStateError):
        member.commit({}, 1_000)
    with pytest.raises(IllegalStateError), member.without_rejoin():
        pass
