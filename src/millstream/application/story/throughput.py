"""Records per second, from the totals that threads tell now and then."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

#: Over how long a rate is taken, and how many totals are kept for that at most.
_WINDOW_MS: Final = 5_000
_MOST_TOTALS: Final = 32
#: How much of the past is kept, one number for each second.
_HISTORY_S: Final = 300


class Throughput:
    """The rates of tasks over the last five seconds, and of all together over the last minutes.

    Totals count from zero in each thread, so each is followed by thread and task. Times are those
    of a clock that never goes back.
    """

    def __init__(self) -> None:
        self._totals: dict[tuple[str, str], deque[tuple[int, int]]] = {}
        self._seconds: deque[tuple[int, int]] = deque(maxlen=_HISTORY_S)

    def heard(self, thread: str, tasks: Mapping[str, int], now_ms: int) -> None:
        """What the tasks of a thread have processed so far."""
        for key in [key for key in self._totals if key[0] == thread and key[1] not in tasks]:
            del self._totals[key]
        grown = 0
        for task, total in tasks.items():
            totals = self._totals.get((thread, task))
            if totals is None or total < totals[-1][1]:
                # What was processed before the first report is no rate, unless that is all.
                totals = self._totals[thread, task] = deque(maxlen=_MOST_TOTALS)
            else:
                grown += total - totals[-1][1]
            totals.append((now_ms, total))
        self._note(grown, now_ms)

    def thread_ended(self, thread: str) -> None:
        """A thread tells nothing any more."""
        for key in [key for key in self._totals if key[0] == thread]:
            del self._totals[key]

    def rates(self, now_ms: int) -> dict[tuple[str, str], float]:
        """Records per second, by thread and task."""
        return {key: _rate(totals, now_ms) for key, totals in self._totals.items()}

    def history(self, now_ms: int) -> list[int]:
        """Records of each of the last seconds, the oldest first, up to the last whole one."""
        if not self._seconds:
            return []
        found = dict(self._seconds)
        last = now_ms // 1_000 - 1
        first = max(self._seconds[0][0], last - _HISTORY_S + 1)
        return [found.get(second, 0) for second in range(first, last + 1)]

    def _note(self, count: int, now_ms: int) -> None:
        second = now_ms // 1_000
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1] = (second, self._seconds[-1][1] + count)
        else:
            self._seconds.append((second, count))


def _rate(totals: deque[tuple[int, int]], now_ms: int) -> float:
    recent = [each for each in totals if now_ms - each[0] <= _WINDOW_MS]
    if len(recent) < 2 or recent[-1][0] == recent[0][0]:
        return 0.0
    return (recent[-1][1] - recent[0][1]) * 1_000 / (recent[-1][0] - recent[0][0])
