"""Java's `PriorityQueue`, whose order among equals decides what comes first.

When several input partitions wait with the same head timestamp, Kafka Streams takes the one that
`java.util.PriorityQueue` happens to have on top; when two standbys of a task have to move, the one
it has on top moves first. That is determined by how it sifts, which is not how `heapq` sifts; so
the same sifting stands here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class JavaPriorityQueue(Generic[T]):
    """A binary heap that breaks ties as `java.util.PriorityQueue` does.

    Args:
        key: what elements are compared by; the smallest comes first.
    """

    def __init__(self, key: Callable[[T], Any]) -> None:
        self._key = key
        self._heap: list[T] = []

    def __len__(self) -> int:
        return len(self._heap)

    def offer(self, element: T) -> None:
        """Add an element."""
        heap, key = self._heap, self._key
        heap.append(element)
        place = len(heap) - 1
        wanted = key(element)
        while place > 0:
            parent = (place - 1) >> 1
            if wanted >= key(heap[parent]):
                break
            heap[place] = heap[parent]
            place = parent
        heap[place] = element

    def peek(self) -> T:
        """The first element, which stays. The queue must not be empty."""
        return self._heap[0]

    def poll(self) -> T:
        """Remove and return the first element. The queue must not be empty."""
        heap, key = self._heap, self._key
        first = heap[0]
        last = heap.pop()
        size = len(heap)
        if size:
            wanted = key(last)
            place = 0
            while place < size >> 1:
                child = 2 * place + 1
                if child + 1 < size and key(heap[child]) > key(heap[child + 1]):
                    child += 1
                if wanted <= key(heap[child]):
                    break
                heap[place] = heap[child]
                place = child
            heap[place] = last
        return first

    def clear(self) -> None:
        """Remove everything."""
        self._heap.clear()
