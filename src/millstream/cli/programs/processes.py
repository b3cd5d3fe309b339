"""Whether the process of a served application is still there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from millstream.server.address import FILE

#: Clocks that were set meanwhile do not make another process of one.
_SLACK_S: Final = 60.0


def has_ended(folder: Path) -> bool:
    """Whether the application is gone that told its server in a folder, and could not take it back.

    Its number may be another process's by now, which began later.
    """
    file = folder / FILE
    try:
        pid = int(json.loads(file.read_text(encoding="utf-8"))["pid"])
        told_s = file.stat().st_mtime
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except (OSError, ValueError, KeyError, TypeError):
        return False  # Another user's process, or an old file: it is not known.
    began_s = _began(pid)
    return began_s is not None and began_s > told_s + _SLACK_S


def _began(pid: int) -> float | None:
    """When a process began, in seconds since the epoch; None where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        lines = Path("/proc/stat").read_text().splitlines()
        booted = next(int(line.split()[1]) for line in lines if line.startswith("btime"))
        return booted + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None
