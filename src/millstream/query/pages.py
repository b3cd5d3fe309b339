"""Iterating over answers that come in pages."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

from millstream.clock import Clock, SystemClock
from millstream.errors import StreamsError
from millstream.query.asking import Answering
from millstream.runtime.queries.questions import Page, TaskAnswer
from millstream.state.queries.codec import Pairs

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: How often the rest of answers is kept from being dropped, which is after 30 s.
_KEEP_EVERY_MS: Final = 10_000
#: How many threads let go of the rest of answers at a time.
_closing: Final = threading.BoundedSemaphore(16)


class StoreIterator(Generic[T]):
    """What a query of a range gives: its pairs, one after the other.

    A context manager, and closes itself when it is exhausted. One that is abandoned before should
    be closed: the stream thread holds a snapshot of the store for it, which it drops when the
    iterator has stood still for 30 seconds. What comes is the store as it was when it was asked.

    Args:
        items: the pairs.
        close: lets go of what has not been fetched.

    Example:
        >>> with StoreIterator(iter([("ann", 3), ("bob", 1)])) as found:
        ...     next(found)
        ('ann', 3)
    """

    def __init__(self, items: Iterator[T], close: Callable[[], None] = lambda: None) -> None:
        self._items = items
        self._close = close
        self._closed = False

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        """The next pair.

        Raises:
            StateStoreMigratedError: the rest is gone, since the store's task has moved or ended.
        """
        if self._closed:
            raise StopIteration
        try:
            return next(self._items)
        except StopIteration:
            self._closed = True
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of what has not been fetched. Does nothing the second time.

        Example:
            >>> found = StoreIterator(iter([("ann", 3)]))
            >>> found.close()
            >>> list(found)
            []
        """
        if not self._closed:
            self._closed = True
            self._close()

    def __enter__(self) -> StoreIterator[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class PagedPairs:
    """The pairs of some tasks, one task after the other, fetched page by page.

    While they are iterated the rest of all tasks is kept from being dropped, also where one task
    takes long. Pages are let go of as soon as they have been given.

    Args:
        answers: who gave them, and their first pages.
        page_bytes: of keys and values in a page.
        clock: time.
    """

    def __init__(
        self,
        answers: Sequence[tuple[Answering, TaskAnswer]],
        page_bytes: int = 256 * 1024,
        clock: Clock | None = None,
    ) -> None:
        self._page_bytes = page_bytes
        self._clock = clock or SystemClock()
        self._cursors: dict[int, tuple[Answering, str]] = {
            index: (source, answer.cursor)
            for index, (source, answer) in enumerate(answers)
            if answer.cursor is not None
        }
        self._pages = [answer.page for _, answer in answers]
        self._keep_at_ms = self._clock.monotonic_ms() + _KEEP_EVERY_MS

    def iterate(self, finish: Callable[[Pairs], Any]) -> StoreIterator[Any]:
        """The pairs as objects."""
        return StoreIterator(iter(finish(self._pairs())), self.close)

    def close(self) -> None:
        """Let go of what has not been fetched: nobody waits for that, and it raises nothing."""
        cursors, self._cursors = list(self._cursors.values()), {}
        # What is not closed is dropped in a while, so it does not matter if this cannot be done.
        if cursors and _closing.acquire(blocking=False):
            threading.Thread(
                target=_close_all, args=(cursors,), name="millstream-close", daemon=True
            ).start()

    def _pairs(self) -> Iterator[tuple[bytes, bytes]]:
        for index in range(len(self._pages)):
            page, self._pages[index] = self._pages[index], ()
            yield from self._kept(page)
            number = 0
            while index in self._cursors:
                source, cursor = self._cursors[index]
                number += 1
                more = source.next_page(cursor, number, self._page_bytes)
                if more.cursor is None:
                    del self._cursors[index]
                else:
                    self._cursors[index] = (source, more.cursor)
                yield from self._kept(more.page)

    def _kept(self, page: Page) -> Iterator[tuple[bytes, bytes]]:
        for pair in page:
            if self._cursors and self._clock.monotonic_ms() >= self._keep_at_ms:
                self._keep()
            yield pair

    def _keep(self) -> None:
        for source, cursor in list(self._cursors.values()):
            try:
                source.next_page(cursor, 0, 0)
            except StreamsError as error:
                # Whoever asks for its next page is told.
                logger.debug("the rest of an answer could not be kept: %s", error)
        self._keep_at_ms = self._clock.monotonic_ms() + _KEEP_EVERY_MS


def _close_all(cursors: Sequence[tuple[Answering, str]]) -> None:
    try:
        for source, cursor in cursors:
            try:
                source.close_cursor(cursor)
            except Exception as error:
                # It is dropped in a while.
                logger.debug("the rest of an answer could not be let go of: %s", error)
    finally:
        _closing.release()
