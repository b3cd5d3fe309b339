"""Which folder of an application's state on one host belongs to which client.

A client is what shares a folder of state: the threads of one driver that run on one host. The
threads of several drivers may run there, where Spark's executors share `state.dir`, but must not
meet in one folder: they would wait for each other's locks. So each thread claims the folder of its
client before it looks for state:

    <state.dir>/<application.id>/            the first driver's, and that of most applications
        .clients                             locked while somebody looks for a folder
        .client                              the driver's id, locked while threads of it live here
        kafka-streams-process-metadata       the client's process id, which stays with the folder
        client-2/, client-3/, …              those of others
            .client, kafka-streams-process-metadata

The threads of a client hold its `.client` with a shared lock. When none of them lives, the folder
stays the driver's until another one needs it, which then finds useful state in it. The process id
goes with the state, whoever the driver is: it is by that id that the group's leader knows where
state is.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from millstream.clock import Clock, Deadline
from millstream.errors import LockError
from millstream.state.directories.disk import Disk
from millstream.state.directories.file_lock import FileLock
from millstream.state.directories.locked_directory import make_directory
from millstream.state.directories.own_file import OwnFile
from millstream.state.directories.process_id import NewProcessId, kept_process_id

logger = logging.getLogger(__name__)

CLIENTS_FILE: Final = ".clients"
_CLIENT_FILE: Final = ".client"
_FOLDER: Final = re.compile(r"client-([1-9]\d*)")
#: More clients than this on one host are a mistake.
MOST_CLIENTS: Final = 64
#: Looking for a folder takes some milliseconds: who takes longer stands still.
_LOOK_TIMEOUT_MS: Final = 10_000
_LOOK_PAUSE_MS: Final = 10


class ClientFolder:
    """A folder that is a client's own, from when it is claimed until it is released.

    Args:
        path: the folder.
        process_id: of the client.
        file: of its client, with the shared lock.
    """

    def __init__(self, path: Path, process_id: uuid.UUID, file: OwnFile) -> None:
        self.path = path
        self.process_id = process_id
        self._file = file

    def release(self) -> None:
        """Take the folder no longer for the client's. Does nothing the second time."""
        self._file.close()


def claim_folder(
    application: Path,
    driver: uuid.UUID,
    clock: Clock,
    disk: Disk,
    new_process_id: NewProcessId = uuid.uuid4,
) -> ClientFolder:
    """The folder of a client: the one its driver had before, or the first that nobody living has.

    Args:
        application: where the application's state is; made if missing.
        driver: the id of the driver whose thread asks.
        clock: for waiting until others have found theirs.
        disk: where the state is.
        new_process_id: makes the process id of a folder that has none yet.

    Raises:
        LockError: more than 64 clients live on this host, or another process stands still while it
            looks for its folder.
        StreamsError: the folder's process id cannot be read, while others use it.
    """
    with clients_locked(application, disk, clock):
        folder = _folder_of(application, driver, disk)
        # A thread of the client that lives knows the id, and goes on with the one that it knows.
        alone = not is_in_use(folder, disk)
        process_id = kept_process_id(folder, disk, new_process_id, may_replace=alone)
        return ClientFolder(folder, process_id, _shared(folder, disk))


def _folder_of(application: Path, driver: uuid.UUID, disk: Disk) -> Path:
    for folder in client_folders(application, disk):
        if driver_of(folder, disk) == str(driver):
            return folder
    for number in range(1, MOST_CLIENTS + 1):
        folder = application if number == 1 else application / f"client-{number}"
        make_directory(folder, disk)
        with _free(folder, disk) as file:
            if file is None:
                continue
            file.write(str(driver))
        logger.info("state is kept in %s", folder)
        return folder
    raise LockError(
        f"All {MOST_CLIENTS} folders for clients below {application} are used by other drivers, "
        f"each of which is named by its id in the file {_CLIENT_FILE}. Start fewer on one "
        "host, or give them different settings of state.dir."
    )


@contextlib.contextmanager
def clients_locked(application: Path, disk: Disk, clock: Clock | None = None) -> Iterator[None]:
    """Let nobody claim a folder meanwhile.

    Args:
        application: where the application's state is; made if missing.
        disk: where it is.
        clock: for waiting until others have done so; None to fail at once.

    Raises:
        LockError: another process does so for too long.
    """
    lock = FileLock(application / CLIENTS_FILE, disk)
    deadline = None if clock is None else Deadline(clock, _LOOK_TIMEOUT_MS)
    while not lock.is_held:
        make_directory(application, disk)
        try:
            lock.acquire()
        except (LockError, FileNotFoundError) as error:
            # Not found: the directory was removed in between, by whoever cleans up.
            if clock is None or deadline is None or deadline.passed:
                raise _as_lock_error(error, application) from None
            clock.sleep_ms(_LOOK_PAUSE_MS)
    try:
        yield
    finally:
        lock.release()


def client_folders(application: Path, disk: Disk) -> list[Path]:
    """The folders that clients have or had: the application's own, and what is there of others."""
    if not disk.is_directory(application):
        return []
    folders = filter(disk.is_directory, disk.entries(application))
    numbers = (_FOLDER.fullmatch(folder.name) for folder in folders)
    others = sorted(int(found[1]) for found in numbers if found is not None)
    return [application, *(application / f"client-{number}" for number in others)]


def driver_of(folder: Path, disk: Disk) -> str | None:
    """The id of the driver whose threads have or had a folder, if any."""
    try:
        return disk.read_text(folder / _CLIENT_FILE).strip() or None
    except FileNotFoundError:
        return None


def is_in_use(folder: Path, disk: Disk) -> bool:
    """Whether a thread of its client lives. Only for who has `clients_locked`."""
    with _free(folder, disk) as file:
        return file is None


@contextlib.contextmanager
def _free(folder: Path, disk: Disk) -> Iterator[OwnFile | None]:
    """The file of a folder that no living client has, locked; None if one has it."""
    file = OwnFile(folder / _CLIENT_FILE, disk)
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


def _shared(folder: Path, disk: Disk) -> OwnFile:
    # Nobody has it exclusively but under the lock of `.clients`, which this process has.
    file = OwnFile(folder / _CLIENT_FILE, disk)
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
        f"{application} was deleted again and again while a folder in it was looked for. Look for "
        "what deletes directories below state.dir, other than Millstream."
    )
