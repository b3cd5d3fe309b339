"""All disk operations of state directories."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from millstream.errors import StreamsError
from millstream.record import TaskId

#: The advice at the end of each message about a disk error.
ADVICE = (
    "Check the free space, quotas and permissions of state.dir, and look for disk errors in the "
    "system log. Committed state is still on disk or is restored from the changelogs."
)


class Disk:
    """The disk of this host. Tests replace this class to simulate failing disks.

    If an operation fails, each method raises an OSError that contains the affected path. Callers
    convert it to a StreamsError with `disk_errors`. Databases do not use this class: `Storages`
    opens them.
    """

    # --- reading -------------------------------------------------------------------------------

    def exists(self, path: Path) -> bool:
        return path.exists()

    def is_directory(self, path: Path) -> bool:
        return path.is_dir()

    def entries(self, path: Path) -> list[Path]:
        """Return the entries of a directory, sorted by name."""
        return sorted(path.iterdir())

    def modified_ms(self, path: Path) -> int:
        """Return the modification time of a path, in milliseconds since the epoch."""
        return path.stat().st_mtime_ns // 1_000_000

    def read_text(self, path: Path) -> str:
        """Return the content of a file; replace invalid UTF-8."""
        return path.read_text(encoding="utf-8", errors="replace")

    # --- writing -------------------------------------------------------------------------------

    def make_directory(self, path: Path, permissions: int, *, parents: bool = False) -> None:
        """Create a directory if it does not exist.

        With `parents`, missing parent directories are created with default permissions.
        """
        path.mkdir(mode=permissions, parents=parents, exist_ok=True)

    def write_text(self, path: Path, text: str) -> None:
        """Create or overwrite a file. After a crash, the file may be incomplete."""
        with _naming_path(path), path.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)

    def replace_text(self, path: Path, text: str, *, durable: bool) -> None:
        """Replace a file atomically; a durable change also survives a power failure."""
        temporary = path.with_name(path.name + ".tmp")
        with _naming_path(temporary), temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
        if durable:
            _sync_directory(path.parent)

    def create_text(self, path: Path, text: str, temporary: Path) -> None:
        """Create a file with its full content, unless another process created it first.

        `temporary` is a path in the same directory that no other process writes to.

        Raises:
            FileExistsError: the file already exists.
        """
        try:
            self.write_text(temporary, text)
            # Unlike a rename, a link fails if the file exists.
            os.link(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    def touch(self, path: Path) -> None:
        os.utime(path)

    def delete(self, path: Path) -> None:
        """Delete a file if it exists."""
        path.unlink(missing_ok=True)

    def delete_directory(self, path: Path) -> None:
        """Delete an empty directory."""
        path.rmdir()

    def delete_tree(self, path: Path) -> None:
        shutil.rmtree(path)

    # --- locked files --------------------------------------------------------------------------

    def open(self, path: Path, flags: int, permissions: int) -> int:
        """Open a file; return its descriptor."""
        return os.open(path, flags, permissions)

    def write_at_start(self, descriptor: int, path: Path, text: str) -> None:
        """Replace the content of an open file."""
        with _naming_path(path):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text.encode(), 0)


@contextlib.contextmanager
def disk_errors(attempt: str, task_id: TaskId | None = None) -> Iterator[None]:
    """Convert an OSError to a StreamsError that contains advice.

    The message starts with "Cannot `attempt`", followed by the original error.
    """
    try:
        yield
    except OSError as error:
        raise StreamsError(f"Cannot {attempt}: {error}. {ADVICE}", task_id=task_id) from error


@contextlib.contextmanager
def _naming_path(path: Path) -> Iterator[None]:
    # Add the path: errors of operations on an open file do not contain it.
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise type(error)(error.errno, error.strerror, str(path)) from None
        raise


def _sync_directory(directory: Path) -> None:
    # Makes renames in the directory survive a power failure. Not all file systems support this.
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
