"""By when deferred tasks have to be completed."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count

from millstream.subscriptions.completion import Completion


class Deadlines:
    """Of completions, which it keeps nobody from throwing away."""

    def __init__(self) -> None:
        self._known: list[tuple[int, int, weakref.ref[Completion]]] = []
        self._tickets = count()
        #: From any thread.
        self._new: deque[weakref.ref[Completion]] = deque()

    def keep(self, completion: Completion) -> None:
        """Look after one. Called from any thread."""
        self._new.append(weakref.ref(completion))

    def is_due(self, now_ms: int) -> bool:
        """Whether `expired` may have something to do."""
        return bool(self._new) or bool(self._known and self._known[0][0] <= now_ms)

    def expired(self, now_ms: int) -> Iterator[Completion]:
        """Those whose time is over and that are not done; who is given more time then is looked
        after again."""
        while self._new:
            self._add(self._new.popleft())
        while self._known and self._known[0][0] <= now_ms:
            reference = heappop(self._known)[2]
            completion = reference()
            if completion is None or completion.is_done:
                continue
            yield completion
            self._add(reference)

    def _add(self, reference: weakref.ref[Completion]) -> None:
        completion = reference()
        if completion is not None and not completion.is_done:
            assert completion.deadline_ms is not None
            heappush(self._known, (completion.deadline_ms, next(self._tickets), reference))
