"""The stream threads of one driver share a folder; those of different drivers never do."""

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

#: A thread of a client: gets its folder, optionally locks a task, prints the folder and keeps
#: running.
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
    """A process that acts as a stream thread of a client."""

    def __init__(self, state_dir: Path, client: uuid.UUID, task: str = "", forks: str = "") -> None:
        super().__init__(sys.executable, "-c", _THREAD, state_dir, str(client), task, forks)

    def claim_folder(self) -> None:
        """Start looking for a folder."""
        self.write_line("")

    def folder(self) -> Path:
        return Path(self.wait_for_line("folder "))


class Threads:
    """Starts threads, and ends all of them on `close()`."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._all = contextlib.ExitStack()

    def start(self, client: uuid.UUID, task: str = "", *, forks: bool = False) -> Thread:
        thread = Thread(self._state_dir, client, task, "forks" if forks else "")
        return self._all.enter_context(thread)

    def folder(self, client: uuid.UUID, task: str = "") -> Path:
        """The folder of a new thread."""
        thread = self.start(client, task)
        thread.claim_folder()
        return thread.folder()

    def close(self) -> None:
        self._all.close()


@pytest.fixture
def threads(tmp_path: Path) -> Iterator[Threads]:
    threads = Threads(tmp_path)
    yield threads
    threads.close()


def claim(state_dir: Path, client: uuid.UUID) -> StateDirectory:
    """The folder of a client, claimed by a thread in this process."""
    return StateDirectory.of_client(state_dir, "app", client, SystemClock())


@pytest.mark.extended
def test_two_clients_on_one_host_do_not_wait_for_each_other(
    tmp_path: Path, threads: Threads
) -> None:
    """Both lock the same task, in their own folders. The first client gets the application's
    folder."""
    assert threads.folder(A, "0_0") == tmp_path / "app"
    assert threads.folder(B, "0_0") == tmp_path / "app" / "client-2"
    assert threads.folder(C, "0_0") == tmp_path / "app" / "client-3"


@pytest.mark.extended
def test_the_threads_of_a_client_share_its_folder(tmp_path: Path, threads: Threads) -> None:
    threads.folder(A)
    folders = {threads.folder(B, f"0_{number}") for number in range(3)}
    assert folders == {tmp_path / "app" / "client-2"}
    directory = claim(tmp_path, B)
    with pytest.raises(LockError):
        directory.lock_task(TASK)
    directory.release()


def test_threads_that_start_simultaneously_agree(tmp_path: Path, threads: Threads) -> None:
    """Also while a client leaves, so that some threads find its folder locked and others find it
    free."""
    gone = threads.start(C)
    started = [(client, threads.start(client)) for client in (A, B, A, B, A, B)]
    gone.claim_folder()
    gone.folder()
    for index, (_, thread) in enumerate(started):
        thread.claim_folder()
        if index == 2:
            gone.kill()
    folders: dict[uuid.UUID, set[Path]] = {A: set(), B: set()}
    for client, thread in started:
        folders[client].add(thread.folder())
    assert [len(each) for each in folders.values()] == [1, 1]
    assert folders[A] != folders[B]


def test_a_folder_is_free_when_the_last_thread_of_its_client_has_ended(
    tmp_path: Path, threads: Threads
) -> None:
    """Even if it was killed and its forked child still runs. The content of the folder stays."""
    first, second = threads.start(A, "0_0", forks=True), threads.start(A, "0_1")
    for thread in (first, second):
        thread.claim_folder()
        thread.folder()
    first.kill()
    assert threads.folder(B) == tmp_path / "app" / "client-2"
    second.kill()
    directory = claim(tmp_path, C)
    assert directory.path == tmp_path / "app"
    assert directory.task_ids() == [TASK, TaskId(0, 1)]
    directory.lock_task(TASK)
    directory.unlock_task(TASK)
    directory.release()


def test_a_returning_client_gets_its_previous_folder(tmp_path: Path) -> None:
    """Even if a lower one is free, unless another client uses its folder."""
    a, b = claim(tmp_path, A), claim(tmp_path, B)
    for directory in (a, b):
        directory.release()
    b = claim(tmp_path, B)
    assert b.path == tmp_path / "app" / "client-2"
    c = claim(tmp_path, C)
    assert c.path == tmp_path / "app"
    a = claim(tmp_path, A)
    assert a.path == tmp_path / "app" / "client-3"
    for directory in (a, b, c):
        directory.release()
        directory.release()


def test_a_folder_keeps_its_process_id_across_clients(tmp_path: Path) -> None:
    """The id identifies the state in the folder, over restarts and when another driver takes the
    folder over. A driver has one id per host."""
    a, again, b = (claim(tmp_path, driver) for driver in (A, A, B))
    elsewhere = claim(tmp_path / "another host", A)
    assert a.process_id() == again.process_id()
    ids = {directory.process_id() for directory in (a, b, elsewhere)}
    assert len(ids) == 3
    for directory in (a, again, b, elsewhere):
        directory.release()
    c, b = claim(tmp_path, C), claim(tmp_path, B)
    assert (c.path, c.process_id()) == (a.path, a.process_id())
    assert {c.process_id(), b.process_id()} < ids
    for directory in (b, c):
        directory.release()


def test_a_client_on_the_host_of_its_driver_has_the_id_of_the_driver(tmp_path: Path) -> None:
    driver = StateDirectory(tmp_path, "app")
    ours = claim(tmp_path, driver.process_id())
    assert ours.process_id() == driver.process_id()
    ours.release()


def test_a_folder_of_an_older_version_keeps_its_state_and_gets_a_process_id(tmp_path: Path) -> None:
    """In older versions, a folder contained only the line of its driver."""
    folder = tmp_path / "app" / "client-2"
    (folder / "0_0").mkdir(parents=True)
    (folder / ".client").write_text(f"{B}\n")
    b = claim(tmp_path, B)
    assert (b.path, b.task_ids()) == (folder, [TASK])
    assert b.process_id() not in (A, B)
    b.release()


def test_an_unreadable_process_id_is_replaced_if_unused(tmp_path: Path) -> None:
    """While a thread uses it, replacing it would put another client into the same folder."""
    first = claim(tmp_path, A)
    file = tmp_path / "app" / "kafka-streams-process-metadata"
    file.write_text("{}")
    with pytest.raises(StreamsError, match=r"does not contain a process id: it starts with '\{\}'"):
        claim(tmp_path, A)
    first.release()
    second = claim(tmp_path, A)
    assert second.process_id() != first.process_id()
    assert str(second.process_id()) in file.read_text()
    second.release()


def test_the_clients_on_one_host_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_folder, "MAX_CLIENTS", 2)
    a, b = claim(tmp_path, A), claim(tmp_path, B)
    with pytest.raises(LockError, match=r"All 2 client folders in .*app are used"):
        claim(tmp_path, C)
    b.release()
    claim(tmp_path, C).release()
    a.release()


def test_the_error_names_a_process_that_blocks_the_search_for_a_folder(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    lock = FileLock(tmp_path / "app" / ".clients")
    lock.acquire()
    clock = ManualClock()
    with pytest.raises(LockError, match=f"clients is locked by process {os.getpid()}"):
        StateDirectory.of_client(tmp_path, "app", A, clock)
    assert clock.monotonic_ms() == 10_000
    lock.release()


def test_clean_up_deletes_the_folders_of_stopped_clients(tmp_path: Path) -> None:
    """It does not touch the folders of other running clients, and raises an error if its own client
    runs."""
    driver = StateDirectory(tmp_path, "app")
    ours = claim(tmp_path, driver.process_id())
    theirs, gone = claim(tmp_path, B), claim(tmp_path, C)
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
    again, other = claim(tmp_path, B), claim(tmp_path, C)
    assert (again.path, other.path) == (theirs.path, driver.path)
    for directory in (theirs, again, other):
        directory.release()


def test_clean_up_deletes_everything_when_all_clients_have_stopped(tmp_path: Path) -> None:
    for directory in [claim(tmp_path, client) for client in (A, B)]:
        directory.lock_task(TASK)
        directory.unlock_task(TASK)
        directory.release()
    StateDirectory(tmp_path, "app").clean_up()
    assert list(tmp_path.iterdir()) == []


def test_state_of_stopped_clients_is_deleted_after_the_delay(tmp_path: Path) -> None:
    """Running clients delete their own state."""
    directories = [claim(tmp_path, client) for client in (A, B, C)]
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
