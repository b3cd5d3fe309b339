"""The moments a program under test reports: one JSON object a line in a file.

Every program, Python or Java, appends `running`, `first` (the first record was decoded) and
`last` (as many records as expected were decoded), each with the time of the machine's clock; ours
appends `starting` before, when it calls `KafkaStreams.run`. The harness reads the file while the
program runs. A file, because a stream thread lives in a process of Spark's, whose output is not
the program's.
"""

from __future__ import annotations

import json
import time
from pathlib import Path


def now_ms() -> int:
    """Milliseconds since the epoch, the clock that Java's currentTimeMillis reads too."""
    return time.time_ns() // 1_000_000


def put(path: str, mark: str, at_ms: int | None = None) -> None:
    """Appends `mark` with a time, by default now; one write, so that writers do not mix."""
    with Path(path).open("a") as file:
        when = now_ms() if at_ms is None else at_ms
        file.write(json.dumps({"mark": mark, "at_ms": when}) + "\n")


def read(path: Path) -> dict[str, int]:
    """The first time of each mark so far."""
    times: dict[str, int] = {}
    for mark, at_ms in entries(path):
        times.setdefault(mark, at_ms)
    return times


def entries(path: Path) -> list[tuple[str, int]]:
    """Every mark so far with its time, in order."""
    if not path.exists():
        return []
    # What follows the last newline is still being written.
    complete, _, _ = path.read_text().rpartition("\n")
    found = [json.loads(line) for line in complete.splitlines()]
    return [(entry["mark"], entry["at_ms"]) for entry in found]
