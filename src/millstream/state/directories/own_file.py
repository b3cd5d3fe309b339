"""An open file that belongs to this process alone: neither programs nor forked children have it."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

from millstream.state.directories.disk import Disk

_PERMISSIONS: Final = 0o640

#: Held while a descriptor is opened and taken down, so that no fork comes in between.
_changing: Final = threading.RLock()
_open_files: Final[set[OwnFile]] = set()


class OwnFile:
    """A file to be locked with `flock`.

    Such a lock belongs to the open file, which a forked child shares: a child that lives on would
    keep the lock of a worker that was killed. So children close it, which does not unlock it for
    the parent, and find it closed.

    Args:
        path: the file; created when it is opened.
        disk: where it is; by default this host's.
    """

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self.path = path
        self._disk = disk or Disk()
        self._descriptor: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether this process has the file open."""
        return self._descriptor is not None

    @property
    def descriptor(self) -> int:
        """Of the file, which is open."""
        assert self._descriptor is not None, f"{self.path} is not open"
        return self._descriptor

    @property
    def is_current(self) -> bool:
        """Whether the open file is the one that others find under this path, not a deleted one."""
        try:
            there = self.path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(os.fstat(self.descriptor), there)

    def open(self) -> None:
        """Open the file, which is closed."""
        with _changing:
            # Programs that are started from here do not inherit it.
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = self._disk.open(self.path, flags, _PERMISSIONS)
            _open_files.add(self)

    def close(self) -> None:
        """Close the file, and so unlock it. Does nothing if it is closed."""
        with _changing:
            descriptor, self._descriptor = self._descriptor, None
            _open_files.discard(self)
            if descriptor is not None:
                os.close(descriptor)

    def read(self) -> str:
        """What is in the file, which is short."""
        return os.pread(self.descriptor, 100, 0).decode(errors="replace").strip()

    def write(self, text: str) -> None:
        """Replace what is in the file by one line."""
        self._disk.write_at_start(self.descriptor, self.path, f"{text}\n")


def _close_all_in_child() -> None:
    try:
        for file in list(_open_files):
            file.close()
    finally:
        _changing.release()


os.register_at_fork(
    before=_changing.acquire,
    after_in_parent=_changing.release,
    after_in_child=_close_all_in_child,
)
