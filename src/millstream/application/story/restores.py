"""How far restorations and standbys are, by changelog partition."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from millstream.application.story.events import Restore, RestoreKind, RestoreState
from millstream.runtime.control import RestoreEvent, RestoreStep

#: How many are remembered that have ended.
_MOST_ENDED: Final = 200

_STARTS: Final = frozenset({RestoreStep.START, RestoreStep.STANDBY_START})
_BATCHES: Final = frozenset({RestoreStep.BATCH, RestoreStep.STANDBY_BATCH})


class Restores:
    """Follows what threads tell of the stores that they read from changelogs.

    Holds one entry for each copy that is being read, and the last 200 that have ended.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[str, str, int, bool], Restore] = {}
        self._ended: list[Restore] = []

    def heard(self, thread: str, event: RestoreEvent, now_ms: int) -> None:
        """Something was restored by a thread."""
        standby = event.step.is_of_standby
        key = (thread, event.place.topic, event.place.partition, standby)
        if event.step in _STARTS:
            self._end(key, "suspended", now_ms)
            self._open[key] = _begun(thread, event, now_ms)
            return
        found = self._open.get(key)
        if found is None:
            return
        found.told_ms = now_ms
        if event.step in _BATCHES:
            found.at = event.offset + 1
            found.end = max(event.end_offset, found.at)
            found.records += event.records
        elif event.step is RestoreStep.END:
            found.at = found.end = max(found.end, event.end_offset)
            found.records = event.records
            self._end(key, "done", now_ms)
        elif event.step is RestoreStep.STANDBY_PROMOTED:
            self._end(key, "done", now_ms)
        else:
            self._end(key, "suspended", now_ms)

    def thread_ended(self, thread: str, now_ms: int) -> None:
        """A thread tells nothing any more."""
        for key in [key for key in self._open if key[0] == thread]:
            self._end(key, "suspended", now_ms)

    def all(self) -> list[Restore]:
        """Copies of all entries: those that go on, then the ended ones, the last one first."""
        return [replace(each) for each in (*self._open.values(), *reversed(self._ended))]

    def _end(self, key: tuple[str, str, int, bool], how: RestoreState, now_ms: int) -> None:
        found = self._open.pop(key, None)
        if found is None:
            return
        found.state = how
        found.told_ms = now_ms
        self._ended.append(found)
        del self._ended[:-_MOST_ENDED]


def _begun(thread: str, event: RestoreEvent, now_ms: int) -> Restore:
    start = max(event.offset, 0)
    kind: RestoreKind = "standby" if event.step.is_of_standby else "active"
    if event.task_id.subtopology < 0:
        kind = "global"
    return Restore(
        store=event.store,
        topic=event.place.topic,
        partition=event.place.partition,
        task=str(event.task_id),
        thread=thread,
        kind=kind,
        start=start,
        at=start,
        end=max(event.end_offset, start),
        records=0,
        state="running",
        began_ms=now_ms,
        told_ms=now_ms,
    )
