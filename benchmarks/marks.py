"""Times of events in a program under test: one JSON object per line in a file.

All programs, Python or Java, append `running`, `first` (the first record was decoded) and `last`
(the expected number of records was decoded), each with the time of the machine's clock. Millstream
appends `starting` before it calls `KafkaStreams.run`. The harness reads the file while the program
runs. Marks are in a file because a stream thread runs in a Spark process, whose output is separate
from the program's.
"""

from __future__ import annotations

import json
import time
from pathlib import Path


def now_ms() -> int:
    """Return the time in milliseconds since the epoch, like Java's currentTimeMillis."""
    return time.time_ns() // 1_000_000


def put(path: str, mark: str, at_ms: int | None = None) -> None:
    """Append a mark with a time, by default now.

    Uses one write, so writers do not interleave.
    """
    with Path(path).open("a") as file:
        when = now_ms() if at_ms is None else at_ms
        file.write(json.dumps({"mark": mark, "at_ms": when}) + "\n")


def read(path: Path) -> dict[str, int]:
    """Return the first time of each mark so far."""
    times: dict[str, int] = {}
    for mark, at_ms in entries(path):
        times.setdefault(mark, at_ms)
    return times


def entries(path: Path) -> list[tuple[str, int]]:
    """Return all marks so far with their times, in order."""
    if not path.exists():
        return []
    # The text after the last newline is incomplete.
    complete, _, _ = path.read_text().rpartition("\n")
    found = [json.loads(line) for line in complete.splitlines()]
    return [(entry["mark"], entry["at_ms"]) for entry in found]
