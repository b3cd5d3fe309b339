"""A file that at most one owner holds, between processes and within one."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from millstream.errors import LockError

#: How often the file may be deleted by others while it is being locked.
_ATTEMPTS: Final = 20


class FileLock:
    """An exclusive lock on a file (`flock`). It ends with the process that holds it.

    The holder's process id is written into the file, to be named to whoever comes second. Two
    locks of one process exclude each other too.

    Args:
        path: the file; created if missing, never deleted by the lock.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def acquire(self) -> None:
        """Take the lock, or fail at once. Does nothing if it is held already.

        Raises:
            LockError: somebody else holds it.
        """
        if self._descriptor is not None:
            return
        for _ in range(_ATTEMPTS):
            # Not inherited by programs that are started from here: they would keep the lock alive.
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
                os.close(descriptor)
                raise LockError(
                    f"{self.path} is locked by process {holder or '(unknown)'}. "
                    "Wait until that process ends, or choose another state.dir."
                ) from None
            except BaseException:
                os.close(descriptor)
                raise
            if self._is_current(descriptor):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
                self._descriptor = descriptor
                return
            # Deleted between opening and locking: whoever comes next would lock another file.
            os.close(descriptor)
        raise LockError(
            f"{self.path} was deleted {_ATTEMPTS} times while it was being locked. Look for what "
            "deletes files there, other than Millstream."
        )

    def release(self) -> None:
        """Give the lock back. Does nothing if it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _is_current(self, descriptor: int) -> bool:
        try:
            there = self.path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(os.fstat(descriptor), there)
