"""Assigns an application's state folders on one host to clients.

A client consists of the stream threads of one driver on one host, which share a state folder.
Threads of several drivers may run on the same host if Spark's executors share `state.dir`, but must
not share a folder, because they would wait for each other's locks. So each thread claims its
client's folder before it opens any state:

    <state.dir>/<application.id>/            the first driver's folder; usually the only one
        .clients                             locked while a folder is being claimed
        .client                              the driver's id, locked while its threads run here
        kafka-streams-process-metadata       the client's process id (Kafka Streams' own file)
        client-2/, client-3/, …              the folders of other drivers
            .client, kafka-streams-process-metadata

The threads of a client hold a shared lock on its `.client`. When none of them is running, the
folder stays assigned to the driver until another driver needs a folder; that driver then takes over
this folder with its state. The process id belongs to the state, not to the driver: a client joins
the group with the id of its folder, so that the group leader can locate the state after a restart.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from millstream.clock import Clock, Deadline
from millstream.errors import LockError, StreamsError
from millstream.state.directories.disk import Disk, disk_errors
from millstream.state.directories.file_lock import FileLock, NonInheritableFile
from millstream.state.directories.locked_directory import make_directory

logger = logging.getLogger(__name__)

CLIENTS_FILE: Final = ".clients"
_CLIENT_FILE: Final = ".client"
_FOLDER: Final = re.compile(r"client-([1-9]\d*)")
#: The maximum number of clients on one host. More clients indicate a mistake.
MAX_CLIENTS: Final = 64
#: How long to wait for another process that claims a folder. A claim takes a few milliseconds, so a
#: process that takes longer is stuck.
_CLAIM_TIMEOUT_MS: Final = 10_000
_CLAIM_RETRY_MS: Final = 10
_PROCESS_ID_FILE: Final = "kafka-streams-process-metadata"
#: Creates a process id.
NewProcessId = Callable[[], uuid.UUID]


class ClientFolder:
    """A folder claimed by a client. Its `.client` file stays locked until `release`."""

    def __init__(self, path: Path, process_id: uuid.UUID, file: NonInheritableFile) -> None:
        self.path = path
        self.process_id = process_id
        self._file = file

    def release(self) -> None:
        """Release the client's claim. Idempotent."""
        self._file.close()


def claim_folder(
    application: Path,
    driver: uuid.UUID,
    clock: Clock,
    disk: Disk,
    new_process_id: NewProcessId = uuid.uuid4,
) -> ClientFolder:
    """Claim the driver's previous folder, or the first one without a running client.

    Raises:
        LockError: more than 64 clients run on this host, another process is stuck while claiming
            its folder, or another program keeps deleting the directory.
        StreamsError: the folder's process id cannot be read, and other threads use the folder.
    """
    with clients_lock(application, disk, clock):
        folder = _folder_of(application, driver, disk)
        # A running thread of the client has already read the id and keeps using it.
        alone = not is_in_use(folder, disk)
        process_id = load_or_create_process_id(folder, disk, new_process_id, may_replace=alone)
        return ClientFolder(folder, process_id, _lock_shared(folder, disk))


def _folder_of(application: Path, driver: uuid.UUID, disk: Disk) -> Path:
    for folder in client_folders(application, disk):
        if driver_of(folder, disk) == str(driver):
            return folder
    for number in range(1, MAX_CLIENTS + 1):
        folder = application if number == 1 else application / f"client-{number}"
        make_directory(folder, disk)
        with _try_lock(folder, disk) as file:
            if file is None:
                continue
            file.write(str(driver))
        logger.info("keeping state in %s", folder)
        return folder
    raise LockError(
        f"All {MAX_CLIENTS} client folders in {application} are used by other drivers, whose ids "
        f"are in the file {_CLIENT_FILE} of each folder. Start fewer drivers on one host, or set a "
        "different state.dir for each of them."
    )


@contextlib.contextmanager
def clients_lock(application: Path, disk: Disk, clock: Clock | None = None) -> Iterator[None]:
    """Prevent other clients from claiming folders.

    Without a clock, this does not wait for the lock.

    Raises:
        LockError: another process holds the lock; with a clock, for more than 10 s.
    """
    lock = FileLock(application / CLIENTS_FILE, disk)
    deadline = None if clock is None else Deadline(clock, _CLAIM_TIMEOUT_MS)
    while not lock.is_held:
        make_directory(application, disk)
        try:
            lock.acquire()
        except (LockError, FileNotFoundError) as error:
            # Not found: a cleanup deleted the directory in the meantime.
            if clock is None or deadline is None or deadline.passed:
                raise _as_lock_error(error, application) from None
            clock.sleep_ms(_CLAIM_RETRY_MS)
    try:
        yield
    finally:
        lock.release()


def client_folders(application: Path, disk: Disk) -> list[Path]:
    """Return the folders of current and former clients, the application's own first."""
    if not disk.is_directory(application):
        return []
    folders = filter(disk.is_directory, disk.entries(application))
    numbers = (_FOLDER.fullmatch(folder.name) for folder in folders)
    others = sorted(int(found[1]) for found in numbers if found is not None)
    return [application, *(application / f"client-{number}" for number in others)]


def driver_of(folder: Path, disk: Disk) -> str | None:
    """Return the id of the driver that the folder was last assigned to, if any."""
    try:
        return disk.read_text(folder / _CLIENT_FILE).strip() or None
    except FileNotFoundError:
        return None


def is_in_use(folder: Path, disk: Disk) -> bool:
    """Return whether a thread of the client is running. Requires `clients_lock`."""
    with _try_lock(folder, disk) as file:
        return file is None


@contextlib.contextmanager
def _try_lock(folder: Path, disk: Disk) -> Iterator[NonInheritableFile | None]:
    """Lock and yield the `.client` file; yield None if a running client locked it."""
    file = NonInheritableFile(folder / _CLIENT_FILE, disk)
    file.open()
    try:
        try:
            fcntl.flock(file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield file
    finally:
        file.close()


def _lock_shared(folder: Path, disk: Disk) -> NonInheritableFile:
    # This cannot fail: exclusive locks require the lock of `.clients`, which this process holds.
    file = NonInheritableFile(folder / _CLIENT_FILE, disk)
    file.open()
    try:
        fcntl.flock(file.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BaseException:
        file.close()
        raise
    return file


def _as_lock_error(error: LockError | FileNotFoundError, application: Path) -> LockError:
    if isinstance(error, LockError):
        return error
    return LockError(
        f"{application} was deleted repeatedly while a folder in it was being claimed. Find out "
        "which program other than Millstream deletes directories in state.dir."
    )


def read_process_id(folder: Path, disk: Disk) -> uuid.UUID:
    """Read the process id of a folder.

    Raises:
        FileNotFoundError: the folder has no process id.
        ValueError: the file has invalid content.
    """
    text = disk.read_text(folder / _PROCESS_ID_FILE)
    try:
        return uuid.UUID(json.loads(text)["processId"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"it starts with {text[:40]!r}") from None


def load_or_create_process_id(
    folder: Path, disk: Disk, new_process_id: NewProcessId, *, may_replace: bool
) -> uuid.UUID:
    """Return the process id of a folder; create it on first use.

    Concurrent calls from several processes return the same id. A file with invalid content may only
    be replaced if no other process uses the folder.

    Raises:
        StreamsError: the file has invalid content and may not be replaced, or the disk failed.
    """
    path = folder / _PROCESS_ID_FILE
    try:
        return read_process_id(folder, disk)
    except FileNotFoundError:
        pass  # The first caller creates the id.
    except ValueError as error:
        if not may_replace:
            raise StreamsError(
                f"{path} does not contain a process id: {error}. Stop all threads that use "
                "the folder; the next start then replaces the file."
            ) from error
        logger.warning("%s does not contain a process id (%s); replacing it", path, error)
        disk.delete(path)
    process_id = new_process_id()
    temporary = folder / f"{_PROCESS_ID_FILE}.{process_id}"
    with disk_errors(f"store the process id in {path}"):
        try:
            disk.create_text(path, json.dumps({"processId": str(process_id)}), temporary)
        except FileExistsError:
            return read_process_id(folder, disk)
    return process_id
