"""A file that at most one owner holds, between processes and within one."""

from __future__ import annotations

import contextlib
import fcntl
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from millstream.errors import LockError
from millstream.state.directories.disk import Disk
from millstream.state.directories.own_file import OwnFile

#: How often the file may be deleted by others while it is being locked.
_ATTEMPTS: Final = 20


class FileLock:
    """An exclusive lock on a file (`flock`). It ends with the process that holds it, whatever
    children that process has forked: they do not hold it.

    The holder's process id is written into the file, to be named to whoever comes second. Two
    locks of one process exclude each other too.

    Args:
        path: the file; created if missing, never deleted by the lock.
        disk: where it is; by default this host's.
    """

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self.path = path
        self._file = OwnFile(path, disk)

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock, in this process."""
        return self._file.is_open

    def acquire(self) -> None:
        """Take the lock, or fail at once. Does nothing if it is held already.

        Raises:
            LockError: somebody else holds it.
        """
        if self._file.is_open:
            return
        for _ in range(_ATTEMPTS):
            self._file.open()
            try:
                fcntl.flock(self._file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._file.is_current:
                    # Only whoever comes second reads it. A full disk is no reason not to lock, as
                    # what is to be deleted has to be locked, too.
                    with contextlib.suppress(OSError):
                        self._file.write(str(os.getpid()))
                    return
            except BlockingIOError:
                raise self._refused() from None
            except BaseException:
                self._file.close()
                raise
            # Deleted between opening and locking: whoever comes next would lock another file.
            self._file.close()
        raise LockError(
            f"{self.path} was deleted {_ATTEMPTS} times while it was being locked. Look for what "
            "deletes files there, other than Millstream."
        )

    def release(self) -> None:
        """Give the lock back. Does nothing if it is not held."""
        self._file.close()

    def _refused(self) -> LockError:
        """Who holds the lock instead; closes the file."""
        try:
            holder = self._file.read() or "(unknown)"
            # The holder has written the file when it got the lock, and nobody else writes it.
            since = datetime.fromtimestamp(int(os.fstat(self._file.descriptor).st_mtime), UTC)
        finally:
            # An open file counts as a lock that is held.
            self._file.close()
        return LockError(
            f"{self.path} is locked by process {holder} since {since:%Y-%m-%d %H:%M:%S} UTC. "
            "Wait until that process ends, end it if it hangs, or choose another state.dir."
        )
