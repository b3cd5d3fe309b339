"""Another process that holds a lock of a state directory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOLDER = """
import sys, time
from millstream.record import TaskId
from millstream.state.directories.directory import StateDirectory
directory = StateDirectory(sys.argv[1], "app")
if sys.argv[2] == "app":
    directory.lock_application()
else:
    directory.lock_task(TaskId.parse(sys.argv[2]))
print("locked", flush=True)
time.sleep(60)
"""


@contextmanager
def lock_held(state_dir: Path, what: str) -> Iterator[subprocess.Popen[str]]:
    """The process, which is killed at the end if that has not happened before.

    Args:
        state_dir: of the application `app`.
        what: `app`, or the id of a task.
    """
    command = [sys.executable, "-c", _HOLDER, str(state_dir), what]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        yield holder
    finally:
        holder.kill()
        holder.wait(timeout=10)
        assert holder.stdout is not None
        holder.stdout.close()
