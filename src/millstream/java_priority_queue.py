"""A port of Java's `PriorityQueue` that breaks ties in the same order.

When several input partitions have the same head timestamp, Kafka Streams takes the one at the top
of its `java.util.PriorityQueue`; when two standbys of a task have to move, the one at the top moves
first. The sift algorithm determines that order, and `heapq` sifts differently. This module sifts
as Java does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class JavaPriorityQueue(Generic[T]):
    """A binary heap that breaks ties as `java.util.PriorityQueue` does.

    The element with the smallest `key` comes first. `key` is called once per element, by `offer`:
    the priority must not change while the element is in the queue.
    """

    def __init__(self, key: Callable[[T], Any]) -> None:
        self._key = key
        self._heap: list[tuple[Any, T]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def offer(self, element: T) -> None:
        heap, priority = self._heap, self._key(element)
        added = (priority, element)
        heap.append(added)
        index = len(heap) - 1
        while index > 0:
            parent = (index - 1) >> 1
            above = heap[parent]
            if priority >= above[0]:
                break
            heap[index] = above
            index = parent
        heap[index] = added

    def peek(self) -> T:
        """Return the first element without removing it. The queue must not be empty."""
        return self._heap[0][1]

    def poll(self) -> T:
        """Remove and return the first element. The queue must not be empty."""
        heap = self._heap
        first = heap[0]
        last = heap.pop()
        size = len(heap)
        if size:
            priority = last[0]
            index, half = 0, size >> 1
            while index < half:
                child = 2 * index + 1
                below = heap[child]
                if child + 1 < size and below[0] > heap[child + 1][0]:
                    child += 1
                    below = heap[child]
                if priority <= below[0]:
                    break
                heap[index] = below
                index = child
            heap[index] = last
        return first[1]

    def clear(self) -> None:
        self._heap.clear()
