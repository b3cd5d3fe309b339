"""Logs of concurrent work in files, and Decaton's own three checks of them.

A piece of work has an id, a number that counts up within its key. An entry is a line in a file of
the process, so that it survives a SIGKILL: the key, the id, whether the work began or ended, and
when, on the clock that all processes of a machine share.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path


class WorkLog:
    """Logs work from any thread and process. Can be pickled."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = str(folder)
        self._name = name
        self._files: dict[int, int] = {}

    def __getstate__(self) -> tuple[str, str]:
        return self._folder, self._name

    def __setstate__(self, state: tuple[str, str]) -> None:
        self._folder, self._name = state
        self._files = {}

    def began(self, key: str, number: int) -> None:
        """Log the start of work."""
        self._note("began", key, number)

    def ended(self, key: str, number: int) -> None:
        """Log the end of work."""
        self._note("ended", key, number)

    def _note(self, what: str, key: str, number: int) -> None:
        pid = os.getpid()
        file = self._files.get(pid)
        if file is None:
            path = Path(self._folder, f"{self._name}-{pid}.work")
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            file = self._files.setdefault(pid, file)
        os.write(file, f"{what} {key} {number} {time.monotonic_ns()}\n".encode())


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One execution of a piece of work.

    Attributes:
        ended_ns: the end; None if it was cancelled or its process was killed.
        by: the file of the process.
    """

    number: int
    began_ns: int
    ended_ns: int | None
    by: str


def read_work(folder: Path) -> dict[str, list[WorkItem]]:
    """Read all logs of a folder: by key, in the order of the starts."""
    found: dict[str, list[WorkItem]] = defaultdict(list)
    for path in sorted(folder.glob("*.work")):
        open_ones: dict[tuple[str, int], int] = {}
        complete, _, _ = path.read_text().rpartition("\n")
        for line in complete.splitlines():
            what, key, number, at_ns = line.split()
            each = (key, int(number))
            if what == "began":
                if each in open_ones:
                    # It was cancelled because the process had lost its partitions.
                    found[key].append(WorkItem(each[1], open_ones[each], None, path.name))
                open_ones[each] = int(at_ns)
            else:
                found[key].append(WorkItem(each[1], open_ones.pop(each), int(at_ns), path.name))
        for (name, left), began_ns in open_ones.items():
            found[name].append(WorkItem(left, began_ns, None, path.name))
    return {key: sorted(done, key=lambda each: each.began_ns) for key, done in found.items()}


def unfinished_work(
    written: Mapping[str, int], work: Mapping[str, Sequence[WorkItem]]
) -> list[str]:
    """Decaton's first check: the written ids of each key without a completed execution."""
    missing = []
    for key, count in written.items():
        ended = {each.number for each in work.get(key, ()) if each.ended_ns is not None}
        missing += [f"{key}:{number}" for number in range(count) if number not in ended]
    return missing


def overlapping(work: Mapping[str, Sequence[WorkItem]]) -> list[str]:
    """Its second check: work on a key that began before the key's previous work had ended."""
    wrong = []
    for key, done in work.items():
        last: WorkItem | None = None
        for each in done:
            if last is not None and last.ended_ns is not None and each.began_ns < last.ended_ns:
                wrong.append(f"{key}: {last} and {each}")
            if last is None or (each.ended_ns or each.began_ns) >= (last.ended_ns or 0):
                last = each
    return wrong


def most_at_once(work: Mapping[str, Sequence[WorkItem]]) -> int:
    """The maximum number of concurrent executions over all processes."""
    steps = [(each.began_ns, 1) for done in work.values() for each in done]
    steps += [(each.ended_ns, -1) for done in work.values() for each in done if each.ended_ns]
    # Killed work never ended; it is counted as zero-length.
    steps += [(each.began_ns, -1) for done in work.values() for each in done if not each.ended_ns]
    return max(accumulate(step for _, step in sorted(steps)), default=0)


def out_of_order(numbers: Iterable[int]) -> list[str]:
    """Its third check: ids of one key that neither continue nor restart at an earlier id, as
    after a crash: 1,2,1,2,3 is right, 1,3,2 is wrong."""
    wrong = []
    last = -1
    for number in numbers:
        if number > last + 1:
            wrong.append(f"{number} after {last}")
        last = number
    return wrong


@dataclass(frozen=True, slots=True)
class CommittedCounts:
    """The committed ids of a group at some time: all of them were processed before.

    Attributes:
        at_ns: when the answer arrived.
        committed: the number of ids by key.
    """

    at_ns: int
    committed: Mapping[str, int]


def repeated_after_commit(
    work: Mapping[str, Sequence[WorkItem]], snapshots: Sequence[CommittedCounts]
) -> list[str]:
    """The rest of the third check: work that began after it had been committed."""
    wrong = []
    for key, done in work.items():
        for each in done:
            for snapshot in snapshots:
                if each.began_ns > snapshot.at_ns and each.number < snapshot.committed.get(key, 0):
                    wrong.append(f"{key}: {each} though {snapshot.committed[key]} were committed")
                    break
    return wrong
