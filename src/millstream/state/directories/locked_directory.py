"""State directories with at most one owner at a time."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection
from pathlib import Path
from typing import Final

from millstream.errors import LockError
from millstream.state.directories.disk import Disk, disk_errors
from millstream.state.directories.file_lock import FileLock

logger = logging.getLogger(__name__)

_LOCK_FILE: Final = ".lock"
_FORMAT_FILE: Final = ".format"
_FORMAT: Final = "millstream 1\n"
_CORRUPTED_FILE: Final = ".distrusted"
#: Name prefixes of metadata files, which do not count as state.
_METADATA_PREFIXES: Final = (".checkpoint", ".reached", _CORRUPTED_FILE)
_PERMISSIONS: Final = 0o750

#: How often to try to lock a directory that other processes delete in the meantime.
_LOCK_ATTEMPTS: Final = 20


class LockedDirectory:
    """The state directory of a task or of a thread's global stores, with its lock.

    Args:
        application: the application's directory, which contains this one.
        owner: the owner's name in messages, for example "task 0_1".
    """

    def __init__(self, path: Path, application: Path, owner: str, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        self._application = application
        self._owner = owner
        self._lock = FileLock(path / _LOCK_FILE, disk)

    @property
    def is_locked(self) -> bool:
        """Whether this object holds the lock, in this process."""
        return self._lock.is_held

    def lock(self) -> None:
        """Lock the directory; create it if missing. Idempotent.

        Raises:
            LockError: another process, or another object in this process, holds the lock, or the
                directory was deleted repeatedly.
            StreamsError: the directory cannot be created.
        """
        if self._lock.is_held:
            return
        for _ in range(_LOCK_ATTEMPTS):
            self._make()
            try:
                self._disk.make_directory(self.path, _PERMISSIONS)
                self._lock.acquire()
            except (FileNotFoundError, FileExistsError):
                # A cleanup deleted the directory in the meantime: create it again.
                continue
            return
        # If the directory cannot be created at all, this raises a more specific error.
        make_directory(self.path, self._disk)
        raise LockError(
            f"{self.path} was deleted {_LOCK_ATTEMPTS} times while it was being locked. Find out "
            "which program other than Millstream deletes directories in state.dir."
        )

    def unlock(self) -> None:
        """Unlock the directory. Does nothing if this object does not hold the lock."""
        if self._lock.is_held:
            try:
                with contextlib.suppress(FileNotFoundError):
                    # The modification time of the directory is the time of its last use.
                    self._disk.touch(self.path)
            finally:
                self._lock.release()

    @property
    def is_marked_corrupted(self) -> bool:
        """Whether the next owner must delete the contents of the directory."""
        return self._disk.exists(self.path / _CORRUPTED_FILE)

    def mark_corrupted(self) -> None:
        """Mark the locked directory as corrupted, so that the next `prepare` empties it."""
        self._disk.write_text(self.path / _CORRUPTED_FILE, "")

    def prepare(self) -> None:
        """Empty the locked directory if marked as corrupted or of an unknown format."""
        if self.is_marked_corrupted:
            logger.info("%s: deleting and restoring the state in %s", self._owner, self.path)
            self.wipe()
        marker = self.path / _FORMAT_FILE
        try:
            found = self._disk.read_text(marker)
        except FileNotFoundError:
            found = ""
        if found == _FORMAT:
            return
        if self.has_state():
            logger.info(
                "%s: %s has state in another format (%s); deleting it and restoring from Kafka",
                self._owner,
                self.path,
                found.strip() or "that of Kafka Streams, or unknown",
            )
        self.wipe()
        self._disk.write_text(marker, _FORMAT)

    def wipe(self) -> None:
        """Delete the contents of the locked directory and keep the lock."""
        # Delete the format file first: without it, remaining files do not count as valid state.
        # Nothing is written, so this works on a full disk.
        self._disk.delete(self.path / _FORMAT_FILE)
        empty_directory(self.path, self._disk, keep=(_LOCK_FILE,))

    def remove(self) -> None:
        """Delete the directory, which must not be in use.

        Raises:
            LockError: the directory is in use.
        """
        if self._lock.is_held:
            raise LockError(
                f"The state of {self._owner} is in use by this process. Close its stores first."
            )
        self.lock()
        try:
            # Delete the lock last, so that the directory stays locked until it is empty.
            self.wipe()
            self._disk.delete(self.path / _LOCK_FILE)
            with contextlib.suppress(OSError):
                # Fails if the next owner has already created its own lock in the directory.
                self._disk.delete_directory(self.path)
        finally:
            self.unlock()

    def has_state(self) -> bool:
        """Return whether the directory contains more than metadata files."""
        ours = (_LOCK_FILE, _FORMAT_FILE)
        return any(
            entry.name not in ours and not entry.name.startswith(_METADATA_PREFIXES)
            for entry in self._disk.entries(self.path)
        )

    def _make(self) -> None:
        make_directory(self._application, self._disk)
        if self.path.parent != self._application:
            make_directory(self.path.parent, self._disk)


def empty_directory(path: Path, disk: Disk, *, keep: Collection[str]) -> None:
    """Delete the contents of a directory, except for the entries named in `keep`."""
    for entry in disk.entries(path):
        if entry.name in keep:
            continue
        if disk.is_directory(entry) and not entry.is_symlink():
            disk.delete_tree(entry)
        else:
            disk.delete(entry)


def make_directory(path: Path, disk: Disk) -> None:
    """Create a directory with restricted permissions, if it does not exist.

    Raises:
        StreamsError: the directory cannot be created.
    """
    with disk_errors(f"create the state directory {path}"):
        disk.make_directory(path, _PERMISSIONS, parents=True)
