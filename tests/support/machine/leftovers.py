"""Resources that a closed application must release: threads, worker processes, open ports."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.waiting import wait_for


def runs(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def descendants(root: int) -> list[int]:
    """The child processes of a process, recursively."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and runs(int(entry.name)):
            children[_parent(int(entry.name))].append(int(entry.name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children[waiting.pop()]
        found += below
        waiting += below
    return found


def stream_thread_workers() -> set[int]:
    """PySpark's worker processes among the descendants of this process."""
    # The daemon's children are the workers; the daemon lives as long as its session.
    return {pid for pid in descendants(os.getpid()) if _is_daemon(pid) and _is_daemon(_parent(pid))}


def listening_ports() -> set[int]:
    """The TCP ports on which this process listens."""
    inodes = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(link)
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    ports = set()
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def alive() -> set[str]:
    """Descriptions of the threads, workers and ports of this process."""
    threads = {
        f"thread {thread.name} ({thread.ident})"
        for thread in threading.enumerate()
        # Created by `logging` for a thread that Python did not start, or that has just ended.
        if not thread.name.startswith("Dummy-")
    }
    workers = {f"worker {pid}" for pid in stream_thread_workers()}
    return threads | workers | {f"port {port}" for port in listening_ports()}


@contextmanager
def nothing_left() -> Iterator[None]:
    """Check that resources created in the block are released soon after it."""
    before = alive()
    yield
    wait_for(lambda: alive() <= before, 15, f"released: {alive() - before}")


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _is_daemon(pid: int) -> bool:
    try:
        return b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
