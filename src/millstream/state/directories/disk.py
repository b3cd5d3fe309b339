"""What state directories do to the disk, all of it in one place."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from millstream.errors import StreamsError
from millstream.record import TaskId

#: What to do about a disk that refuses something.
ADVICE = (
    "Look at free space, quotas and permissions of state.dir, and for errors of the disk in the "
    "system's log. What was committed comes back from there or from the changelogs."
)


class Disk:
    """The disk of this host. Simulations of failing disks hand in another one.

    All methods raise OSError with the path that it is about; who owns the directory tells it as a
    StreamsError (`disk_errors`). Databases are not its business: `Storages` opens them.
    """

    # --- looking -------------------------------------------------------------------------------

    def exists(self, path: Path) -> bool:
        """Whether there is such a file or directory."""
        return path.exists()

    def is_directory(self, path: Path) -> bool:
        """Whether there is such a directory."""
        return path.is_dir()

    def entries(self, path: Path) -> list[Path]:
        """What is in a directory, by name."""
        return sorted(path.iterdir())

    def modified_ms(self, path: Path) -> int:
        """When a file or directory was changed last, in milliseconds since the epoch."""
        return path.stat().st_mtime_ns // 1_000_000

    def read_text(self, path: Path) -> str:
        """What is in a file; bytes that are no UTF-8 are replaced."""
        return path.read_text(encoding="utf-8", errors="replace")

    # --- changing ------------------------------------------------------------------------------

    def make_directory(self, path: Path, permissions: int, *, parents: bool = False) -> None:
        """Make a directory, unless it is there.

        Args:
            path: the directory.
            permissions: of the directory, as for `chmod`.
            parents: whether to make those above it as well, with the usual permissions.
        """
        path.mkdir(mode=permissions, parents=parents, exist_ok=True)

    def write_text(self, path: Path, text: str) -> None:
        """Make or overwrite a file. A crash may leave it half written."""
        with _about(path), path.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)

    def replace_text(self, path: Path, text: str, *, durable: bool) -> None:
        """Replace a file as a whole or not at all.

        Args:
            path: the file; made if missing.
            text: what is in it then.
            durable: whether it must outlive a power failure, too.
        """
        temporary = path.with_name(path.name + ".tmp")
        with _about(temporary), temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
        if durable:
            _sync_directory(path.parent)

    def make_text(self, path: Path, text: str, temporary: Path) -> None:
        """Make a file with all of its text, or fail because another process was faster.

        Args:
            path: the file.
            text: what is in it then.
            temporary: a file that nobody else writes, in the same directory.

        Raises:
            FileExistsError: the file is there already.
        """
        try:
            self.write_text(temporary, text)
            # Unlike a rename, a link fails if the file is there.
            os.link(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    def touch(self, path: Path) -> None:
        """Let a file or directory, which is there, have been changed just now."""
        os.utime(path)

    def delete(self, path: Path) -> None:
        """Delete a file, if it is there."""
        path.unlink(missing_ok=True)

    def delete_directory(self, path: Path) -> None:
        """Delete an empty directory."""
        path.rmdir()

    def delete_tree(self, path: Path) -> None:
        """Delete a directory with everything in it."""
        shutil.rmtree(path)

    # --- files that are locked -----------------------------------------------------------------

    def open(self, path: Path, flags: int, permissions: int) -> int:
        """Open a file; its descriptor."""
        return os.open(path, flags, permissions)

    def write_at_start(self, descriptor: int, path: Path, text: str) -> None:
        """Replace what is in an open file."""
        with _about(path):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text.encode(), 0)


@contextlib.contextmanager
def disk_errors(attempt: str, task_id: TaskId | None = None) -> Iterator[None]:
    """Tells what the disk refuses meanwhile as a StreamsError.

    Args:
        attempt: what is tried, for example `open the state of task 0_1`.
        task_id: the task, where it is for one.

    Raises:
        StreamsError: what failed, with the path, and what to do.
    """
    try:
        yield
    except OSError as error:
        raise StreamsError(f"Cannot {attempt}: {error}. {ADVICE}", task_id=task_id) from error


@contextlib.contextmanager
def _about(path: Path) -> Iterator[None]:
    # What fails on an open file does not say which one.
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise type(error)(error.errno, error.strerror, str(path)) from None
        raise


def _sync_directory(directory: Path) -> None:
    # Makes the rename itself survive a power failure. Some file systems refuse; then it does not.
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
