"""Goal: the threads of one driver meet in one folder, those of two drivers never do."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.machine.scripts import Program

from millstream.clock import ManualClock, SystemClock
from millstream.errors import LockError, StreamsError
from millstream.record import TaskId
from millstream.state.directories import client_folder
from millstream.state.directories.file_lock import FileLock
from millstream.state.directories.state_directory import StateDirectory

TASK = TaskId(0, 0)
A, B, C = (uuid.UUID(int=number) for number in (1, 2, 3))

#: A thread of a client: takes its folder, perhaps locks a task, tells of it, and lives on.
_THREAD = """
import os, sys, time, uuid
from millstream.clock import SystemClock
from millstream.record import TaskId
from millstream.state.directories.state_directory import StateDirectory
state_dir, client, task, forks = sys.argv[1:]
sys.stdin.readline()
directory = StateDirectory.of_client(state_dir, "app", uuid.UUID(client), SystemClock())
if task:
    directory.lock_task(TaskId.parse(task))
child = os.fork() if forks else 0
if forks and child == 0:
    time.sleep(60)
    os._exit(0)
print("folder", directory.path, flush=True)
time.sleep(60)
"""


class Thread(Program):
    """A process of its own that is a stream thread of a client."""

    def __init__(self, state_dir: Path, client: uuid.UUID, task: str = "", forks: str = "") -> None:
        super().__init__(sys.executable, "-c", _THREAD, state_dir, str(client), task, forks)

    def go(self) -> None:
        """Let it look for its folder."""
        self.say("")

    def folder(self) -> Path:
        """The one that it has got."""
        return Path(self.wait_for_line("folder "))


class Threads:
    """Starts them, and ends all in the end."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._all = contextlib.ExitStack()

    def start(self, client: uuid.UUID, task: str = "", *, forks: bool = False) -> Thread:
        thread = Thread(self._state_dir, client, task, "forks" if forks else "")
        return self._all.enter_context(thread)

    def folder(self, client: uuid.UUID, task: str = "") -> Path:
        """Of a new thread."""
        thread = self.start(client, task)
        thread.go()
        return thread.folder()

    def close(self) -> None:
        self._all.close()


@pytest.fixture
def threads(tmp_path: Path) -> Iterator[Threads]:
    threads = Threads(tmp_path)
    yield threads
    threads.close()


def claimed(state_dir: Path, client: uuid.UUID) -> StateDirectory:
    """By a thread in this process."""
    return StateDirectory.of_client(state_dir, "app", client, SystemClock())


def test_two_clients_on_one_host_do_not_wait_for_each_other(
    tmp_path: Path, threads: Threads
) -> None:
    """Both lock the same task, in folders of their own; the first one's is the application's."""
    assert threads.folder(A, "0_0") == tmp_path / "app"
    assert threads.folder(B, "0_0") == tmp_path / "app" / "client-2"
    assert threads.folder(C, "0_0") == tmp_path / "app" / "client-3"


def test_the_threads_of_a_client_share_its_folder(tmp_path: Path, threads: Threads) -> None:
    threads.folder(A)
    folders = {threads.folder(B, f"0_{number}") for number in range(3)}
    assert folders == {tmp_path / "app" / "client-2"}
    directory = claimed(tmp_path, B)
    with pytest.raises(LockError):
        directory.lock_task(TASK)
    directory.release()


def test_threads_that_start_at_the_same_moment_agree(tmp_path: Path, threads: Threads) -> None:
    """Also while a client leaves, whose folder some of them may find taken, and others free."""
    gone = threads.start(C)
    started = [(client, threads.start(client)) for client in (A, B, A, B, A, B)]
    gone.go()
    gone.folder()
    for index, (_, thread) in enumerate(started):
        thread.go()
        if index == 2:
            gone.kill()
    folders: dict[uuid.UUID, set[Path]] = {A: set(), B: set()}
    for client, thread in started:
        folders[client].add(thread.folder())
    assert [len(each) for each in folders.values()] == [1, 1]
    assert folders[A] != folders[B]


def test_a_folder_is_free_when_the_last_thread_of_its_client_is_gone(
    tmp_path: Path, threads: Threads
) -> None:
    """However it ended, and though a child that it forked lives on; what is in it is kept."""
    first, second = threads.start(A, "0_0", forks=True), threads.start(A, "0_1")
    for thread in (first, second):
        thread.go()
        thread.folder()
    first.kill()
    assert threads.folder(B) == tmp_path / "app" / "client-2"
    second.kill()
    directory = claimed(tmp_path, C)
    assert directory.path == tmp_path / "app"
    assert directory.task_ids() == [TASK, TaskId(0, 1)]
    directory.lock_task(TASK)
    directory.unlock_task(TASK)
    directory.release()


def test_a_client_that_comes_back_finds_its_folder_again(tmp_path: Path) -> None:
    """Though another one, which comes before, is free by then; unless somebody needed its own."""
    a, b = claimed(tmp_path, A), claimed(tmp_path, B)
    for directory in (a, b):
        directory.release()
    b = claimed(tmp_path, B)
    assert b.path == tmp_path / "app" / "client-2"
    c = claimed(tmp_path, C)
    assert c.path == tmp_path / "app"
    a = claimed(tmp_path, A)
    assert a.path == tmp_path / "app" / "client-3"
    for directory in (a, b, c):
        directory.release()
        directory.release()


def test_a_folder_keeps_its_process_id_whoever_has_it(tmp_path: Path) -> None:
    """It names the state that is there: over restarts, and when another driver takes it over. A
    driver has one on each host."""
    a, again, b = (claimed(tmp_path, driver) for driver in (A, A, B))
    elsewhere = claimed(tmp_path / "another host", A)
    assert a.process_id() == again.process_id()
    ids = {directory.process_id() for directory in (a, b, elsewhere)}
    assert len(ids) == 3
    for directory in (a, again, b, elsewhere):
        directory.release()
    c, b = claimed(tmp_path, C), claimed(tmp_path, B)
    assert (c.path, c.process_id()) == (a.path, a.process_id())
    assert {c.process_id(), b.process_id()} < ids
    for directory in (b, c):
        directory.release()


def test_on_its_own_host_a_client_has_the_id_of_its_driver(tmp_path: Path) -> None:
    driver = StateDirectory(tmp_path, "app")
    ours = claimed(tmp_path, driver.process_id())
    assert ours.process_id() == driver.process_id()
    ours.release()


def test_a_folder_of_before_has_its_state_and_gets_a_process_id(tmp_path: Path) -> None:
    """Before clients had process ids of their own, a folder had the line of its driver alone."""
    folder = tmp_path / "app" / "client-2"
    (folder / "0_0").mkdir(parents=True)
    (folder / ".client").write_text(f"{B}\n")
    b = claimed(tmp_path, B)
    assert (b.path, b.task_ids()) == (folder, [TASK])
    assert b.process_id() not in (A, B)
    b.release()


def test_a_process_id_that_cannot_be_read_is_replaced_where_nobody_uses_it(tmp_path: Path) -> None:
    """Who uses it would be another client in the same folder."""
    first = claimed(tmp_path, A)
    file = tmp_path / "app" / "kafka-streams-process-metadata"
    file.write_text("{}")
    with pytest.raises(StreamsError, match=r"holds no process id: it begins with '\{\}'"):
        claimed(tmp_path, A)
    first.release()
    second = claimed(tmp_path, A)
    assert second.process_id() != first.process_id()
    assert str(second.process_id()) in file.read_text()
    second.release()


def test_there_is_an_end_to_clients_on_one_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_folder, "MOST_CLIENTS", 2)
    a, b = claimed(tmp_path, A), claimed(tmp_path, B)
    with pytest.raises(LockError, match=r"All 2 folders for clients below .*app are used"):
        claimed(tmp_path, C)
    b.release()
    claimed(tmp_path, C).release()
    a.release()


def test_who_stands_still_while_it_looks_for_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    lock = FileLock(tmp_path / "app" / ".clients")
    lock.acquire()
    clock = ManualClock()
    with pytest.raises(LockError, match=f"clients is locked by process {os.getpid()}"):
        StateDirectory.of_client(tmp_path, "app", A, clock)
    assert clock.monotonic_ms() == 10_000
    lock.release()


def test_clean_up_deletes_the_folders_of_clients_that_are_gone(tmp_path: Path) -> None:
    """Of others that live nothing is touched, of one's own it is an error."""
    driver = StateDirectory(tmp_path, "app")
    ours = claimed(tmp_path, driver.process_id())
    theirs, gone = claimed(tmp_path, B), claimed(tmp_path, C)
    for directory in (ours, theirs, gone):
        directory.lock_task(TASK)
        directory.prepare_task(TASK)
        directory.unlock_task(TASK)
    gone.release()
    with pytest.raises(LockError, match="Close the application first"):
        driver.clean_up()
    ours.release()
    driver.clean_up()
    assert not gone.path.exists()
    assert (driver.task_ids(), theirs.task_ids()) == ([], [TASK])
    again, other = claimed(tmp_path, B), claimed(tmp_path, C)
    assert (again.path, other.path) == (theirs.path, driver.path)
    for directory in (theirs, again, other):
        directory.release()


def test_clean_up_leaves_nothing_when_all_are_gone(tmp_path: Path) -> None:
    for directory in [claimed(tmp_path, client) for client in (A, B)]:
        directory.lock_task(TASK)
        directory.unlock_task(TASK)
        directory.release()
    StateDirectory(tmp_path, "app").clean_up()
    assert list(tmp_path.iterdir()) == []


def test_what_clients_that_are_gone_left_is_deleted_after_the_delay(tmp_path: Path) -> None:
    """State of living ones is theirs to delete."""
    directories = [claimed(tmp_path, client) for client in (A, B, C)]
    long_ago = time.time() - 100
    for directory in directories:
        directory.lock_task(TASK)
        directory.unlock_task(TASK)
        os.utime(directory.task_directory(TASK), (long_ago, long_ago))
    mine, living, gone = directories
    gone.release()
    assert mine.remove_obsolete_tasks(unused_for_ms=50_000, clock=SystemClock()) == [TASK]
    assert [directory.task_ids() for directory in directories] == [[], [TASK], []]
    living.release()
    mine.release()
