"""Where stores get the storages from that keep their committed data, and how these fail."""

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

#: In the messages of RocksDB. Files are missing where somebody deleted some of them; column
#: families that we do not know are those of Java's databases, or of another format.
_SIGNS_OF_CORRUPTION: Final = (
    "Corruption",
    "No such file or directory",
    "Column families not opened",
)
_SIGNS_OF_ANOTHER_OWNER: Final = ("lock hold by current process", "While lock file")
_SIGNS_OF_A_FULL_DISK: Final = ("No space left on device", "Disk quota exceeded", "File too large")


class Storages(Protocol):
    """Opens the storages of one process. Simulations of failing disks hand in another one.

    A storage raises what `storage_error` makes of a failure.
    """

    def open(self, name: str, directory: Path, task_id: TaskId) -> Storage:
        """Open a storage, whose directory is locked for its task; made if missing.

        Args:
            name: the store's name.
            directory: of the storage alone.
            task_id: the task, for errors.

        Raises:
            TaskCorruptedError: what is on disk cannot be read.
            LockError: another owner has it open.
            StreamsError: the disk refuses it.
        """
        ...

    def destroy(self, name: str, directory: Path, task_id: TaskId) -> None:
        """Delete a closed storage with everything in it. Takes what `open` takes.

        Raises:
            StreamsError: the disk refuses it.
        """
        ...


def storage_error(
    attempt: str, name: str, task_id: TaskId, directory: Path, error: Exception
) -> StreamsError:
    """What a store raises when its storage fails: store, task, path, and what to do.

    Args:
        attempt: what was tried, for example `write`.
        name: the store's name.
        task_id: the task.
        directory: of the storage.
        error: what the disk or the database said.

    Returns:
        A TaskCorruptedError if what is on disk can be used no more; a LockError if somebody else
        uses it; else a StreamsError, after which everything that was committed is still there.
    """
    if isinstance(error, StreamsError):
        return error
    text = str(error)
    failure = f"Cannot {attempt} store {name} of task {task_id} in {directory}"
    if any(sign in text for sign in _SIGNS_OF_ANOTHER_OWNER):
        return LockError(f"{failure}: another owner has it open ({text}).", task_id=task_id)
    if any(sign in text for sign in _SIGNS_OF_CORRUPTION):
        return TaskCorruptedError(
            f"{failure}: {text}. It will be rebuilt from its changelog.", task_ids=[task_id]
        )
    if any(sign in text for sign in _SIGNS_OF_A_FULL_DISK):
        advice = "Free space there, or set state.dir to a larger disk."
    else:
        advice = (
            "Look at the permissions of state.dir, and for errors of the disk in the system's log."
        )
    return StreamsError(
        f"{failure}: {type(error).__name__}: {text}. {advice} "
        "What was committed is still there, and what was not comes again.",
        task_id=task_id,
    )


def closed_error(name: str, task_id: TaskId) -> InvalidStateStoreError:
    """What a store raises that is used after its storage was closed."""
    return InvalidStateStoreError(
        f"Store {name} is currently closed. Probably its task has moved.", task_id=task_id
    )
