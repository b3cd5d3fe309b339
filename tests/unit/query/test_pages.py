"""Goal: an answer of many pages can be read to its end at any speed, in bounded memory, and
closing it disturbs no other reader."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.tasks.standalone_store import open_standalone_store
from support.waiting import wait_for

from millstream import InvalidStateStoreError, StateStoreMigratedError, Stores
from millstream.clock import ManualClock
from millstream.query.page_iterator import PagedPairs
from millstream.runtime.queries.open_cursors import IDLE_TIMEOUT_MS, OpenCursors
from millstream.runtime.queries.query_messages import NextPage, QueryStore, TaskQueryResult
from millstream.serdes import LONG, STRING
from millstream.state.opening.open_store import OpenStore
from millstream.state.queries.read_requests import ReadKind, ReadRequest

_PAGE_BYTES = 100


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenStore]:
    supplier = Stores.in_memory_key_value("s")
    store, _ = open_standalone_store(
        Stores.key_value_builder(supplier, STRING, LONG), directory=tmp_path
    )
    store.store.put_all((f"k{number:03}", number) for number in range(100))
    store.base.commit(None)
    yield store
    store.close()


class LocalThread:
    """A thread with several tasks that share a store.

    Args:
        opened: the store.
        clock: decides when idle cursors are dropped.
    """

    def __init__(self, opened: OpenStore, clock: ManualClock) -> None:
        self._opened = opened
        self.cursors = OpenCursors(clock)

    def answer(self, partition: int) -> TaskQueryResult:
        assert self._opened.read is not None
        items = self._opened.read(ReadRequest(ReadKind.RANGE))
        assert items is not None
        page, cursor = self.cursors.begin(self._opened, items, _PAGE_BYTES)
        return TaskQueryResult(partition, "RUNNING", page, cursor)

    def query(self, question: QueryStore, subtopology: int | None) -> Sequence[TaskQueryResult]:
        raise AssertionError("There are no queries.")

    def next_page(self, cursor: str, page_number: int, page_bytes: int) -> NextPage:
        self.cursors.close_idle()
        return self.cursors.next_page(cursor, page_number, page_bytes)

    def close_cursor(self, cursor: str) -> None:
        self.cursors.close(cursor)


def paged(opened: OpenStore) -> tuple[PagedPairs, LocalThread, ManualClock]:
    clock = ManualClock(0)
    thread = LocalThread(opened, clock)
    results = [(thread, thread.answer(partition)) for partition in range(2)]
    return PagedPairs(results, _PAGE_BYTES, clock), thread, clock


def test_a_slow_reader_reaches_the_end(opened: OpenStore) -> None:
    """Cursors stay open during a read, even between partitions and pages."""
    pairs, thread, clock = paged(opened)
    found = []
    for key, _ in pairs.iterate(lambda items: items):
        found.append(key)
        clock.advance(IDLE_TIMEOUT_MS // 3)
    assert found == [f"k{number:03}".encode() for number in range(100)] * 2
    assert len(thread.cursors) == 0


def test_an_idle_reader_gets_an_error(opened: OpenStore) -> None:
    """The remaining pages are gone, which must not look like the end."""
    pairs, _, clock = paged(opened)
    iterator = pairs.iterate(lambda items: items)
    next(iterator)
    clock.advance(IDLE_TIMEOUT_MS + 1)
    with pytest.raises(StateStoreMigratedError, match="Repeat the query"):
        list(iterator)


def test_pages_are_released_after_reading(opened: OpenStore) -> None:
    """Otherwise all first pages stay in memory until the last pair."""
    thread = LocalThread(opened, ManualClock(0))
    answers = [thread.answer(partition) for partition in range(2)]
    pages = [answer.page for answer in answers]
    iterator = PagedPairs([(thread, each) for each in answers]).iterate(lambda items: items)
    answers.clear()
    for _ in range(150):
        next(iterator)
    assert gc.get_referrers(pages[0]) == [pages]
    iterator.close()


class HangingSource:
    """An instance whose `close_cursor` hangs, and then fails.

    Args:
        may_end: set when it may fail.
    """

    def __init__(self, may_end: threading.Event) -> None:
        self._may_end = may_end
        self.closed_cursors: list[str] = []

    def query(self, question: QueryStore, subtopology: int | None) -> Sequence[TaskQueryResult]:
        raise AssertionError("There are no queries.")

    def next_page(self, cursor: str, page_number: int, page_bytes: int) -> NextPage:
        raise StateStoreMigratedError("It is gone.")

    def close_cursor(self, cursor: str) -> None:
        self.closed_cursors.append(cursor)
        assert self._may_end.wait(30)
        raise InvalidStateStoreError("Unknown cursor.")


def test_closing_waits_for_no_instance_and_raises_no_error() -> None:
    """A hung instance is not waited for; all others are notified; an earlier error is not
    replaced."""
    may_end = threading.Event()
    place = HangingSource(may_end)
    results = [
        (place, TaskQueryResult(0, "RUNNING", (), "a")),
        (place, TaskQueryResult(1, "RUNNING", (), "b")),
    ]
    with PagedPairs(results).iterate(lambda items: items) as pairs:
        pass
    with pytest.raises(StopIteration):
        next(pairs)
    with pytest.raises(StateStoreMigratedError, match="It is gone"):
        next(PagedPairs(results).iterate(lambda items: items))
    assert not may_end.is_set()
    may_end.set()
    wait_for(
        lambda: sorted(place.closed_cursors) == ["a", "a", "b", "b"], 10, "all cursors are closed"
    )
