"""A failing or full disk causes an error with its location and advice, never a wrong state."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.machine.failing_disk import (
    CORRUPTION,
    IO_ERROR,
    NO_SPACE,
    FailingStorages,
    FullDisk,
)

from millstream.clock import SystemClock
from millstream.errors import StreamsError, TaskCorruptedError
from millstream.record import TaskId, TopicPartition
from millstream.serdes import LONG, STRING
from millstream.state.builders.store_builder import KeyValueStoreBuilder
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.directories.disk import Disk
from millstream.state.directories.state_directory import StateDirectory
from millstream.state.storage.rocksdb import RocksDBStorages
from millstream.state.storage.storages import storage_error
from millstream.state.task_stores import TaskStores

TASK = TaskId(0, 1)
CHANGELOG = TopicPartition("app-s-changelog", 1)

Open = Callable[..., TaskStores]


@pytest.fixture
def storages() -> FailingStorages:
    return FailingStorages(RocksDBStorages())


@pytest.fixture
def make(tmp_path: Path, changelog: Any, context: Any, storages: FailingStorages) -> Open:
    """Creates the stores of task 0_1: one store `s`, with a cache if there is a budget."""

    def make(*, disk: Disk | None = None, budget: int = 0) -> TaskStores:
        builder = KeyValueStoreBuilder(
            "s", kind="rocksdb", key_serde=STRING, value_serde=LONG, caching=True
        )
        return TaskStores(
            TASK,
            [builder],
            StateDirectory(tmp_path, "app", disk=disk),
            application_id="app",
            changelogs={"s": CHANGELOG},
            writer=changelog,
            context=context,
            budget=CacheBudget(budget),
            storages=storages,
        )

    return make


def assert_message(error: StreamsError, *, advice: str) -> None:
    """The error contains the store, the task, the directory and the advice."""
    assert "store s of task 0_1 in " in error.message
    assert "app/0_1/rocksdb/s" in error.message
    assert advice in error.message


def test_a_failed_commit_keeps_its_writes(make: Open, storages: FailingStorages) -> None:
    """Offset and data stay as they were, and the commit can be retried."""
    stores = make()
    stores.open()
    stores.store("s").put("a", 1)
    storages.failures["write"] = IO_ERROR
    with pytest.raises(StreamsError) as caught:
        stores.commit({CHANGELOG: 0})
    assert_message(caught.value, advice="disk errors")
    assert stores.changelog_offsets() == {CHANGELOG: None}
    storages.failures.clear()
    stores.commit({CHANGELOG: 0})
    stores.close(clean=True)
    stores.open()
    assert stores.changelog_offsets() == {CHANGELOG: 0}
    assert stores.store("s").get("a") == 1
    stores.close(clean=True)


@pytest.mark.parametrize("budget", [0, 1 << 20])
def test_only_a_commit_writes_to_the_disk(
    make: Open, storages: FailingStorages, budget: int
) -> None:
    """Detects stores that write while records are processed, before the results are sent."""
    stores = make(budget=budget)
    stores.open()
    storages.failures["write"] = NO_SPACE
    for number in range(1_000):
        stores.store("s").put(f"b{number}", 1)
    stores.flush_cache("s")
    stores.log_changes()
    stores.on_commit_started()
    with pytest.raises(StreamsError) as caught:
        stores.commit({})
    assert_message(caught.value, advice="Free space on this disk")
    storages.failures.clear()
    stores.close(clean=False)


@pytest.mark.parametrize("attempt", ["read", "scan"])
def test_a_failed_read_raises(make: Open, storages: FailingStorages, attempt: str) -> None:
    """An error is better than a wrong result."""
    stores = make()
    stores.open()
    storages.failures[attempt] = IO_ERROR
    with pytest.raises(StreamsError) as caught:
        list(stores.store("s").all()) if attempt == "scan" else stores.store("s").get("a")
    assert_message(caught.value, advice="disk errors")
    stores.close(clean=False)


def test_restoring_to_a_full_disk_can_be_continued(make: Open, storages: FailingStorages) -> None:
    """The offset does not exceed the written data."""
    stores = make()
    stores.open()
    restorer = stores.restorers()[CHANGELOG]
    value = LONG.serialize("t", 1)
    restorer.restore_batch([b"a"], [value], [0], [0])
    storages.failures["write"] = NO_SPACE
    with pytest.raises(StreamsError) as caught:
        restorer.restore_batch([b"b"], [value], [0], [1])
    assert_message(caught.value, advice="Free space on this disk")
    assert restorer.start_offset() == 1
    storages.failures.clear()
    restorer.restore_batch([b"b"], [value], [0], [1])
    assert list(stores.store("s").all()) == [("a", 1), ("b", 1)]
    stores.close(clean=True)


def test_a_failed_open_does_not_keep_locks(make: Open, storages: FailingStorages) -> None:
    """Another thread can open the task immediately."""
    storages.failures["open"] = IO_ERROR
    with pytest.raises(StreamsError) as caught:
        make().open()
    assert_message(caught.value, advice="disk errors")
    storages.failures.clear()
    other = make()
    other.open()
    other.close(clean=True)


def test_a_corrupted_store_is_deleted_and_rebuilt(make: Open, storages: FailingStorages) -> None:
    """Unreadable data is deleted after the owner has marked the task as corrupted."""
    stores = make()
    stores.open()
    stores.store("s").put("a", 1)
    storages.failures["write"] = CORRUPTION
    with pytest.raises(TaskCorruptedError) as caught:
        stores.commit({CHANGELOG: 0})
    assert_message(caught.value, advice="rebuilt from its changelog")
    assert caught.value.task_ids == {TASK}
    storages.failures.clear()
    stores.mark_corrupted()
    stores.close(clean=False)
    stores.open()
    assert stores.changelog_offsets() == {CHANGELOG: None}
    stores.close(clean=True)


def test_a_failed_close_unlocks_the_task(make: Open, storages: FailingStorages) -> None:
    """It raises an error, and the next owner can open the task."""
    stores = make()
    stores.open()
    storages.failures["close"] = IO_ERROR
    with pytest.raises(StreamsError) as caught:
        stores.close(clean=True)
    assert_message(caught.value, advice="disk errors")
    storages.failures.clear()
    other = make()
    other.open()
    other.close(clean=True)


def test_the_error_of_a_task_opened_on_a_full_disk(make: Open, tmp_path: Path) -> None:
    """It is not a bare `OSError`, and no lock stays."""
    disk = FullDisk()
    stores = make(disk=disk)
    disk.is_full = True
    with pytest.raises(StreamsError, match=r"No space left on device.*state\.dir") as caught:
        stores.open()
    assert str(tmp_path / "app") in caught.value.message
    disk.is_full = False
    stores.open()
    stores.close(clean=True)


def test_a_task_closes_if_its_position_cannot_be_written(
    make: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the assignment of tasks reads that position."""
    disk = FullDisk()
    stores = make(disk=disk)
    stores.open()
    stores.store("s").put("a", 1)
    stores.commit({CHANGELOG: 0})
    disk.is_full = True
    with caplog.at_level(logging.WARNING):
        stores.close(clean=True)
    assert "No space left on device" in caplog.text


def test_space_can_be_freed_on_a_full_disk(make: Open, tmp_path: Path) -> None:
    """Locking and deleting need no space, and a partly deleted directory is not state."""
    disk = FullDisk()
    stores = make(disk=disk)
    stores.open()
    stores.store("s").put("a", 1)
    stores.commit({CHANGELOG: 0})
    stores.close(clean=True)
    disk.is_full = True
    directory = StateDirectory(tmp_path, "app", disk=disk)
    assert directory.remove_obsolete_tasks(unused_for_ms=0, clock=SystemClock()) == [TASK]
    assert directory.task_ids() == []


def test_the_rest_of_a_failed_deletion_is_not_state(make: Open, tmp_path: Path) -> None:
    """An offset without its data would lose the records of the changelog."""
    stores = make()
    stores.open()
    stores.store("s").put("a", 1)
    stores.commit({CHANGELOG: 0})
    stores.close(clean=True)

    class UndeletableDisk(Disk):
        def delete_tree(self, path: Path) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    directory = StateDirectory(tmp_path, "app", disk=UndeletableDisk())
    assert directory.remove_obsolete_tasks(unused_for_ms=0, clock=SystemClock()) == []
    stores.open()
    assert stores.changelog_offsets() == {CHANGELOG: None}
    assert list(stores.store("s").all()) == []
    stores.close(clean=True)


def test_the_error_of_a_full_disk_in_the_state_directory_of_the_driver(tmp_path: Path) -> None:
    disk = FullDisk()
    disk.is_full = True
    with pytest.raises(StreamsError, match=r"Cannot create the state directory .*No space left"):
        StateDirectory(tmp_path, "app", disk=disk).process_id()
    (tmp_path / "app").mkdir()
    with pytest.raises(StreamsError, match=r"Cannot store the process id in .*No space left"):
        StateDirectory(tmp_path, "app", disk=disk).process_id()


def test_storage_errors_are_not_wrapped_twice() -> None:
    """Otherwise the message would contain the location twice."""
    known = StreamsError("known")
    assert storage_error("read", "s", TASK, Path("p"), known) is known


#: Fills a real database until the system rejects writes to a file.
_WRITE_TOO_MUCH = """
import resource, signal, sys
from pathlib import Path
from millstream.record import TaskId
from millstream.state.storage.rocksdb import RocksDBStorages

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
storage = RocksDBStorages().open("s", Path(sys.argv[1]) / "s", TaskId(0, 1))
limit = 1 << 20
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    for number in range(64):
        storage.write_batch({b"%d" % number: bytes(1 << 16)}, None)
except Exception as error:
    print(type(error).__name__, error)
"""


def test_the_error_of_rocksdb_on_a_full_disk_is_recognized(tmp_path: Path) -> None:
    """With a real database, to check that the simulated error is realistic."""
    done = subprocess.run(
        [sys.executable, "-c", _WRITE_TOO_MUCH, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.startswith("StreamsError Cannot write store s of task 0_1 in "), done
    assert "Free space on this disk" in done.stdout
