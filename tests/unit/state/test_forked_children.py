"""Goal: what user code forks does not keep the locks of its worker, and cannot give them back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millstream.errors import LockError
from millstream.record import TaskId
from millstream.state.directories.directory import StateDirectory

TASK = TaskId(0, 1)

#: Locks a task, starts a child in one of several ways; the child tries all that could do harm.
_PARENT = """
import multiprocessing, os, sys, threading, time
from millstream.errors import LockError
from millstream.record import TaskId
from millstream.state.directories.directory import StateDirectory
task = TaskId(0, 1)
directory = StateDirectory(sys.argv[1], "app")
directory.lock_application()
directory.lock_task(task)

def child():
    try:
        directory.lock_task(task)
        believed = "locked"
    except LockError as error:
        believed = "refused"
    directory.unlock_task(task)
    directory.unlock_application()
    print("child", os.getpid(), believed, flush=True)
    time.sleep(60)
    os._exit(0)

def fork():
    if os.fork() == 0:
        child()

print("parent", os.getpid(), "locked", flush=True)
how = sys.argv[2]
if how == "fork":
    fork()
elif how == "fork in a thread":
    threading.Thread(target=fork).start()
else:
    multiprocessing.get_context("fork").Process(target=child).start()
time.sleep(60)
"""


@contextmanager
def family(state_dir: Path, how: str) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """The parent, the child's process id, and whether the child thinks that it has the lock."""
    command = [sys.executable, "-c", _PARENT, str(state_dir), how]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    child = None
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == f"parent {parent.pid} locked\n"
        _, pid, believed = parent.stdout.readline().split()
        child = int(pid)
        yield parent, child, believed
    finally:
        parent.kill()
        parent.wait(timeout=10)
        if child is not None:
            os.kill(child, signal.SIGKILL)
        assert parent.stdout is not None
        parent.stdout.close()


@pytest.mark.parametrize("how", ["fork", "fork in a thread", "multiprocessing"])
def test_a_lock_ends_with_its_process_though_a_child_lives_on(tmp_path: Path, how: str) -> None:
    """Method: a child lives on when its parent is killed; others want the locks, before and after.

    The child knows that it has none, and what it gives back is not the parent's.
    """
    with family(tmp_path, how) as (parent, child, believed):
        assert believed == "refused"
        directory = StateDirectory(tmp_path, "app")
        with pytest.raises(LockError, match=f"process {parent.pid} since 20"):
            directory.lock_task(TASK)
        with pytest.raises(LockError, match=f"process {parent.pid} since 20"):
            directory.lock_application()
        parent.send_signal(signal.SIGKILL)
        parent.wait(timeout=10)
        os.kill(child, 0)
        directory.lock_task(TASK)
        directory.lock_application()
        directory.unlock_task(TASK)
        directory.unlock_application()
