"""A directory has one owner, whatever processes do, and the layout of Kafka Streams."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.machine.lock_holder import lock_held
from support.machine.scripts import Program

from millstream.clock import ManualClock
from millstream.errors import LockError, StreamsError
from millstream.record import TaskId
from millstream.state.directories.state_directory import StateDirectory

TASK = TaskId(0, 1)


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Callable[[str], Program]]:
    """Starts a process that holds the lock of the application or of task 0_1."""
    with contextlib.ExitStack() as holders:
        yield lambda lock: holders.enter_context(lock_held(tmp_path, lock))


def test_a_task_lock_excludes_other_processes_and_ends_with_its_own(
    tmp_path: Path, hold: Callable[[str], Program]
) -> None:
    """The error names the holder's pid. After SIGKILL, the lock is free immediately."""
    holder = hold("0_1")
    directory = StateDirectory(tmp_path, "app")
    with pytest.raises(LockError, match=f"process {holder.pid}") as caught:
        directory.lock_task(TASK)
    assert caught.value.task_id == TASK
    assert caught.value.retriable
    directory.lock_task(TaskId(0, 2))
    holder.kill()
    directory.lock_task(TASK)
    directory.unlock_task(TASK)


def test_the_error_for_a_second_driver_suggests_another_directory(
    tmp_path: Path, hold: Callable[[str], Program]
) -> None:
    """Two instances of one application on one host need two state directories."""
    hold("app")
    with pytest.raises(LockError, match=r"needs its own state\.dir"):
        StateDirectory(tmp_path, "app").lock_application()
    StateDirectory(tmp_path, "other").lock_application()


def test_locks_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    """Two stream threads in one process are two owners. An owner may lock repeatedly."""
    one, other = StateDirectory(tmp_path, "app"), StateDirectory(tmp_path, "app")
    one.lock_task(TASK)
    one.lock_task(TASK)
    with pytest.raises(LockError, match=str(os.getpid())):
        other.lock_task(TASK)
    other.unlock_task(TASK)
    one.unlock_task(TASK)
    other.lock_task(TASK)


def test_the_process_id_is_created_once(tmp_path: Path) -> None:
    """Concurrent threads get the same id, from Kafka Streams' file."""
    start = threading.Barrier(16)
    found: list[uuid.UUID] = []

    def get_process_id() -> None:
        start.wait(timeout=10)
        found.append(StateDirectory(tmp_path, "app").process_id())

    threads = [threading.Thread(target=get_process_id) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert len(found) == 16
    assert len(set(found)) == 1
    (file,) = (tmp_path / "app").iterdir()
    assert file.name == "kafka-streams-process-metadata"
    assert json.loads(file.read_text()) == {"processId": str(found[0])}


def test_an_unreadable_process_id_is_replaced(tmp_path: Path) -> None:
    """Only the owner of the directory replaces it; for others it is an error."""
    directory = StateDirectory(tmp_path, "app")
    directory.process_id()
    path = tmp_path / "app" / "kafka-streams-process-metadata"
    for garbage in ("", "{", "[]", '{"processId": 1}', '{"processId": "x"}'):
        path.write_text(garbage)
        with pytest.raises(StreamsError, match="does not contain a process id"):
            directory.process_id()
        directory.lock_application()
        found = directory.process_id()
        directory.unlock_application()
        assert json.loads(path.read_text()) == {"processId": str(found)}


def test_directories_are_not_readable_by_others(tmp_path: Path) -> None:
    """Permissions are 750, as in Kafka Streams."""
    directory = StateDirectory(tmp_path, "app")
    directory.lock_task(TASK)
    for path in (tmp_path / "app", directory.task_directory(TASK)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o750


def test_the_error_names_state_dir_if_a_directory_cannot_be_created(tmp_path: Path) -> None:
    """A file has the name of the directory."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StreamsError, match=r"state\.dir"):
        StateDirectory(tmp_path / "file", "app").lock_application()


def test_state_of_kafka_streams_is_deleted_and_ours_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A task directory without our marker is emptied, and this is logged."""
    directory = StateDirectory(tmp_path, "app")
    theirs = directory.task_directory(TASK) / "rocksdb" / "counts"
    theirs.mkdir(parents=True)
    (theirs / "CURRENT").write_text("MANIFEST-000001\n")
    directory.checkpoint_path(TASK).write_text("0\n0\n")
    directory.lock_task(TASK)
    with caplog.at_level(logging.INFO):
        assert directory.prepare_task(TASK) == directory.task_directory(TASK)
    assert "another format" in caplog.text
    assert sorted(path.name for path in directory.task_directory(TASK).iterdir()) == [
        ".format",
        ".lock",
    ]
    theirs.mkdir(parents=True)
    directory.prepare_task(TASK)
    assert theirs.exists()
    (directory.task_directory(TASK) / ".format").write_text("millstream 999\n")
    directory.prepare_task(TASK)
    assert not theirs.exists()


def test_task_ids_are_listed(tmp_path: Path) -> None:
    """Sorted, without other directories; optionally only those with state."""
    directory = StateDirectory(tmp_path, "app")
    assert directory.task_ids() == []
    for task_id in (TaskId(1, 0), TaskId(0, 10), TaskId(0, 2)):
        directory.lock_task(task_id)
        directory.prepare_task(task_id)
    (tmp_path / "app" / "global").mkdir()
    (directory.task_directory(TaskId(0, 10)) / "rocksdb").mkdir()
    directory.checkpoint_path(TaskId(1, 0)).write_text("0\n0\n")
    assert directory.task_ids() == [TaskId(0, 2), TaskId(0, 10), TaskId(1, 0)]
    assert directory.task_ids(with_state_only=True) == [TaskId(0, 10)]


def test_clean_up_deletes_everything_unless_in_use(
    tmp_path: Path, hold: Callable[[str], Program]
) -> None:
    """It fails while another process uses a task, and deletes everything afterwards."""
    directory = StateDirectory(tmp_path, "app")
    directory.clean_up()
    holder = hold("0_1")
    data = directory.task_directory(TASK) / "rocksdb"
    data.mkdir()
    with pytest.raises(LockError):
        directory.clean_up()
    assert data.exists()
    holder.kill()
    directory.clean_up()
    assert not (tmp_path / "app").exists()


def test_obsolete_tasks_are_removed_after_the_delay(tmp_path: Path) -> None:
    """Only tasks that are unlocked, and have been for long enough."""
    now_ms = time.time_ns() // 1_000_000
    directory, other = StateDirectory(tmp_path, "app"), StateDirectory(tmp_path, "app")
    old, fresh, mine, used = (TaskId(0, n) for n in range(4))
    for task_id in (old, fresh):
        directory.lock_task(task_id)
        directory.unlock_task(task_id)
    directory.lock_task(mine)
    other.lock_task(used)
    long_ago = (now_ms - 100_000) / 1_000
    for task_id in (old, mine, used):
        os.utime(directory.task_directory(task_id), (long_ago, long_ago))
    clock = ManualClock(now_ms)
    assert directory.remove_obsolete_tasks(unused_for_ms=50_000, clock=clock) == [old]
    assert directory.task_ids() == [fresh, mine, used]
    other.unlock_task(used)
    assert directory.remove_obsolete_tasks(unused_for_ms=50_000, clock=clock) == []


def test_expired_state_is_removed_at_the_start(tmp_path: Path) -> None:
    """Not if it is in use, or if anything below the directory has changed since: a killed process
    does not update the time of its directory."""
    now_ms = time.time_ns() // 1_000_000
    directory, other = StateDirectory(tmp_path, "app"), StateDirectory(tmp_path, "app")
    old, closed, killed, used = (TaskId(0, n) for n in range(4))
    for task_id in (old, closed, killed, used):
        other.lock_task(task_id)
        store = directory.task_directory(task_id) / "rocksdb" / "counts"
        store.mkdir(parents=True)
        (store / "CURRENT").write_text("MANIFEST-000001\n")
        if task_id != used:
            other.unlock_task(task_id)
    ages = {old: 60_001, closed: 60_000, killed: 100_000, used: 100_000}
    for task_id, age_ms in ages.items():
        then_ns = (now_ms - age_ms) * 1_000_000
        path = directory.task_directory(task_id)
        for each in (path, *path.rglob("*")):
            os.utime(each, ns=(then_ns, then_ns))
    just_now = directory.task_directory(killed) / "rocksdb" / "counts" / "CURRENT"
    os.utime(just_now, ns=(now_ms * 1_000_000, now_ms * 1_000_000))
    clock = ManualClock(now_ms)
    assert directory.remove_outdated_tasks(max_age_ms=60_000, clock=clock) == [old]
    assert directory.task_ids() == [closed, killed, used]
    clock.advance(60_001)
    assert directory.remove_outdated_tasks(max_age_ms=60_000, clock=clock) == [closed, killed]


def test_a_lock_file_deleted_meanwhile_is_locked_again(tmp_path: Path) -> None:
    """Many threads remove and lock a directory, which never has two owners."""
    owners: list[int] = []
    most: list[int] = []
    mutex = threading.Lock()

    def lock_briefly(number: int) -> None:
        directory = StateDirectory(tmp_path, "app")
        directory.lock_task(TASK)
        with mutex:
            owners.append(number)
            most.append(len(owners))
        with mutex:
            owners.remove(number)
        directory.unlock_task(TASK)
        directory.remove_task_directory(TASK)

    def work(number: int) -> None:
        for _ in range(50):
            with contextlib.suppress(LockError):
                lock_briefly(number)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, number) for number in range(4)]:
            done.result(timeout=30)
    assert most
    assert max(most) == 1
