"""Which thread had which tasks before and after each rebalance."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from millstream.application.story.events import OwnedTasks, Ownership, Rebalance
from millstream.runtime.states import OwnedTask

_MOST: Final = 100
#: What threads tell of their tasks so soon after the last of them runs belongs to the rebalance.
_SETTLING_MS: Final = 2_000


class Rebalances:
    """Follows the tasks of all threads. A rebalance lasts from where the application stops RUNNING
    until it is RUNNING again. The last 100 are kept."""

    def __init__(self) -> None:
        self._owned: dict[str, OwnedTasks] = {}
        self._known: deque[Rebalance] = deque(maxlen=_MOST)
        self._count = 0

    def began(self, now_ms: int, why: str) -> None:
        """The first thread has stopped for it."""
        if self._known and self._known[-1].ended_ms is None:
            return
        self._count += 1
        owned = dict(self._owned)
        self._known.append(Rebalance(self._count, now_ms, None, why, owned, owned))

    def ended(self, now_ms: int) -> None:
        """All threads run again, or the application has ended."""
        if self._known and self._known[-1].ended_ms is None:
            self._known[-1] = replace(self._known[-1], ended_ms=now_ms, after=dict(self._owned))

    def tasks_are(self, thread: str, tasks: Mapping[str, OwnedTask], now_ms: int) -> None:
        """A thread has told what it owns, by task id; nothing if it has ended."""
        owned = _owned(tasks)
        if owned == self._owned.get(thread, OwnedTasks()):
            return
        if owned == OwnedTasks():
            self._owned.pop(thread, None)
        else:
            self._owned[thread] = owned
        if self._known and self._belongs_to(self._known[-1], now_ms):
            self._known[-1] = replace(self._known[-1], after=dict(self._owned))

    def all(self) -> list[Rebalance]:
        """What is known, the oldest first."""
        return list(self._known)

    @property
    def owned(self) -> Ownership:
        """Who has which tasks now."""
        return dict(self._owned)

    def _belongs_to(self, last: Rebalance, now_ms: int) -> bool:
        return last.ended_ms is None or now_ms - last.ended_ms <= _SETTLING_MS


def _owned(tasks: Mapping[str, OwnedTask]) -> OwnedTasks:
    ids = sorted(tasks, key=_by_number)
    return OwnedTasks(
        tuple(each for each in ids if not tasks[each].standby),
        tuple(each for each in ids if tasks[each].standby),
    )


def _by_number(task: str) -> tuple[int, ...]:
    return tuple(int(part) for part in task.split("_"))
