"""The memory of tasks and cached entries: the growth of the process (resident set).

Each number is measured in a new process, in which nothing else has grown before:

    python benchmarks/growing_memory.py "count, cached" 50 FOLDER    # bytes per task
    python benchmarks/growing_memory.py entry 200000 FOLDER          # bytes per entry, and counted
        ones
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import subprocess
import sys
from itertools import count as numbers_from
from pathlib import Path

from growing import Line, Row
from growing_tasks import JOBS, Feed, topology
from measure import RunFailedError
from tasks_alone import TasksAlone

TASKS, SMOKE_TASKS = 100, 5
ENTRIES, SMOKE_ENTRIES = 500_000, 20_000
#: Measures cache entries instead of a job.
ENTRY = "entry"

_DEADLINE_S = 300.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
#: These tasks load everything that is shared, so they are not measured.
_FIRST_TASKS = 2
#: Keys per task, so that its store has files and blocks in memory.
_KEYS_OF_A_TASK = 100
#: A cache without evictions.
_ROOM_BYTES = 1 << 40


def resident_bytes() -> int:
    """The resident memory of this process, including shared libraries."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def of_a_task(job: str, tasks: int, folder: Path) -> float:
    """Bytes per additional task, after some records and a commit."""
    tasks_alone = TasksAlone(topology(JOBS[job]), folder, _FIRST_TASKS)
    tasks_alone.run(Feed(_FIRST_TASKS).each(_FIRST_TASKS * _KEYS_OF_A_TASK))
    before = resident_bytes()
    tasks_alone.add(tasks)
    # The first tasks have processed theirs, so offsets begin after them.
    more = Feed(_FIRST_TASKS + tasks, first_offset=_KEYS_OF_A_TASK)
    tasks_alone.run(more.each((_FIRST_TASKS + tasks) * _KEYS_OF_A_TASK))
    return (resident_bytes() - before) / tasks


def of_an_entry(entries: int, folder: Path) -> tuple[float, float]:
    """The bytes of a changed entry, and the bytes that the cache counts for it."""
    work = TasksAlone(topology(JOBS["count, cached"]), folder, cache_bytes=_ROOM_BYTES)
    feed = Feed()
    work.run(feed.each(1))
    before, counted = resident_bytes(), work.budget.used_bytes
    for poll in feed.each(entries):
        work.work(poll)
    return (
        (resident_bytes() - before) / entries,
        (work.budget.used_bytes - counted) / entries,
    )


class GrowingMemory:
    """Measures in a folder, in a number of rounds."""

    def __init__(self, folder: Path, rounds: int, *, smoke: bool = False) -> None:
        self._folder = folder
        self._rounds = rounds
        self._tasks = SMOKE_TASKS if smoke else TASKS
        self._entries = SMOKE_ENTRIES if smoke else ENTRIES
        self._names = numbers_from()

    def tasks(self) -> Line:
        """Memory per task, by job."""
        rows = [
            Row.of(job, self._tasks, [taken / 1024 for (taken,) in self._measure_rounds(job)])
            for job in JOBS
        ]
        return Line("tasks", "KB a task", self._rounds, rows)

    def entries(self) -> Line:
        """Memory per cached entry."""
        taken, counted = zip(*self._measure_rounds(ENTRY), strict=True)
        rows = [
            Row.of("a changed entry", self._entries, taken),
            Row.of("the same, as the cache counts it", self._entries, counted),
        ]
        return Line("entries", "bytes an entry", self._rounds, rows)

    def _measure_rounds(self, kind: str) -> list[list[float]]:
        return [self._measure_once(kind) for _ in range(self._rounds)]

    def _measure_once(self, kind: str) -> list[float]:
        number = self._entries if kind == ENTRY else self._tasks
        place = self._folder / str(next(self._names))
        command = [sys.executable, str(Path(__file__)), kind, str(number), str(place)]
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False
        )
        shutil.rmtree(place, ignore_errors=True)
        if ran.returncode:
            raise RunFailedError(
                f"The memory of {kind} could not be measured: {ran.stderr[-2000:]}"
            )
        return [float(each) for each in json.loads(ran.stdout)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("what", choices=[*JOBS, ENTRY])
    parser.add_argument("number", type=int)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    if given.what == ENTRY:
        print(json.dumps(of_an_entry(given.number, given.folder)))
    else:
        print(json.dumps([of_a_task(given.what, given.number, given.folder)]))


if __name__ == "__main__":
    main()
