"""What programs with many calls at a time have worked on: notes in files, and what must be true of
them: Decaton's own three checks.

Work has an id, a number that counts up within its key. A note is a line in a file of the process,
so that it outlives a SIGKILL: the key, the id, whether it began or ended, and when, on the clock
that all processes of a machine share.
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
    """Takes notes, from any thread and process. May be pickled.

    Args:
        folder: where the files are.
        name: of the program that takes them.
    """

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
        """Work begins."""
        self._note("began", key, number)

    def ended(self, key: str, number: int) -> None:
        """Work has ended."""
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
class Done:
    """One time that somebody worked on something.

    Attributes:
        number: the id.
        began_ns: when.
        ended_ns: when; None if it was cancelled before, or whoever did it killed.
        by: the file of the process.
    """

    number: int
    began_ns: int
    ended_ns: int | None
    by: str


def read_work(folder: Path) -> dict[str, list[Done]]:
    """All that was noted in a folder: by key, in the order in which it began."""
    found: dict[str, list[Done]] = defaultdict(list)
    for path in sorted(folder.glob("*.work")):
        open_ones: dict[tuple[str, int], int] = {}
        complete, _, _ = path.read_text().rpartition("\n")
        for line in complete.splitlines():
            what, key, number, at_ns = line.split()
            each = (key, int(number))
            if what == "began":
                if each in open_ones:
                    # Cancelled, where a process has lost its partitions.
                    found[key].append(Done(each[1], open_ones[each], None, path.name))
                open_ones[each] = int(at_ns)
            else:
                found[key].append(Done(each[1], open_ones.pop(each), int(at_ns), path.name))
        for (name, left), began_ns in open_ones.items():
            found[name].append(Done(left, began_ns, None, path.name))
    return {key: sorted(done, key=lambda each: each.began_ns) for key, done in found.items()}


def never_done(written: Mapping[str, int], work: Mapping[str, Sequence[Done]]) -> list[str]:
    """Decaton's first check: what was written, so many ids of each key, and never came to its
    end."""
    missing = []
    for key, count in written.items():
        ended = {each.number for each in work.get(key, ()) if each.ended_ns is not None}
        missing += [f"{key}:{number}" for number in range(count) if number not in ended]
    return missing


def overlapping(work: Mapping[str, Sequence[Done]]) -> list[str]:
    """Its second check: work on one key that began before other work on it had ended."""
    wrong = []
    for key, done in work.items():
        last: Done | None = None
        for each in done:
            if last is not None and last.ended_ns is not None and each.began_ns < last.ended_ns:
                wrong.append(f"{key}: {last} and {each}")
            if last is None or (each.ended_ns or each.began_ns) >= (last.ended_ns or 0):
                last = each
    return wrong


def most_at_once(work: Mapping[str, Sequence[Done]]) -> int:
    """How much was worked on at the same time at most, by all together."""
    steps = [(each.began_ns, 1) for done in work.values() for each in done]
    steps += [(each.ended_ns, -1) for done in work.values() for each in done if each.ended_ns]
    # What was killed never ended, but is over with the next time that it begins: left out.
    steps += [(each.began_ns, -1) for done in work.values() for each in done if not each.ended_ns]
    return max(accumulate(step for _, step in sorted(steps)), default=0)


def out_of_order(numbers: Iterable[int]) -> list[str]:
    """Its third check: where ids of one key neither follow each other nor begin again at one that
    came before, as after a crash: 1,2,1,2,3 is right, 1,3,2 is not."""
    wrong = []
    last = -1
    for number in numbers:
        if number > last + 1:
            wrong.append(f"{number} after {last}")
        last = number
    return wrong


@dataclass(frozen=True, slots=True)
class Looked:
    """What a group had committed at some time: everything below was done before.

    Attributes:
        at_ns: when the answer was there.
        committed: by key, how many ids.
    """

    at_ns: int
    committed: Mapping[str, int]


def begun_again(work: Mapping[str, Sequence[Done]], looks: Sequence[Looked]) -> list[str]:
    """The rest of the third: work that began after it was seen to be committed."""
    wrong = []
    for key, done in work.items():
        for each in done:
            for look in looks:
                if each.began_ns > look.at_ns and each.number < look.committed.get(key, 0):
                    wrong.append(f"{key}: {each} though {look.committed[key]} were committed")
                    break
    return wrong
