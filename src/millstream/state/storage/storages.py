"""The factory protocol of storages for committed data, and storage errors."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

from millstream.errors import (
    InvalidStateStoreError,
    LockError,
    StreamsError,
    TaskCorruptedError,
)
from millstream.record import TaskId
from millstream.state.storage.bytes_store import Storage

#: Parts of RocksDB's messages about damaged data, missing files, and unknown column families, which
#: occur in databases of Kafka Streams or in another format.
_CORRUPTION_MESSAGES: Final = (
    "Corruption",
    "No such file or directory",
    "Column families not opened",
)
_LOCK_MESSAGES: Final = ("lock hold by current process", "While lock file")
_DISK_FULL_MESSAGES: Final = ("No space left on device", "Disk quota exceeded", "File too large")


class Storages(Protocol):
    """The factory of the storages of one process.

    Tests replace the factory to simulate failing disks. Implementations convert errors with
    `storage_error`.
    """

    def open(self, name: str, directory: Path, task_id: TaskId) -> Storage:
        """Open a storage whose directory is locked by its task; create it if missing.

        Args:
            directory: a directory that only this storage uses.

        Raises:
            TaskCorruptedError: the data on disk cannot be read.
            LockError: another owner has the storage open.
            StreamsError: the disk failed.
        """
        ...

    def destroy(self, name: str, directory: Path, task_id: TaskId) -> None:
        """Delete a closed storage and its contents. Takes the arguments of `open`.

        Raises:
            StreamsError: the disk failed.
        """
        ...


def storage_error(
    attempt: str, name: str, task_id: TaskId, directory: Path, error: Exception
) -> StreamsError:
    """Convert an error of a storage into the error that its store raises.

    Args:
        attempt: the failed operation, for example `write`.

    Returns:
        A TaskCorruptedError if the data on disk is unusable; a LockError if another owner has the
        storage open; otherwise a StreamsError, in which case all committed data is intact.
    """
    if isinstance(error, StreamsError):
        return error
    text = str(error)
    failure = f"Cannot {attempt} store {name} of task {task_id} in {directory}"
    if any(part in text for part in _LOCK_MESSAGES):
        return LockError(f"{failure}: another owner has the store open ({text}).", task_id=task_id)
    if any(part in text for part in _CORRUPTION_MESSAGES):
        return TaskCorruptedError(
            f"{failure}: {text}. The store will be rebuilt from its changelog.", task_ids=[task_id]
        )
    if any(part in text for part in _DISK_FULL_MESSAGES):
        advice = "Free space on this disk, or move state.dir to a larger one."
    else:
        advice = "Check the permissions of state.dir, and look for disk errors in the system log."
    return StreamsError(
        f"{failure}: {type(error).__name__}: {text}. {advice} "
        "Committed data is still on disk; uncommitted data will be processed again.",
        task_id=task_id,
    )


def closed_error(name: str, task_id: TaskId) -> InvalidStateStoreError:
    return InvalidStateStoreError(
        f"Store {name} is currently closed. Its task has probably moved.", task_id=task_id
    )
