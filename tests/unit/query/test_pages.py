"""Goal: an answer of many pages can be read to its end however slowly, in bounded memory, and
letting go of it disturbs nobody."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.tasks.opened_alone import opened_alone
from support.waiting import wait_for

from millstream import InvalidStateStoreError, StateStoreMigratedError, Stores
from millstream.clock import ManualClock
from millstream.query.pages import PagedPairs
from millstream.runtime.queries.cursors import IDLE_MS, Cursors
from millstream.runtime.queries.questions import AskStore, NextPage, TaskAnswer
from millstream.serdes import LONG, STRING
from millstream.state.opening.open_store import OpenStore
from millstream.state.queries.reads import Read, ReadKind

_PAGE_BYTES = 100


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenStore]:
    supplier = Stores.in_memory_key_value("s")
    store, _ = opened_alone(Stores.key_value_builder(supplier, STRING, LONG), directory=tmp_path)
    store.store.put_all((f"k{number:03}", number) for number in range(100))
    store.base.commit(None)
    yield store
    store.close()


class OwnThread:
    """A thread with some tasks, each of which has the same store.

    Args:
        opened: the store.
        clock: time, by which it drops what nobody wants.
    """

    def __init__(self, opened: OpenStore, clock: ManualClock) -> None:
        self._opened = opened
        self.cursors = Cursors(clock)

    def answer(self, partition: int) -> TaskAnswer:
        assert self._opened.reader is not None
        items = self._opened.reader.read(Read(ReadKind.RANGE))
        assert items is not None
        page, cursor = self.cursors.begin(self._opened, items, _PAGE_BYTES)
        return TaskAnswer(partition, "RUNNING", page, cursor)

    def ask(self, question: AskStore, subtopology: int | None) -> Sequence[TaskAnswer]:
        raise AssertionError("Nobody asks.")

    def next_page(self, cursor: str, page_number: int, page_bytes: int) -> NextPage:
        self.cursors.drop_idle()
        return self.cursors.next_page(cursor, page_number, page_bytes)

    def close_cursor(self, cursor: str) -> None:
        self.cursors.close(cursor)


def paged(opened: OpenStore) -> tuple[PagedPairs, OwnThread, ManualClock]:
    clock = ManualClock(0)
    thread = OwnThread(opened, clock)
    said = [(thread, thread.answer(partition)) for partition in range(2)]
    return PagedPairs(said, _PAGE_BYTES, clock), thread, clock


def test_a_slow_reader_comes_to_the_end(opened: OpenStore) -> None:
    """What is behind one partition, and behind one page, stays as long as somebody reads."""
    pairs, thread, clock = paged(opened)
    found = []
    for key, _ in pairs.iterate(lambda items: items):
        found.append(key)
        clock.advance(IDLE_MS // 3)
    assert found == [f"k{number:03}".encode() for number in range(100)] * 2
    assert len(thread.cursors) == 0


def test_who_stands_still_for_long_is_told(opened: OpenStore) -> None:
    """The rest is gone; that is no end."""
    pairs, _, clock = paged(opened)
    iterator = pairs.iterate(lambda items: items)
    next(iterator)
    clock.advance(IDLE_MS + 1)
    with pytest.raises(StateStoreMigratedError, match="Ask anew"):
        list(iterator)


def test_pages_that_have_been_read_are_let_go(opened: OpenStore) -> None:
    """Else all first pages stay until the last pair."""
    thread = OwnThread(opened, ManualClock(0))
    answers = [thread.answer(partition) for partition in range(2)]
    pages = [answer.page for answer in answers]
    iterator = PagedPairs([(thread, each) for each in answers]).iterate(lambda items: items)
    answers.clear()
    for _ in range(150):
        next(iterator)
    assert gc.get_referrers(pages[0]) == [pages]
    iterator.close()


class Hanging:
    """An instance that does not come back from being told that nobody wants the rest, or fails.

    Args:
        may_end: when it does come back.
    """

    def __init__(self, may_end: threading.Event) -> None:
        self._may_end = may_end
        self.told: list[str] = []

    def ask(self, question: AskStore, subtopology: int | None) -> Sequence[TaskAnswer]:
        raise AssertionError("Nobody asks.")

    def next_page(self, cursor: str, page_number: int, page_bytes: int) -> NextPage:
        raise StateStoreMigratedError("It is gone.")

    def close_cursor(self, cursor: str) -> None:
        self.told.append(cursor)
        assert self._may_end.wait(30)
        raise InvalidStateStoreError("What is this?")


def test_letting_go_waits_for_nobody_and_raises_nothing() -> None:
    """Nobody waits for an instance that hangs; all others are told; an error stays what it is."""
    may_end = threading.Event()
    place = Hanging(may_end)
    said = [(place, TaskAnswer(0, "RUNNING", (), "a")), (place, TaskAnswer(1, "RUNNING", (), "b"))]
    with PagedPairs(said).iterate(lambda items: items) as pairs:
        pass
    with pytest.raises(StopIteration):
        next(pairs)
    with pytest.raises(StateStoreMigratedError, match="It is gone"):
        next(PagedPairs(said).iterate(lambda items: items))
    assert not may_end.is_set()
    may_end.set()
    wait_for(lambda: sorted(place.told) == ["a", "a", "b", "b"], 10, "all were told")
