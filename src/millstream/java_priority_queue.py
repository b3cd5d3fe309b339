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
        key: what elements are compared by; the smallest comes first. Asked once, when an element is
            added: it must not change before the element is taken.
    """

    def __init__(self, key: Callable[[T], Any]) -> None:
        self._key = key
        self._heap: list[tuple[Any, T]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def offer(self, element: T) -> None:
        """Add an element."""
        heap, wanted = self._heap, self._key(element)
        added = (wanted, element)
        heap.append(added)
        place = len(heap) - 1
        while place > 0:
            parent = (place - 1) >> 1
            above = heap[parent]
            if wanted >= above[0]:
                break
            heap[place] = above
            place = parent
        heap[place] = added

    def peek(self) -> T:
        """The first element, which stays. The queue must not be empty."""
        return self._heap[0][1]

    def poll(self) -> T:
        """Remove and return the first element. The queue must not be empty."""
        heap = self._heap
        first = heap[0]
        last = heap.pop()
        size = len(heap)
        if size:
            wanted = last[0]
            place, half = 0, size >> 1
            while place < half:
                child = 2 * place + 1
                below = heap[child]
                if child + 1 < size and below[0] > heap[child + 1][0]:
                    child += 1
                    below = heap[child]
                if wanted <= below[0]:
                    break
                heap[place] = below
                place = child
            heap[place] = last
        return first[1]

    def clear(self) -> None:
        """Remove everything."""
        self._heap.clear()
