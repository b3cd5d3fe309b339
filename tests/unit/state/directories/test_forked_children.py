"""Processes forked by user code do not keep the locks of their worker and cannot release them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.machine.scripts import Program, python

from millstream.errors import LockError
from millstream.record import TaskId
from millstream.state.directories.state_directory import StateDirectory

TASK = TaskId(0, 1)

#: Locks a task and starts a child in one of several ways; the child tries to lock and unlock.
_PARENT = """
import multiprocessing, os, sys, threading, time
from millstream.errors import LockError
from millstream.record import TaskId
from millstream.state.directories.state_directory import StateDirectory
task = TaskId(0, 1)
directory = StateDirectory(sys.argv[1], "app")
directory.lock_application()
directory.lock_task(task)

def child():
    try:
        directory.lock_task(task)
        outcome = "locked"
    except LockError as error:
        outcome = "refused"
    directory.unlock_task(task)
    directory.unlock_application()
    print("child", os.getpid(), outcome, flush=True)
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
def parent_and_child(state_dir: Path, how: str) -> Iterator[tuple[Program, int, str]]:
    """The parent, its child's process id, and the child's attempt to lock: locked or refused."""
    with python(_PARENT, state_dir, how) as parent:
        parent.wait_for_line(f"parent {parent.pid} locked")
        pid, outcome = parent.wait_for_line("child").split()
        yield parent, int(pid), outcome


@pytest.mark.parametrize("how", ["fork", "fork in a thread", "multiprocessing"])
def test_a_lock_ends_with_its_process_even_if_a_child_lives_on(tmp_path: Path, how: str) -> None:
    """A child survives its killed parent. Others try to lock before and after.

    The child does not own the parent's locks and cannot release them.
    """
    with parent_and_child(tmp_path, how) as (parent, child, outcome):
        assert outcome == "refused"
        directory = StateDirectory(tmp_path, "app")
        with pytest.raises(LockError, match=f"process {parent.pid} since 20"):
            directory.lock_task(TASK)
        with pytest.raises(LockError, match=f"process {parent.pid} since 20"):
            directory.lock_application()
        parent.kill()
        os.kill(child, 0)
        directory.lock_task(TASK)
        directory.lock_application()
        directory.unlock_task(TASK)
        directory.unlock_application()
