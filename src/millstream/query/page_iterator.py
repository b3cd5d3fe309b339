"""Iterators over paged query results."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

from millstream.clock import Clock, SystemClock
from millstream.errors import StreamsError
from millstream.query.local_threads import QuerySource
from millstream.runtime.queries.query_messages import Page, TaskQueryResult
from millstream.state.queries.codec import Pairs

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: The keepalive interval of cursors, which expire after 30 s.
_KEEPALIVE_INTERVAL_MS: Final = 10_000
#: Limits the number of threads that close cursors concurrently.
_close_slots: Final = threading.BoundedSemaphore(16)


class StoreIterator(Generic[T]):
    """An iterator over the result of a range query.

    The iterator closes itself when exhausted, and can be used as a context manager. Close it if you
    stop earlier, because the stream thread keeps a snapshot of the store open for it. The snapshot
    expires when the iterator has been idle for 30 seconds. The result is the state of the store at
    the time of the query.

    Args:
        close: discards the part of the result that has not been fetched.

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
        """Return the next item.

        Raises:
            StateStoreMigratedError: the rest of the result is no longer available, because the
                store's task migrated or ended.
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
        """Discard the part of the result that has not been fetched. Idempotent.

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

    def __exit__(self, *_: object) -> None:
        self.close()


class PagedPairs:
    """The pairs of several tasks, one task after the other, fetched page by page.

    Iteration keeps the cursors of all tasks alive, even if the pairs of one task take a long
    time. Each page is released once its pairs have been returned.
    """

    def __init__(
        self,
        answers: Sequence[tuple[QuerySource, TaskQueryResult]],
        page_bytes: int = 256 * 1024,
        clock: Clock | None = None,
    ) -> None:
        self._page_bytes = page_bytes
        self._clock = clock or SystemClock()
        self._cursors: dict[int, tuple[QuerySource, str]] = {
            index: (source, answer.cursor)
            for index, (source, answer) in enumerate(answers)
            if answer.cursor is not None
        }
        self._pages = [answer.page for _, answer in answers]
        self._next_keepalive_ms = self._clock.monotonic_ms() + _KEEPALIVE_INTERVAL_MS

    def iterate(self, finish: Callable[[Pairs], Any]) -> StoreIterator[Any]:
        return StoreIterator(iter(finish(self._pairs())), self.close)

    def close(self) -> None:
        """Discard the pages that have not been fetched, in the background. Never raises."""
        cursors, self._cursors = list(self._cursors.values()), {}
        # If too many threads are already closing cursors, these cursors are left to expire.
        if cursors and _close_slots.acquire(blocking=False):
            threading.Thread(
                target=_close_all, args=(cursors,), name="millstream-close", daemon=True
            ).start()

    def _pairs(self) -> Iterator[tuple[bytes, bytes]]:
        for index in range(len(self._pages)):
            page, self._pages[index] = self._pages[index], ()
            yield from self._with_keepalive(page)
            number = 0
            while index in self._cursors:
                source, cursor = self._cursors[index]
                number += 1
                more = source.next_page(cursor, number, self._page_bytes)
                if more.cursor is None:
                    del self._cursors[index]
                else:
                    self._cursors[index] = (source, more.cursor)
                yield from self._with_keepalive(more.page)

    def _with_keepalive(self, page: Page) -> Iterator[tuple[bytes, bytes]]:
        for pair in page:
            if self._cursors and self._clock.monotonic_ms() >= self._next_keepalive_ms:
                self._send_keepalive()
            yield pair

    def _send_keepalive(self) -> None:
        for source, cursor in list(self._cursors.values()):
            try:
                source.next_page(cursor, 0, 0)
            except StreamsError as error:
                # The fetch of the next page will raise the error.
                logger.debug("A query cursor could not be kept alive: %s", error)
        self._next_keepalive_ms = self._clock.monotonic_ms() + _KEEPALIVE_INTERVAL_MS


def _close_all(cursors: Sequence[tuple[QuerySource, str]]) -> None:
    try:
        for source, cursor in cursors:
            try:
                source.close_cursor(cursor)
            except Exception as error:
                # The cursor will expire.
                logger.debug("A query cursor could not be closed: %s", error)
    finally:
        _close_slots.release()
