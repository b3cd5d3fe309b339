"""An exclusive file lock between processes and within one process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from millstream.errors import LockError
from millstream.state.directories.disk import Disk

_PERMISSIONS: Final = 0o640

#: Held while a descriptor is opened and registered, so that no fork happens in between.
_registry_lock: Final = threading.RLock()
_open_files: Final[set[NonInheritableFile]] = set()
#: How often to try to lock a file that other processes delete in the meantime.
_ATTEMPTS: Final = 20


class NonInheritableFile:
    """A file for `flock` that executed programs and forked children do not inherit.

    The lock belongs to the open file, which a forked child shares: a surviving child would keep the
    lock of a worker that was killed. So children close the file, which does not unlock it for the
    parent.
    """

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self.path = path
        self._disk = disk or Disk()
        self._descriptor: int | None = None

    @property
    def is_open(self) -> bool:
        return self._descriptor is not None

    @property
    def descriptor(self) -> int:
        assert self._descriptor is not None, f"{self.path} is not open"
        return self._descriptor

    @property
    def is_current(self) -> bool:
        """Whether the open file is still the one at this path."""
        try:
            current = self.path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(os.fstat(self.descriptor), current)

    def open(self) -> None:
        """Open the file, which must not be open already."""
        with _registry_lock:
            # With O_CLOEXEC, executed programs do not inherit the descriptor.
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = self._disk.open(self.path, flags, _PERMISSIONS)
            _open_files.add(self)

    def close(self) -> None:
        """Close the file, which also unlocks it. Idempotent."""
        with _registry_lock:
            descriptor, self._descriptor = self._descriptor, None
            _open_files.discard(self)
            if descriptor is not None:
                os.close(descriptor)

    def read(self) -> str:
        """Return the start of the file's content: up to 100 bytes."""
        return os.pread(self.descriptor, 100, 0).decode(errors="replace").strip()

    def write(self, text: str) -> None:
        """Replace the content of the file with one line."""
        self._disk.write_at_start(self.descriptor, self.path, f"{text}\n")


def _close_all_in_child() -> None:
    try:
        for file in list(_open_files):
            file.close()
    finally:
        _registry_lock.release()


os.register_at_fork(
    before=_registry_lock.acquire,
    after_in_parent=_registry_lock.release,
    after_in_child=_close_all_in_child,
)


class FileLock:
    """An exclusive lock on a file (`flock`).

    The lock ends with the process that holds it; forked children do not hold it. The holder's
    process id is written to the file, for error messages in other processes. Two locks on the same
    file within one process also exclude each other.

    Args:
        path: the file, which is created if it is missing, and never deleted.
    """

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self.path = path
        self._file = NonInheritableFile(path, disk)

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock, in this process."""
        return self._file.is_open

    def acquire(self) -> None:
        """Acquire the lock or fail immediately. Does nothing if the lock is already held.

        Raises:
            LockError: another owner holds the lock, or the file was deleted repeatedly.
        """
        if self._file.is_open:
            return
        for _ in range(_ATTEMPTS):
            self._file.open()
            try:
                fcntl.flock(self._file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._file.is_current:
                    # The content is only used in error messages. A full disk must not prevent
                    # locking, as directories must be locked before they are deleted.
                    with contextlib.suppress(OSError):
                        self._file.write(str(os.getpid()))
                    return
            except BlockingIOError:
                raise self._held_error() from None
            except BaseException:
                self._file.close()
                raise
            # The file was deleted after it was opened: the next process would lock another file.
            self._file.close()
        raise LockError(
            f"{self.path} was deleted {_ATTEMPTS} times while it was being locked. Find out which "
            "program other than Millstream deletes files in this directory."
        )

    def release(self) -> None:
        """Release the lock. Does nothing if the lock is not held."""
        self._file.close()

    def _held_error(self) -> LockError:
        """Create an error that names the holder of the lock; close the file."""
        try:
            holder = self._file.read() or "(unknown)"
            # The file is only written when its holder acquires the lock.
            since = datetime.fromtimestamp(int(os.fstat(self._file.descriptor).st_mtime), UTC)
        finally:
            # An open file would count as a held lock.
            self._file.close()
        return LockError(
            f"{self.path} is locked by process {holder} since {since:%Y-%m-%d %H:%M:%S} UTC. "
            "Wait until that process ends, end it if it hangs, or choose another state.dir."
        )
