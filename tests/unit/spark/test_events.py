"""The event queue between connections and the owner of an engine is bounded and never deadlocks."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from support.waiting import stays, wait_for

from millstream.spark import thread_events as events_module
from millstream.spark.thread_events import ThreadEvent, ThreadEventQueue

BOUND = 4


class Owner:
    """Takes events, and blocks the queue's thread until a test releases it."""

    def __init__(self) -> None:
        self.taken: list[ThreadEvent] = []
        self.free = threading.Event()
        self.queue = ThreadEventQueue(self._take)

    def _take(self, event: ThreadEvent) -> None:
        # Longer than any test: a timeout here would make room in the queue.
        assert self.free.wait(300)
        self.taken.append(event)


@pytest.fixture
def owner(monkeypatch: pytest.MonkeyPatch) -> Iterator[Owner]:
    monkeypatch.setattr(events_module, "_MAX_PENDING_REPORTS", BOUND)
    owner = Owner()
    owner.queue.start()
    yield owner
    owner.free.set()
    owner.queue.close(30)


def report(number: int) -> ThreadEvent:
    return ThreadEvent("t", "report", number)


def filled(owner: Owner) -> threading.Thread:
    """Start a thread that waits because its reports exceed the queue's limit by one."""
    put: list[int] = []

    def put_all() -> None:
        for number in range(BOUND + 1):
            owner.queue.put(report(number))
            put.append(number)

    late = threading.Thread(target=put_all, daemon=True)
    late.start()
    wait_for(lambda: len(put) == BOUND)
    assert stays(late.is_alive, 0.2)
    return late


def test_reports_wait_for_room_and_lose_nothing(owner: Owner) -> None:
    late = filled(owner)
    owner.free.set()
    late.join(30)
    wait_for(lambda: len(owner.taken) == BOUND + 1)
    assert [event.data for event in owner.taken] == list(range(BOUND + 1))


def test_the_end_of_a_thread_is_queued_without_waiting(owner: Owner) -> None:
    """Detects a deadlock: an owner that removes a thread on the queue's thread waits until the
    thread's end is queued, which waited for the owner."""
    late = filled(owner)
    ended = threading.Thread(target=owner.queue.put, args=(ThreadEvent("t", "exited", None),))
    ended.start()
    ended.join(30)
    assert not ended.is_alive()
    owner.free.set()
    late.join(30)
    wait_for(lambda: len(owner.taken) == BOUND + 2)


def test_a_closed_queue_releases_waiting_threads(owner: Owner) -> None:
    """Detects a connection's thread that waits for room in a queue that is no longer emptied."""
    late = filled(owner)
    owner.queue.close(0.1)
    late.join(30)
    assert not late.is_alive()
    # The owner is still blocked, and the queue is full.
    later = threading.Thread(target=owner.queue.put, args=(report(BOUND + 1),), daemon=True)
    later.start()
    later.join(30)
    assert not later.is_alive()


def test_a_queue_that_was_never_started_can_be_closed() -> None:
    ThreadEventQueue(print).close(1)
