"""In which order calls are given back that end in any order."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Sequence
from typing import Protocol

from millstream.operators.apart.calls import Call


class Window(Protocol):
    """The calls in flight, and which of those that have ended may go on."""

    def add(self, calls: Iterable[Call]) -> None:
        """These were begun, in this order."""
        ...

    def pass_on(self, ended: Sequence[Call]) -> Sequence[Call]:
        """These have ended; those that may go on now."""
        ...


class AsTheyEnd:
    """Each goes on when it has ended. Those of a unit end in order, so they stay in order."""

    def add(self, calls: Iterable[Call]) -> None:
        """These were begun."""

    def pass_on(self, ended: Sequence[Call]) -> Sequence[Call]:
        """All of them."""
        return ended


class InOrder:
    """Each goes on when all before it of its input partition have ended."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, deque[Call]] = defaultdict(deque)

    def add(self, calls: Iterable[Call]) -> None:
        """These were begun, in this order."""
        for call in calls:
            self._lines[_place(call)].append(call)

    def pass_on(self, ended: Sequence[Call]) -> Sequence[Call]:
        """Those that nothing is in front of any more."""
        for call in ended:
            call.done = True
        free: list[Call] = []
        for place in dict.fromkeys(map(_place, ended)):
            line = self._lines[place]
            while line and line[0].done:
                free.append(line.popleft())
        return free


def _place(call: Call) -> Hashable:
    batch = call.batch
    return batch.origin.place(batch.rows[call.index])
