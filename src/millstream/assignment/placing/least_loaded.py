"""The least loaded of many, again and again, while their loads grow."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class LeastLoaded(Generic[T]):
    """Finds the least loaded, of equals the first. Loads may only grow meanwhile.

    Looking through 500 processes for each of 10,000 tasks takes seconds; here it is a few steps.

    Args:
        candidates: with their places in the order that decides between equals.
        load: how loaded one is at the moment.

    Example:
        >>> waiting = {"a": 1, "b": 0, "c": 0}
        >>> queues = LeastLoaded(enumerate(waiting), lambda name: waiting[name])
        >>> queues.first(), queues.first(lambda name: name != "b")
        ('b', 'c')
    """

    def __init__(self, candidates: Iterable[tuple[int, T]], load: Callable[[T], float]) -> None:
        self._load = load
        self._heap = [(load(candidate), place, candidate) for place, candidate in candidates]
        heapq.heapify(self._heap)

    def first(self, fits: Callable[[T], bool] | None = None) -> T | None:
        """The least loaded of those that fit, if any does."""
        found = self.rank(fits)
        return None if found is None else found[2]

    def rank(self, fits: Callable[[T], bool] | None = None) -> tuple[float, int, T] | None:
        """The same with its load and its place, by which those of several are compared."""
        heap, load = self._heap, self._load
        aside: list[tuple[float, int, T]] = []
        found = None
        while heap and found is None:
            noted, place, candidate = heap[0]
            now = load(candidate)
            if noted != now:
                # What was noted is too low, so whatever may be out of its place comes up first.
                heapq.heapreplace(heap, (now, place, candidate))
            elif fits is None or fits(candidate):
                found = heap[0]
            else:
                aside.append(heapq.heappop(heap))
        for entry in aside:
            heapq.heappush(heap, entry)
        return found
