"""The memory of tasks and cached entries, as growth of the resident set.

Each number is measured in a new process, which has not allocated memory for anything else:

    cd benchmarks
    python -m growth.memory "count, cached" 50 FOLDER    # bytes per task
    python -m growth.memory entry 200000 FOLDER          # bytes per entry, used and counted
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

from harness.measure import RunFailedError

from growth.lines import Line, Row
from growth.tasks import JOBS, Feed, topology
from growth.tasks_alone import StandaloneTasks

TASKS, SMOKE_TASKS = 100, 5
ENTRIES, SMOKE_ENTRIES = 500_000, 20_000
#: The argument for measuring cache entries instead of a job.
ENTRY = "entry"

_DEADLINE_S = 300.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
#: These tasks load everything that tasks share, so they are not measured.
_FIRST_TASKS = 2
#: Enough keys per task that its store has files and blocks in memory.
_KEYS_PER_TASK = 100
#: A cache size without evictions.
_UNLIMITED_CACHE_BYTES = 1 << 40


def resident_bytes() -> int:
    """Return the resident memory of this process, including shared libraries."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def bytes_per_task(job: str, tasks: int, folder: Path) -> float:
    """Return the bytes per additional task, after some records and a commit."""
    tasks_alone = StandaloneTasks(topology(JOBS[job]), folder, _FIRST_TASKS)
    tasks_alone.run(Feed(_FIRST_TASKS).each(_FIRST_TASKS * _KEYS_PER_TASK))
    before = resident_bytes()
    tasks_alone.add(tasks)
    # The first tasks have already processed these keys, so the offsets begin after them.
    more = Feed(_FIRST_TASKS + tasks, first_offset=_KEYS_PER_TASK)
    tasks_alone.run(more.each((_FIRST_TASKS + tasks) * _KEYS_PER_TASK))
    return (resident_bytes() - before) / tasks


def bytes_per_entry(entries: int, folder: Path) -> tuple[float, float]:
    """Return the bytes per changed entry, and the bytes that the cache counts for it."""
    work = StandaloneTasks(
        topology(JOBS["count, cached"]), folder, cache_bytes=_UNLIMITED_CACHE_BYTES
    )
    feed = Feed()
    work.run(feed.each(1))
    before, counted = resident_bytes(), work.budget.used_bytes
    for poll in feed.each(entries):
        work.work(poll)
    return (
        (resident_bytes() - before) / entries,
        (work.budget.used_bytes - counted) / entries,
    )


class MemoryCosts:
    """Measures memory in several rounds."""

    def __init__(self, folder: Path, rounds: int, *, smoke: bool = False) -> None:
        self._folder = folder
        self._rounds = rounds
        self._tasks = SMOKE_TASKS if smoke else TASKS
        self._entries = SMOKE_ENTRIES if smoke else ENTRIES
        self._names = numbers_from()

    def tasks(self) -> Line:
        """Measure the memory per task, by job."""
        rows = [
            Row.of(job, self._tasks, [taken / 1024 for (taken,) in self._measure_rounds(job)])
            for job in JOBS
        ]
        return Line("tasks", "KB per task", self._rounds, rows)

    def entries(self) -> Line:
        """Measure the memory per cached entry."""
        taken, counted = zip(*self._measure_rounds(ENTRY), strict=True)
        rows = [
            Row.of("changed entry", self._entries, taken),
            Row.of("changed entry, as counted by the cache", self._entries, counted),
        ]
        return Line("entries", "bytes per entry", self._rounds, rows)

    def _measure_rounds(self, kind: str) -> list[list[float]]:
        return [self._measure_once(kind) for _ in range(self._rounds)]

    def _measure_once(self, kind: str) -> list[float]:
        number = self._entries if kind == ENTRY else self._tasks
        place = self._folder / str(next(self._names))
        command = [sys.executable, "-m", "growth.memory", kind, str(number), str(place.absolute())]
        ran = subprocess.run(
            command,
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=False,
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
        print(json.dumps(bytes_per_entry(given.number, given.folder)))
    else:
        print(json.dumps([bytes_per_task(given.what, given.number, given.folder)]))


if __name__ == "__main__":
    main()
