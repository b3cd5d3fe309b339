"""A directory with state, which one owner at a time may use."""

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
_DISTRUSTED_FILE: Final = ".distrusted"
#: Begin the names of files beside the state, which are none themselves.
_BESIDE: Final = (".checkpoint", ".reached", _DISTRUSTED_FILE)
_PERMISSIONS: Final = 0o750

#: How often a directory may be removed by others while it is being locked.
_LOCK_ATTEMPTS: Final = 20


class LockedDirectory:
    """State of a task, or of the global stores of a thread.

    Args:
        path: the directory; made when it is locked.
        application: the application's directory, somewhere above.
        owner: for the log, for example "task 0_1".
        disk: where it is.
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
        """Become the only user, and make the directory. Does nothing the second time.

        Raises:
            LockError: another process, or another object of this one, holds the lock.
        """
        if self._lock.is_held:
            return
        for _ in range(_LOCK_ATTEMPTS):
            self._make()
            try:
                self._disk.make_directory(self.path, _PERMISSIONS)
                self._lock.acquire()
            except (FileNotFoundError, FileExistsError):
                # The directory was removed in between, by whoever cleans up: make it again.
                continue
            return
        make_directory(
            self.path, self._disk
        )  # Tells what is in the way, if it is no other process.
        raise LockError(
            f"{self.path} was deleted {_LOCK_ATTEMPTS} times while it was being locked. Look for "
            "what deletes directories below state.dir, other than Millstream."
        )

    def unlock(self) -> None:
        """Let others use the directory. Does nothing if it is not locked here."""
        if self._lock.is_held:
            try:
                with contextlib.suppress(FileNotFoundError):
                    # From now on the directory counts as unused.
                    self._disk.touch(self.path)
            finally:
                self._lock.release()

    @property
    def is_distrusted(self) -> bool:
        """Whether what is in the directory is to be thrown away by whoever uses it next."""
        return self._disk.exists(self.path / _DISTRUSTED_FILE)

    def distrust(self) -> None:
        """Have what is in the directory, which is locked, thrown away when it is prepared next."""
        self._disk.write_text(self.path / _DISTRUSTED_FILE, "")

    def prepare(self) -> None:
        """Empty the directory, which is locked, unless what is in it can be used: it is in our
        format, and nobody has said that it cannot be trusted."""
        if self.is_distrusted:
            logger.info("%s: the state in %s is deleted and rebuilt", self._owner, self.path)
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
                "%s: %s has state in another format (%s); it is deleted and rebuilt from Kafka",
                self._owner,
                self.path,
                found.strip() or "of Kafka Streams, or unknown",
            )
        self.wipe()
        self._disk.write_text(marker, _FORMAT)

    def wipe(self) -> None:
        """Delete what is in the directory, which is locked, and keep the lock."""
        # First, as nobody takes what is left for a state without it. Nothing is written, so that
        # room can be made on a full disk.
        self._disk.delete(self.path / _FORMAT_FILE)
        empty_directory(self.path, self._disk, keep=(_LOCK_FILE,))

    def remove(self) -> None:
        """Delete the directory, which nobody may use.

        Raises:
            LockError: somebody does.
        """
        if self._lock.is_held:
            raise LockError(
                f"The state of {self._owner} is in use by this process; close it first."
            )
        self.lock()
        try:
            # Its own lock last, so that the others find it taken until everything is gone.
            self.wipe()
            self._disk.delete(self.path / _LOCK_FILE)
            with contextlib.suppress(OSError):
                # Not empty: the next owner has come already, and has made a lock of his own.
                self._disk.delete_directory(self.path)
        finally:
            self.unlock()

    def has_state(self) -> bool:
        """Whether there is more in the directory than the files that come with every one."""
        ours = (_LOCK_FILE, _FORMAT_FILE)
        return any(
            entry.name not in ours and not entry.name.startswith(_BESIDE)
            for entry in self._disk.entries(self.path)
        )

    def _make(self) -> None:
        make_directory(self._application, self._disk)
        if self.path.parent != self._application:
            make_directory(self.path.parent, self._disk)


def empty_directory(path: Path, disk: Disk, *, keep: Collection[str]) -> None:
    """Delete what is in a directory, but for some files."""
    for entry in disk.entries(path):
        if entry.name in keep:
            continue
        if disk.is_directory(entry) and not entry.is_symlink():
            disk.delete_tree(entry)
        else:
            disk.delete(entry)


def make_directory(path: Path, disk: Disk) -> None:
    """Make a directory that is not for everybody, unless it is there.

    Raises:
        StreamsError: it cannot be made.
    """
    with disk_errors(f"make the state directory {path}"):
        disk.make_directory(path, _PERMISSIONS, parents=True)
