"""Goal: a long answer comes in pages, as of one moment, with bounded memory, and is let go of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.tasks.opened_alone import opened_alone

from millstream import StateStoreMigratedError, StateStoreNotAvailableError, Stores
from millstream.runtime.queries.cursors import (
    IDLE_MS,
    MOST_CURSORS,
    MOST_ENDED,
    PAGE_MS,
    SLOW_MS,
    Cursors,
)
from millstream.serdes import LONG, STRING
from millstream.state.opening.open_store import OpenStore
from millstream.state.queries.reads import Read, ReadKind, one
from millstream.state.storage.bytes_store import ByteItems


class HandClock:
    """Stands still until it is set."""

    ms = 0

    def monotonic_ms(self) -> int:
        return self.ms


@pytest.fixture(params=["rocksdb", "in_memory"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    kind = Stores.in_memory_key_value if request.param == "in_memory" else None
    supplier = (kind or Stores.persistent_key_value)("s")
    store, _ = opened_alone(Stores.key_value_builder(supplier, STRING, LONG), directory=tmp_path)
    store.store.put_all((f"k{number:04}", number) for number in range(1_000))
    store.base.commit(None)
    yield store
    store.close()


def everything(opened: OpenStore) -> ByteItems:
    assert opened.reader is not None
    items = opened.reader.read(Read(ReadKind.RANGE))
    assert items is not None
    return items


def clocked() -> tuple[Cursors, Any]:
    clock: Any = HandClock()
    return Cursors(clock), clock


def test_pages_show_the_store_of_one_moment(opened: OpenStore) -> None:
    """What is written and committed between two pages is not seen; no key is left out or twice."""
    cursors, _ = clocked()
    page, cursor = cursors.begin(opened, everything(opened), 1_300)
    assert len(page) == 100
    keys = [key for key, _ in page]
    for number in range(1_000):
        opened.store.put(f"k{number:04}", None)
    opened.store.put("k0500x", 1)
    opened.base.commit(None)
    number = 0
    while cursor is not None:
        number += 1
        more = cursors.next_page(cursor, number, 1_300)
        keys += [key for key, _ in more.page]
        cursor = more.cursor
    assert keys == [f"k{number:04}".encode() for number in range(1_000)]
    assert len(cursors) == 0


def test_what_fits_into_a_page_leaves_nothing_open(opened: OpenStore) -> None:
    """A page may be exceeded by a pair, so that there is always some progress."""
    cursors, _ = clocked()
    page, cursor = cursors.begin(opened, everything(opened), 1 << 20)
    assert (len(page), cursor, len(cursors)) == (1_000, None, 0)
    page, cursor = cursors.begin(opened, everything(opened), 1)
    assert len(page) == 1
    assert cursor is not None


def test_idle_and_closed_answers_are_let_go(opened: OpenStore) -> None:
    """After a while without a question, when there are too many, or with the store."""
    cursors, clock = clocked()
    _, cursor = cursors.begin(opened, everything(opened), 1)
    assert cursor is not None
    clock.ms += IDLE_MS
    cursors.drop_idle()
    assert cursors.next_page(cursor, 1, 1).cursor == cursor
    clock.ms += IDLE_MS + 1
    cursors.drop_idle()
    with pytest.raises(StateStoreMigratedError, match="Ask anew"):
        cursors.next_page(cursor, 1, 1)
    for _ in range(MOST_CURSORS):
        _, cursor = cursors.begin(opened, everything(opened), 1)
    opened.close()
    assert cursor is not None
    with pytest.raises(StateStoreMigratedError):
        cursors.next_page(cursor, 1, 1)
    cursors.drop_idle()
    assert len(cursors) == 0


def test_a_page_is_given_again_for_the_same_number(opened: OpenStore) -> None:
    """Also the last one; any other page than that and the next one is gone, which is said."""
    cursors, clock = clocked()
    first, cursor = cursors.begin(opened, everything(opened), 6_000)
    assert cursor is not None
    second = cursors.next_page(cursor, 1, 6_000)
    assert cursors.next_page(cursor, 1, 6_000) == second
    assert cursors.next_page(cursor, 2, 0).page == ()
    last = cursors.next_page(cursor, 2, 60_000)
    assert last.cursor is None
    assert cursors.next_page(cursor, 2, 60_000) == last
    keys = [key for page in (first, second.page, last.page) for key, _ in page]
    assert keys == [f"k{number:04}".encode() for number in range(1_000)]
    assert (len(cursors), cursors.are_none) == (0, False)
    with pytest.raises(StateStoreMigratedError):
        cursors.next_page(cursor, 3, 6_000)
    assert cursors.are_none
    _, cursor = cursors.begin(opened, everything(opened), 6_000)
    assert cursor is not None
    with pytest.raises(StateStoreMigratedError, match="Page 2 of this answer"):
        cursors.next_page(cursor, 2, 6_000)
    assert len(cursors) == 0
    for _ in range(MOST_ENDED + 1):
        _, cursor = cursors.begin(opened, everything(opened), 6_000)
        assert cursor is not None
        assert cursors.next_page(cursor, 1, 60_000).cursor is None
    clock.ms += IDLE_MS + 1
    cursors.drop_idle()
    assert cursors.are_none


def test_an_answer_that_fails_half_way_does_not_look_as_if_it_had_ended(
    opened: OpenStore,
) -> None:
    """Whoever asks again hears that the rest is gone."""
    cursors, _ = clocked()

    def failing() -> ByteItems:
        yield b"a", b"1"
        yield b"b", b"2"
        yield b"c", b"3"
        raise ValueError("broken")

    if not opened.persistent:
        # It is copied at once.
        with pytest.raises(ValueError, match="broken"):
            cursors.begin(opened, failing(), 1)
        assert cursors.are_none
        return
    _, cursor = cursors.begin(opened, failing(), 1)
    assert cursor is not None
    cursors.next_page(cursor, 1, 1)
    with pytest.raises(ValueError, match="broken"):
        cursors.next_page(cursor, 2, 1)
    with pytest.raises(StateStoreMigratedError):
        cursors.next_page(cursor, 2, 1)


def test_who_begins_does_not_put_off_those_who_read_on(opened: OpenStore) -> None:
    """With too many answers open a new one is refused, unless one was not asked for in a while."""
    cursors, clock = clocked()
    names = [cursors.begin(opened, everything(opened), 12_000)[1] for _ in range(MOST_CURSORS)]
    with pytest.raises(StateStoreNotAvailableError, match="close iterators"):
        cursors.begin(opened, everything(opened), 1)
    assert cursors.begin(opened, everything(opened), 1 << 20)[1] is None
    clock.ms += SLOW_MS + 1
    for name in names[1:]:
        assert name is not None
        cursors.next_page(name, 1, 0)
    assert cursors.begin(opened, everything(opened), 1)[1] is not None
    assert len(cursors) == MOST_CURSORS
    assert names[0] is not None
    with pytest.raises(StateStoreMigratedError):
        cursors.next_page(names[0], 1, 1)
    with pytest.raises(StateStoreNotAvailableError):
        cursors.begin(opened, everything(opened), 1)


def test_a_page_that_is_full_with_its_last_pair_is_the_last(opened: OpenStore) -> None:
    """So the only value of a key, however large, leaves nothing open."""
    cursors, _ = clocked()
    value = bytes(300_000)
    assert cursors.begin(opened, one(b"k", value), 256 * 1024) == (((b"k", value),), None)
    assert cursors.are_none


def test_a_page_ends_after_a_while(opened: OpenStore) -> None:
    """What takes long to find comes in small pages, and nothing of it is lost."""
    cursors, clock = clocked()

    def slow() -> ByteItems:
        for pair in everything(opened):
            clock.ms += 2
            yield pair

    if opened.persistent:
        page, cursor = cursors.begin(opened, slow(), 1 << 20)
        pages = [page]
        while cursor is not None:
            more = cursors.next_page(cursor, len(pages), 1 << 20)
            pages.append(more.page)
            cursor = more.cursor
        assert max(len(page) for page in pages) <= PAGE_MS
        keys = [key for page in pages for key, _ in page]
        assert keys == [f"k{number:04}".encode() for number in range(1_000)]


def test_few_copies_wait_at_a_time(opened: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of stores in memory; what was fetched or closed makes room again."""
    monkeypatch.setattr("millstream.runtime.queries.cursors.MOST_COPIED", 1_500)
    cursors, _ = clocked()
    names = [cursors.begin(opened, everything(opened), 1)[1] for _ in range(2)]
    if opened.persistent:
        assert cursors.begin(opened, everything(opened), 1)[1] is not None
        return
    with pytest.raises(StateStoreNotAvailableError, match="in memory"):
        cursors.begin(opened, everything(opened), 1)
    assert names[0] is not None
    cursors.close(names[0])
    assert cursors.begin(opened, everything(opened), 1)[1] is not None
