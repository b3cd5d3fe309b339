"""Another process that holds a lock of a state directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.machine.scripts import Program, python

_HOLDER = """
import sys, time
from millstream.record import TaskId
from millstream.state.directories.state_directory import StateDirectory
directory = StateDirectory(sys.argv[1], "app")
if sys.argv[2] == "app":
    directory.lock_application()
else:
    directory.lock_task(TaskId.parse(sys.argv[2]))
print("locked", flush=True)
time.sleep(60)
"""


@contextmanager
def lock_held(state_dir: Path, what: str) -> Iterator[Program]:
    """Start the process, which is killed at the end unless it has ended before.

    Args:
        what: `app`, or the id of a task.
    """
    with python(_HOLDER, state_dir, what) as holder:
        holder.wait_for_line("locked")
        yield holder
