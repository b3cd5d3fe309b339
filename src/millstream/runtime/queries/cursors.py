"""Long answers that are fetched page by page."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from millstream.clock import Clock
from millstream.errors import StateStoreMigratedError, StateStoreNotAvailableError
from millstream.runtime.queries.questions import NextPage, Page
from millstream.state.opening.open_store import OpenStore
from millstream.state.storage.bytes_store import ByteItems

#: How long nobody may ask for the next page.
IDLE_MS: Final = 30_000
#: How many long answers a thread has open: each holds a snapshot of its store.
MOST_CURSORS: Final = 200
#: After how long without a question an answer makes room for a new one, if there are too many.
SLOW_MS: Final = 15_000
#: A page ends after so long with what it has, since the thread does nothing else meanwhile.
PAGE_MS: Final = 5
#: How many copied pairs may wait before no further answer is copied.
MOST_COPIED: Final = 1_000_000
#: Of how many answers that have come to their end the last page is kept, to be given again.
MOST_ENDED: Final = 20


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
class _Ended:
    number: int
    page: Page
    used_ms: int


class Cursors:
    """The rest of answers that were too long for one page.

    What is behind one is the store as it was when it was asked: RocksDB keeps a snapshot, and of
    what lies in memory above it, or of a store in memory, the rest is copied here.

    Not for several threads.

    Args:
        clock: time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: OrderedDict[str, _Cursor] = OrderedDict()
        self._ended: OrderedDict[str, _Ended] = OrderedDict()
        self._copied = 0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def are_none(self) -> bool:
        """Whether nothing is kept."""
        return not self._open and not self._ended

    def begin(
        self, opened: OpenStore, items: ByteItems, page_bytes: int, page_ms: float = PAGE_MS
    ) -> tuple[Page, str | None]:
        """The first page, and by what the rest is known; None if that is all.

        Args:
            opened: the store.
            items: what was read.
            page_bytes: of keys and values in a page.
            page_ms: how long it may take.

        Raises:
            StateStoreNotAvailableError: too many answers wait for their next pages already.
        """
        page, ahead = self._page(items, None, page_bytes, page_ms)
        if ahead is None:
            return page, None
        try:
            self._make_room(copy=not opened.persistent)
        except StateStoreNotAvailableError:
            items.close()
            raise
        copied = 0
        if not opened.persistent:
            # A store in memory changes under whoever reads it.
            rest = list(items)
            items, copied = _each(rest), len(rest)
        name = secrets.token_hex(16)
        self._open[name] = _Cursor(opened, items, self._clock.monotonic_ms(), ahead, copied)
        self._copied += copied
        return page, name

    def next_page(self, name: str, number: int, page_bytes: int) -> NextPage:
        """More of an answer; the page that was given last is given again.

        Args:
            name: by what the answer is known.
            number: of the page; the first behind that of `begin` is 1.
            page_bytes: of keys and values in it; 0 for none, which only keeps the answer.

        Raises:
            StateStoreMigratedError: the answer is not known here any more, or the page is neither
                the last one that was given nor the next.
        """
        ended = self._ended.get(name)
        if ended is not None and ended.number == number:
            return NextPage(ended.page, None)
        cursor = self._open.get(name)
        if cursor is None or not cursor.opened.store.is_open:
            self.close(name)
            raise StateStoreMigratedError(
                "The rest of this answer is gone: its task has moved or ended, or nobody has asked "
                f"for more for {IDLE_MS // 1_000} s. Ask anew."
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
                f"Page {number} of this answer was asked for, and the last one given was "
                f"{cursor.number}: those between are gone. Ask anew."
            )
        return self._go_on(name, cursor, page_bytes)

    def close(self, name: str) -> None:
        """Forget an answer. Does nothing the second time."""
        self._ended.pop(name, None)
        if name in self._open:
            self._drop(name)

    def drop_idle(self) -> None:
        """Forget answers for which nobody has asked for long, or whose store is closed."""
        latest_ms = self._clock.monotonic_ms() - IDLE_MS
        for name, cursor in list(self._open.items()):
            if cursor.used_ms < latest_ms or not cursor.opened.store.is_open:
                self._drop(name)
        for name, ended in list(self._ended.items()):
            if ended.used_ms < latest_ms:
                del self._ended[name]

    def close_all(self) -> None:
        """Forget them all."""
        self._ended.clear()
        for name in list(self._open):
            self._drop(name)

    def _go_on(self, name: str, cursor: _Cursor, page_bytes: int) -> NextPage:
        try:
            page, ahead = self._page(cursor.items, cursor.ahead, page_bytes)
        except BaseException:
            # What has failed half way has no next page, and must not look as if it had ended.
            self._drop(name)
            raise
        cursor.number += 1
        cursor.page = page
        if ahead is not None:
            cursor.ahead = ahead
            return NextPage(page, name)
        self._drop(name)
        if len(self._ended) >= MOST_ENDED:
            self._ended.popitem(last=False)
        self._ended[name] = _Ended(cursor.number, page, cursor.used_ms)
        return NextPage(page, None)

    def _make_room(self, *, copy: bool) -> None:
        """Those who read on are not put off for somebody who begins: that would only make them ask
        anew."""
        if len(self._open) >= MOST_CURSORS:
            name, longest = next(iter(self._open.items()))
            if longest.used_ms < self._clock.monotonic_ms() - SLOW_MS:
                self._drop(name)
        if len(self._open) >= MOST_CURSORS:
            raise StateStoreNotAvailableError(
                f"{MOST_CURSORS} answers of this stream thread are being fetched page by page. "
                "Ask again in a moment, and close iterators that are left early."
            )
        if copy and self._copied >= MOST_COPIED:
            raise StateStoreNotAvailableError(
                f"{self._copied} pairs of stores in memory wait to be fetched from this stream "
                "thread. Ask again in a moment, and close iterators that are left early."
            )

    def _page(
        self,
        items: ByteItems,
        first: tuple[bytes, bytes] | None,
        page_bytes: int,
        page_ms: float = PAGE_MS,
    ) -> tuple[Page, tuple[bytes, bytes] | None]:
        """Pairs of about so many bytes, and the one behind them; None if there are no more.

        Args:
            items: the pairs.
            first: one that comes before them.
            page_bytes: after how many bytes the page ends.
            page_ms: after how long.
        """
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

    def _drop(self, name: str) -> None:
        cursor = self._open.pop(name)
        self._copied -= cursor.copied
        cursor.items.close()


def _each(pairs: list[tuple[bytes, bytes]]) -> ByteItems:
    yield from pairs
