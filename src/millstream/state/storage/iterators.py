"""Iteration over stores: the merge of two layers, and the public iterator."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar

from millstream.errors import InvalidStateStoreError
from millstream.state.storage.bytes_store import ByteItems

K = TypeVar("K")
V = TypeVar("V")


def merged(
    above: Sequence[tuple[bytes, bytes | None]],
    below: ByteItems,
    *,
    reverse: bool = False,
    sort_key_of: Callable[[bytes], Any] | None = None,
) -> ByteItems:
    """Merge the pairs of two layers in key order; the upper layer takes precedence.

    A value of None in the upper layer hides the key.

    Args:
        above: the pairs of the upper layer, each key once, in the direction of the scan.
        below: the pairs of the lower layer in the same range and direction. Closing the result also
            closes this generator.
    """
    return _merged(above, below, reverse, sort_key_of) if above else below


def _merged(
    above: Sequence[tuple[bytes, bytes | None]],
    below: ByteItems,
    reverse: bool,
    sort_key_of: Callable[[bytes], Any] | None,
) -> ByteItems:
    try:
        lower = next(below, None)
        for key, value in above:
            sort_key = key if sort_key_of is None else sort_key_of(key)
            while lower is not None and lower[0] != key:
                lower_sort_key = lower[0] if sort_key_of is None else sort_key_of(lower[0])
                if lower_sort_key < sort_key if reverse else lower_sort_key > sort_key:
                    break
                yield lower
                lower = next(below, None)
            if lower is not None and lower[0] == key:
                lower = next(below, None)
            if value is not None:
                yield key, value
        if lower is not None:
            yield lower
            yield from below
    finally:
        below.close()


class KeyValueIterator(Generic[K, V]):
    """An iterator over keys and values of a store, ordered by the serialized keys.

    It closes itself when exhausted. If you stop earlier, close it or use it as a context manager,
    because it holds a snapshot of the store. Only the thread that owns the store may use it.

    Example:
        >>> in_memory = Stores.in_memory_key_value("visits")
        >>> visits = MockProcessorContext().add_state_store(
        ...     Stores.key_value_builder(in_memory, STRING, LONG)
        ... )
        >>> visits.put_all([("ann", 3), ("bob", 1)])
        >>> with visits.all() as items:
        ...     items.peek_next_key()
        ...     next(items)
        'ann'
        ('ann', 3)
    """

    def __init__(
        self,
        store_name: str,
        items: Generator[tuple[K, V], None, None],
        is_open: Callable[[], bool],
    ) -> None:
        self._store_name = store_name
        self._items = items
        self._is_open = is_open
        self._peeked: list[tuple[K, V]] = []
        self._closed = False

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return self

    def __next__(self) -> tuple[K, V]:
        """Return the next pair.

        Raises:
            InvalidStateStoreError: the store was closed in the meantime.
        """
        if self._peeked:
            return self._peeked.pop()
        if not self._closed and not self._is_open():
            self.close()
            raise InvalidStateStoreError(
                f"Store {self._store_name} was closed while it was being iterated. "
                "Its task has probably moved; get the store again and restart the iteration."
            )
        try:
            return next(self._items)
        except StopIteration:
            self.close()
            raise

    def peek_next_key(self) -> K:
        """Return the next key without advancing.

        Raises:
            StopIteration: there are no more pairs.

        Example:
            >>> visits.put("ann", 3)
            >>> visits.all().peek_next_key()
            'ann'
        """
        if not self._peeked:
            self._peeked.append(next(self))
        return self._peeked[0][0]

    def close(self) -> None:
        """Release the snapshot. Idempotent.

        Example:
            >>> visits.put_all([("ann", 3), ("bob", 1)])
            >>> items = visits.all()
            >>> next(items)
            ('ann', 3)
            >>> items.close()
            >>> list(items)
            []
        """
        self._closed = True
        self._peeked.clear()
        self._items.close()

    def __enter__(self) -> KeyValueIterator[K, V]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
