"""Whether processes of this machine still run."""

from __future__ import annotations

import os
import time
from pathlib import Path


def wait_for_end(pids: set[int], deadline: float) -> set[int]:
    """Wait until none of these processes runs; those that still do at the deadline."""
    left = {pid for pid in pids if runs(pid)}
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = {pid for pid in left if runs(pid)}
    return left


def runs(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        # It exists, but is another user's: the number was given out again.
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        # It ended just now, or this system has no /proc.
        return not Path("/proc/self").exists()
    # One that has ended but was not collected by its parent exists in name only.
    return state not in "ZX"
