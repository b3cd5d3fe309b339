"""Long results are returned in pages that show the store at one moment, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.tasks.standalone_store import open_standalone_store

from millstream import StateStoreMigratedError, StateStoreNotAvailableError, Stores
from millstream.runtime.queries.open_cursors import (
    EVICTABLE_AFTER_MS,
    IDLE_TIMEOUT_MS,
    MAX_CURSORS,
    MAX_FINISHED,
    PAGE_TIME_MS,
    OpenCursors,
)
from millstream.serdes import LONG, STRING
from millstream.state.opening.open_store import OpenStore
from millstream.state.queries.read_requests import ReadKind, ReadRequest, single_pair
from millstream.state.storage.bytes_store import ByteItems


class SettableClock:
    """A clock that only the test sets."""

    ms = 0

    def monotonic_ms(self) -> int:
        return self.ms


@pytest.fixture(params=["rocksdb", "in_memory"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    kind = Stores.in_memory_key_value if request.param == "in_memory" else None
    supplier = (kind or Stores.persistent_key_value)("s")
    store, _ = open_standalone_store(
        Stores.key_value_builder(supplier, STRING, LONG), directory=tmp_path
    )
    store.store.put_all((f"k{number:04}", number) for number in range(1_000))
    store.base.commit(None)
    yield store
    store.close()


def all_items(opened: OpenStore) -> ByteItems:
    assert opened.read is not None
    items = opened.read(ReadRequest(ReadKind.RANGE))
    assert items is not None
    return items


def make_cursors() -> tuple[OpenCursors, Any]:
    clock: Any = SettableClock()
    return OpenCursors(clock), clock


def test_pages_show_the_store_at_one_moment(opened: OpenStore) -> None:
    """Later writes and commits are not visible; no key is missing or repeated."""
    cursors, _ = make_cursors()
    page, cursor = cursors.begin(opened, all_items(opened), 1_300)
    assert len(page) == 100
    keys = [key for key, _ in page]
    for number in range(1_000):
        opened.store.put(f"k{number:04}", None)
    opened.store.put("k0500x", 1)
    opened.base.commit(None)
    number = 0
    while cursor is not None:
        number += 1
        result = cursors.next_page(cursor, number, 1_300)
        keys += [key for key, _ in result.page]
        cursor = result.cursor
    assert keys == [f"k{number:04}".encode() for number in range(1_000)]
    assert len(cursors) == 0


def test_single_page_leaves_no_cursor_open(opened: OpenStore) -> None:
    """A page can exceed its limit by one pair, so that there is always progress."""
    cursors, _ = make_cursors()
    page, cursor = cursors.begin(opened, all_items(opened), 1 << 20)
    assert (len(page), cursor, len(cursors)) == (1_000, None, 0)
    page, cursor = cursors.begin(opened, all_items(opened), 1)
    assert len(page) == 1
    assert cursor is not None


def test_idle_cursors_and_cursors_of_closed_stores_are_closed(opened: OpenStore) -> None:
    """After an idle time, when there are too many cursors, or with the store."""
    cursors, clock = make_cursors()
    _, cursor = cursors.begin(opened, all_items(opened), 1)
    assert cursor is not None
    clock.ms += IDLE_TIMEOUT_MS
    cursors.close_idle()
    assert cursors.next_page(cursor, 1, 1).cursor == cursor
    clock.ms += IDLE_TIMEOUT_MS + 1
    cursors.close_idle()
    with pytest.raises(StateStoreMigratedError, match="Repeat the query"):
        cursors.next_page(cursor, 1, 1)
    for _ in range(MAX_CURSORS):
        _, cursor = cursors.begin(opened, all_items(opened), 1)
    opened.close()
    assert cursor is not None
    with pytest.raises(StateStoreMigratedError):
        cursors.next_page(cursor, 1, 1)
    cursors.close_idle()
    assert len(cursors) == 0


def test_page_is_repeated_for_the_same_number(opened: OpenStore) -> None:
    """Also the last page. All pages except the current and the next one raise an error."""
    cursors, clock = make_cursors()
    first, cursor = cursors.begin(opened, all_items(opened), 6_000)
    assert cursor is not None
    second = cursors.next_page(cursor, 1, 6_000)
    assert cursors.next_page(cursor, 1, 6_000) == second
    assert cursors.next_page(cursor, 2, 0).page == ()
    last = cursors.next_page(cursor, 2, 60_000)
    assert last.cursor is None
    assert cursors.next_page(cursor, 2, 60_000) == last
    keys = [key for page in (first, second.page, last.page) for key, _ in page]
    assert keys == [f"k{number:04}".encode() for number in range(1_000)]
    assert (len(cursors), cursors.is_empty) == (0, False)
    with pytest.raises(StateStoreMigratedError):
        cursors.next_page(cursor, 3, 6_000)
    assert cursors.is_empty
    _, cursor = cursors.begin(opened, all_items(opened), 6_000)
    assert cursor is not None
    with pytest.raises(StateStoreMigratedError, match="Page 2 of this result"):
        cursors.next_page(cursor, 2, 6_000)
    assert len(cursors) == 0
    for _ in range(MAX_FINISHED + 1):
        _, cursor = cursors.begin(opened, all_items(opened), 6_000)
        assert cursor is not None
        assert cursors.next_page(cursor, 1, 60_000).cursor is None
    clock.ms += IDLE_TIMEOUT_MS + 1
    cursors.close_idle()
    assert cursors.is_empty


def test_result_that_fails_half_way_does_not_look_complete(
    opened: OpenStore,
) -> None:
    """A later request raises an error about the missing rest."""
    cursors, _ = make_cursors()

    def failing() -> ByteItems:
        yield b"a", b"1"
        yield b"b", b"2"
        yield b"c", b"3"
        raise ValueError("broken")

    if not opened.persistent:
        # The result is copied at once.
        with pytest.raises(ValueError, match="broken"):
            cursors.begin(opened, failing(), 1)
        assert cursors.is_empty
        return
    _, cursor = cursors.begin(opened, failing(), 1)
    assert cursor is not None
    cursors.next_page(cursor, 1, 1)
    with pytest.raises(ValueError, match="broken"):
        cursors.next_page(cursor, 2, 1)
    with pytest.raises(StateStoreMigratedError):
        cursors.next_page(cursor, 2, 1)


def test_new_cursors_do_not_close_cursors_in_use(opened: OpenStore) -> None:
    """If too many cursors are open, a new one is rejected, unless another one is idle."""
    cursors, clock = make_cursors()
    names = [cursors.begin(opened, all_items(opened), 12_000)[1] for _ in range(MAX_CURSORS)]
    with pytest.raises(StateStoreNotAvailableError, match="close iterators"):
        cursors.begin(opened, all_items(opened), 1)
    assert cursors.begin(opened, all_items(opened), 1 << 20)[1] is None
    clock.ms += EVICTABLE_AFTER_MS + 1
    for name in names[1:]:
        assert name is not None
        cursors.next_page(name, 1, 0)
    assert cursors.begin(opened, all_items(opened), 1)[1] is not None
    assert len(cursors) == MAX_CURSORS
    assert names[0] is not None
    with pytest.raises(StateStoreMigratedError):
        cursors.next_page(names[0], 1, 1)
    with pytest.raises(StateStoreNotAvailableError):
        cursors.begin(opened, all_items(opened), 1)


def test_page_that_is_full_with_the_last_pair_is_the_last(opened: OpenStore) -> None:
    """The only value of a key, however large, leaves no cursor open."""
    cursors, _ = make_cursors()
    value = bytes(300_000)
    assert cursors.begin(opened, single_pair(b"k", value), 256 * 1024) == (((b"k", value),), None)
    assert cursors.is_empty


def test_page_has_a_time_limit(opened: OpenStore) -> None:
    """Slow results are returned in small pages, and nothing is lost."""
    cursors, clock = make_cursors()

    def slow() -> ByteItems:
        for pair in all_items(opened):
            clock.ms += 2
            yield pair

    if opened.persistent:
        page, cursor = cursors.begin(opened, slow(), 1 << 20)
        pages = [page]
        while cursor is not None:
            result = cursors.next_page(cursor, len(pages), 1 << 20)
            pages.append(result.page)
            cursor = result.cursor
        assert max(len(page) for page in pages) <= PAGE_TIME_MS
        keys = [key for page in pages for key, _ in page]
        assert keys == [f"k{number:04}".encode() for number in range(1_000)]


def test_number_of_copied_pairs_is_limited(
    opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For stores in memory. Fetched and closed results do not count."""
    monkeypatch.setattr("millstream.runtime.queries.open_cursors.MAX_COPIED_PAIRS", 1_500)
    cursors, _ = make_cursors()
    names = [cursors.begin(opened, all_items(opened), 1)[1] for _ in range(2)]
    if opened.persistent:
        assert cursors.begin(opened, all_items(opened), 1)[1] is not None
        return
    with pytest.raises(StateStoreNotAvailableError, match="in-memory stores"):
        cursors.begin(opened, all_items(opened), 1)
    assert names[0] is not None
    cursors.close(names[0])
    assert cursors.begin(opened, all_items(opened), 1)[1] is not None
