"""A lock holds for the file that others find, not for a deleted one."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import LockError
from millstream.state.directories.disk import Disk
from millstream.state.directories.file_lock import FileLock
from millstream.state.directories.locked_directory import LockedDirectory


def test_a_file_deleted_during_locking_is_locked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is deleted between opening and locking, a few times."""
    path = tmp_path / "lock"
    deletions = 3
    flock = fcntl.flock

    def flock_after_deletion(descriptor: int, operation: int) -> Any:
        nonlocal deletions
        if deletions:
            deletions -= 1
            path.unlink()
        return flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock_after_deletion)
    lock = FileLock(path)
    lock.acquire()
    assert lock.is_held
    with pytest.raises(LockError):
        FileLock(path).acquire()
    lock.release()
    lock.release()
    FileLock(path).acquire()


def test_locking_fails_if_the_file_is_always_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After several attempts, not in an endless loop."""
    path = tmp_path / "lock"
    monkeypatch.setattr(fcntl, "flock", lambda descriptor, operation: path.unlink())
    with pytest.raises(LockError, match="was deleted"):
        FileLock(path).acquire()


def test_an_unreadable_lock_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Detects a failed attempt that leaves the file open and therefore locked."""
    path = tmp_path / "lock"
    holder, other = FileLock(path), FileLock(path)
    holder.acquire()

    def fail(*_: object) -> None:
        raise OSError("Input/output error")

    monkeypatch.setattr("os.pread", fail)
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            other.acquire()
        assert not other.is_held
    monkeypatch.undo()
    holder.release()
    other.acquire()
    other.release()


def test_a_read_only_directory_is_unlocked(tmp_path: Path) -> None:
    """Its disk has become read-only. Detects a lock that outlives its task."""

    class ReadOnly(Disk):
        def touch(self, path: Path) -> None:
            raise OSError("Read-only file system")

    directory = LockedDirectory(tmp_path / "app" / "0_0", tmp_path / "app", "task 0_0", ReadOnly())
    directory.lock()
    with pytest.raises(OSError, match="Read-only"):
        directory.unlock()
    FileLock(tmp_path / "app" / "0_0" / ".lock").acquire()
