"""Tasks that are gathered until there are enough of them, or the first has waited long enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from millstream.errors import ConfigError

T = TypeVar("T")


class BatchingWindow(Generic[T]):
    """Gathers items, and hands them out as soon as there are `capacity`, or the first is due.

    Holds fewer than `capacity` items. Decaton's `BatchingProcessor` lets one more come before it
    hands out, and counts the wait from its last flush instead of from the first item.

    Args:
        capacity: how many items are handed out together at most, from 1.
        linger_ms: how long the first of them waits at most, in milliseconds, from 0.

    Raises:
        ConfigError: one of them is out of bounds.

    Example:
        >>> from millstream.subscriptions.gathering.batching import BatchingWindow
        >>> window = BatchingWindow(capacity=2, linger_ms=100)
        >>> window.add("a", now_ms=0), window.add("b", now_ms=10)
        (None, ['a', 'b'])
        >>> window.add_all("cde", now_ms=20)
        [['c', 'd']]
        >>> window.next_due_ms(), window.due(now_ms=119), window.due(now_ms=120)
        (120, None, ['e'])
    """

    __slots__ = ("_capacity", "_items", "_linger_ms", "_since_ms")

    def __init__(self, *, capacity: int, linger_ms: int) -> None:
        self._items: list[T] = []
        self._since_ms = 0
        self._capacity = 1
        self._linger_ms = 0
        self.change(capacity=capacity, linger_ms=linger_ms)

    def __len__(self) -> int:
        return len(self._items)

    def change(self, *, capacity: int, linger_ms: int) -> None:
        """Other bounds. More items than a smaller capacity are handed out by the next call.

        Raises:
            ConfigError: one of them is out of bounds; they stay as they were.
        """
        for name, value, least in (("capacity", capacity, 1), ("linger_ms", linger_ms, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(
                    f"A batching window got {name}={value!r}, but it must be an int from {least}."
                )
        self._capacity = capacity
        self._linger_ms = linger_ms

    def add(self, item: T, now_ms: int) -> list[T] | None:
        """One more; all that is here if it makes them enough."""
        if not self._items:
            self._since_ms = now_ms
        self._items.append(item)
        return self.take() if len(self._items) >= self._capacity else None

    def add_all(self, items: Sequence[T], now_ms: int) -> list[list[T]]:
        """Some more; the batches that are full by them, in order."""
        if not self._items:
            self._since_ms = now_ms
        waiting = [*self._items, *items]
        whole = len(waiting) - len(waiting) % self._capacity
        full = [
            waiting[start : start + self._capacity] for start in range(0, whole, self._capacity)
        ]
        if full:
            self._since_ms = now_ms
        self._items = waiting[whole:]
        return full

    def due(self, now_ms: int) -> list[T] | None:
        """All that is here, if the first has waited long enough or they are too many."""
        due_ms = self.next_due_ms()
        return None if due_ms is None or due_ms > now_ms else self.take()

    def next_due_ms(self) -> int | None:
        """The time from which on `due` hands out, on the clock of `add`; None without items."""
        if not self._items:
            return None
        enough = len(self._items) >= self._capacity
        return self._since_ms if enough else self._since_ms + self._linger_ms

    def take(self) -> list[T]:
        """All that is here, due or not: for draining, or for giving up."""
        taken, self._items = self._items, []
        return taken
