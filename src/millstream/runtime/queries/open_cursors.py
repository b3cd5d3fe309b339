"""Cursors for query results that are fetched page by page."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from millstream.clock import Clock
from millstream.errors import StateStoreMigratedError, StateStoreNotAvailableError
from millstream.runtime.queries.query_messages import NextPage, Page
from millstream.state.opening.open_store import OpenStore
from millstream.state.storage.bytes_store import ByteItems

#: How long a cursor may be idle.
IDLE_TIMEOUT_MS: Final = 30_000
#: The maximum number of open cursors of a thread. Each holds a snapshot of its store.
MAX_CURSORS: Final = 200
#: How long a cursor must be idle before a new one may evict it.
EVICTABLE_AFTER_MS: Final = 15_000
#: The time limit of a page, since the thread does nothing else during that time.
PAGE_TIME_MS: Final = 5
#: The number of copied pairs above which no more results are copied.
MAX_COPIED_PAIRS: Final = 1_000_000
#: The number of finished cursors that keep their last page, so that it can be returned again.
MAX_FINISHED: Final = 20


@dataclass
class _Cursor:
    opened: OpenStore
    items: ByteItems
    used_ms: int
    ahead: tuple[bytes, bytes]
    copied: int
    number: int = 0
    page: Page | None = None


@dataclass
class _FinishedCursor:
    number: int
    page: Page
    used_ms: int


class OpenCursors:
    """Cursors for the rest of results that are longer than one page. Not thread-safe.

    A cursor reads the store as it was at the time of the query: RocksDB keeps a snapshot, and
    uncommitted writes in memory and in-memory stores are copied. The size of a page is in bytes of
    keys and values.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: OrderedDict[str, _Cursor] = OrderedDict()
        self._finished: OrderedDict[str, _FinishedCursor] = OrderedDict()
        self._copied = 0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_empty(self) -> bool:
        return not self._open and not self._finished

    def begin(
        self, opened: OpenStore, items: ByteItems, page_bytes: int, page_ms: float = PAGE_TIME_MS
    ) -> tuple[Page, str | None]:
        """Return the first page and a cursor for the rest; None if there is no rest.

        Raises StateStoreNotAvailableError if there are too many open cursors.
        """
        page, ahead = self._page(items, None, page_bytes, page_ms)
        if ahead is None:
            return page, None
        try:
            self._reserve(copy=not opened.persistent)
        except StateStoreNotAvailableError:
            items.close()
            raise
        copied = 0
        if not opened.persistent:
            # An in-memory store may change during iteration.
            rest = list(items)
            items, copied = (pair for pair in rest), len(rest)
        name = secrets.token_hex(16)
        self._open[name] = _Cursor(opened, items, self._clock.monotonic_ms(), ahead, copied)
        self._copied += copied
        return page, name

    def next_page(self, name: str, number: int, page_bytes: int) -> NextPage:
        """Return the next page; the latest page may be requested again.

        Page 1 is the page after the one that `begin` returned. A size of 0 returns an empty page
        and only keeps the cursor open.

        Raises:
            StateStoreMigratedError: the cursor is unknown, or the page is neither the latest
                returned page nor the next.
        """
        ended = self._finished.get(name)
        if ended is not None and ended.number == number:
            return NextPage(ended.page, None)
        cursor = self._open.get(name)
        if cursor is None or not cursor.opened.store.is_open:
            self.close(name)
            raise StateStoreMigratedError(
                "The rest of this result is no longer available: its task has moved or ended, or "
                f"the iterator was idle for {IDLE_TIMEOUT_MS // 1_000} s. Repeat the query."
            )
        cursor.used_ms = self._clock.monotonic_ms()
        self._open.move_to_end(name)
        if page_bytes == 0:
            return NextPage((), name)
        if number == cursor.number and cursor.page is not None:
            return NextPage(cursor.page, name)
        if number != cursor.number + 1:
            self.close(name)
            raise StateStoreMigratedError(
                f"Page {number} of this result was requested, but the last returned page was "
                f"{cursor.number}: the pages between them are missing. Repeat the query."
            )
        return self._fetch_page(name, cursor, page_bytes)

    def close(self, name: str) -> None:
        """Close a cursor. Does nothing if it is already closed."""
        self._finished.pop(name, None)
        if name in self._open:
            self._remove(name)

    def close_idle(self) -> None:
        """Close cursors that have been idle for too long or have a closed store."""
        latest_ms = self._clock.monotonic_ms() - IDLE_TIMEOUT_MS
        for name, cursor in list(self._open.items()):
            if cursor.used_ms < latest_ms or not cursor.opened.store.is_open:
                self._remove(name)
        for name, ended in list(self._finished.items()):
            if ended.used_ms < latest_ms:
                del self._finished[name]

    def close_all(self) -> None:
        self._finished.clear()
        for name in list(self._open):
            self._remove(name)

    def _fetch_page(self, name: str, cursor: _Cursor, page_bytes: int) -> NextPage:
        try:
            page, ahead = self._page(cursor.items, cursor.ahead, page_bytes)
        except BaseException:
            # A failed cursor has no next page, and must not appear finished.
            self._remove(name)
            raise
        cursor.number += 1
        cursor.page = page
        if ahead is not None:
            cursor.ahead = ahead
            return NextPage(page, name)
        self._remove(name)
        if len(self._finished) >= MAX_FINISHED:
            self._finished.popitem(last=False)
        self._finished[name] = _FinishedCursor(cursor.number, page, cursor.used_ms)
        return NextPage(page, None)

    def _reserve(self, *, copy: bool) -> None:
        """Make room for a cursor, or raise an error.

        Active cursors are not evicted, because their queries would only be repeated.
        """
        if len(self._open) >= MAX_CURSORS:
            name, longest = next(iter(self._open.items()))
            if longest.used_ms < self._clock.monotonic_ms() - EVICTABLE_AFTER_MS:
                self._remove(name)
        if len(self._open) >= MAX_CURSORS:
            raise StateStoreNotAvailableError(
                f"This stream thread has {MAX_CURSORS} open iterators. Repeat the query in a "
                "moment, and close iterators that are not read to the end."
            )
        if copy and self._copied >= MAX_COPIED_PAIRS:
            raise StateStoreNotAvailableError(
                f"The open iterators of this stream thread hold {self._copied} pairs that were "
                "copied from in-memory stores. Repeat the query in a moment, and close iterators "
                "that are not read to the end."
            )

    def _page(
        self,
        items: ByteItems,
        first: tuple[bytes, bytes] | None,
        page_bytes: int,
        page_ms: float = PAGE_TIME_MS,
    ) -> tuple[Page, tuple[bytes, bytes] | None]:
        """Return pairs of about `page_bytes` bytes, and the pair after them, if any."""
        page = [] if first is None else [first]
        size = 0 if first is None else len(first[0]) + len(first[1])
        monotonic_ms = self._clock.monotonic_ms
        latest_ms = monotonic_ms() + page_ms
        for pair in items:
            if page and (size >= page_bytes or monotonic_ms() > latest_ms):
                return tuple(page), pair
            page.append(pair)
            size += len(pair[0]) + len(pair[1])
        return tuple(page), None

    def _remove(self, name: str) -> None:
        cursor = self._open.pop(name)
        self._copied -= cursor.copied
        cursor.items.close()
