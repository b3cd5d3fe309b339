"""The state directory of an application on one host, and the locks of its parts.

    <state.dir>/<application.id>/
        .lock                            held by the driver of the application
        kafka-streams-process-metadata   the process id, stable across restarts (`process_id`)
        .clients, .client                the assignment of folders to drivers (`client_folder`)
        <sub-topology>_<partition>/      one directory per task
            .lock                        held by the stream thread that owns the task
            .format                      distinguishes our directories from Kafka Streams'
            .checkpoint                  offsets of stores that do not store their own offset
            .reached                     the approximate number of changelog records in the stores
            rocksdb/<store>/
        global/<thread index>/           one directory per stream thread, for its global stores
            .lock, .format, rocksdb/<store>/
        client-2/, client-3/, ...        the same for other drivers whose threads run on this host:
                                         .client, the process id, task directories, global

The layout is that of Kafka Streams, but the data of Kafka Streams is not read: a task directory in
another format is emptied when the task is opened, and restored from the changelogs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from millstream.clock import Clock
from millstream.errors import ConfigError, LockError, StreamsError
from millstream.record import TaskId
from millstream.state.directories.client_folder import (
    CLIENTS_FILE,
    ClientFolder,
    NewProcessId,
    claim_folder,
    client_folders,
    clients_lock,
    driver_of,
    is_in_use,
    load_or_create_process_id,
    read_process_id,
)
from millstream.state.directories.disk import Disk, disk_errors
from millstream.state.directories.file_lock import FileLock
from millstream.state.directories.locked_directory import (
    LockedDirectory,
    empty_directory,
    make_directory,
)

logger = logging.getLogger(__name__)

_LOCK_FILE: Final = ".lock"
_CHECKPOINT_FILE: Final = ".checkpoint"
_OFFSET_SUM_FILE: Final = ".reached"
_TASK_DIRECTORY: Final = re.compile(r"\d+_\d+")
_GLOBAL_DIRECTORY: Final = "global"
_THREAD_DIRECTORY: Final = re.compile(r"\d+")
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}")


class StateDirectory:
    """The state directory of one application on one host.

    The driver locks the whole directory (`lock_application`). The stream threads, which are
    separate processes, claim their client's folder (`of_client`) and lock their tasks. A lock is
    released when its process ends, even if the process is killed.

    Raises:
        ConfigError: `state_dir` contains an environment variable that is unset or empty on this
            host.
    """

    def __init__(
        self,
        state_dir: str | os.PathLike[str],
        application_id: str,
        *,
        new_process_id: NewProcessId = uuid.uuid4,
        disk: Disk | None = None,
    ) -> None:
        #: The disk that contains the state.
        self.disk = disk or Disk()
        self.application_path = resolve_state_dir(state_dir) / application_id
        #: The directory of tasks and global stores, which may be a client's folder.
        self.path = self.application_path
        self._folder: ClientFolder | None = None
        self._new_process_id = new_process_id
        self._application_lock = FileLock(self.application_path / _LOCK_FILE, self.disk)
        #: The task directories locked by this object.
        self._tasks: dict[TaskId, LockedDirectory] = {}

    # --- the client ----------------------------------------------------------------------------

    @classmethod
    def of_client(
        cls,
        state_dir: str | os.PathLike[str],
        application_id: str,
        driver: uuid.UUID,
        clock: Clock,
        disk: Disk | None = None,
        *,
        new_process_id: NewProcessId = uuid.uuid4,
    ) -> StateDirectory:
        """Open the state of one client: the threads of one driver on this host.

        Other drivers whose threads run on this host do not use its folder until all threads of the
        client have called `release` or ended.

        Raises:
            LockError: there are too many clients, or another process is stuck while claiming a
                folder.
            StreamsError: the process id cannot be read, or the disk failed.
        """
        directory = cls(state_dir, application_id, new_process_id=new_process_id, disk=disk)
        application = directory.application_path
        with disk_errors(f"claim a folder in {application}"):
            directory._folder = claim_folder(
                application, driver, clock, directory.disk, new_process_id
            )
        directory.path = directory._folder.path
        return directory

    @property
    def is_claimed(self) -> bool:
        """Whether this is a client's folder, claimed by one of its threads."""
        return self._folder is not None

    def release(self) -> None:
        """Release this thread's claim to the folder.

        After the last claim is released, other clients may use the folder.
        """
        if self._folder is not None:
            self._folder.release()

    # --- the application -----------------------------------------------------------------------

    def lock_application(self) -> None:
        """Lock the directory for this driver.

        Raises:
            LockError: another driver uses the directory.
        """
        make_directory(self.application_path, self.disk)
        try:
            with disk_errors(f"lock {self.application_path}"):
                self._application_lock.acquire()
        except LockError as error:
            raise LockError(
                "Another instance of the application uses the state directory "
                f"{self.application_path}: {error.message} "
                "Each instance on a host needs its own state.dir."
            ) from None

    def unlock_application(self) -> None:
        """Unlock the directory. Does nothing if it is not locked."""
        self._application_lock.release()

    def process_id(self) -> uuid.UUID:
        """Return the process id of this folder; create it on first use.

        A client uses the id of its folder, a driver that of the application's folder. So if a
        driver's threads run on its own host, as in a local session, they have the driver's id.

        Concurrent calls from several processes return the same id.

        Raises:
            StreamsError: the file has invalid content. If this process has locked the application,
                the file is replaced instead.
        """
        if self._folder is not None:
            return self._folder.process_id
        make_directory(self.application_path, self.disk)
        return load_or_create_process_id(
            self.application_path,
            self.disk,
            self._new_process_id,
            may_replace=self._application_lock.is_held,
        )

    def clean_up(self) -> None:
        """Delete all local state of the application; it can be restored from Kafka.

        The state of other drivers whose threads run on this host is kept.

        Raises:
            LockError: a stream thread is running, or another driver uses the directory.
        """
        if not self.disk.is_directory(self.application_path):
            return
        was_locked = self._application_lock.is_held
        self.lock_application()
        try:
            with clients_lock(self.application_path, self.disk):
                self._delete_folders()
        finally:
            if not was_locked:
                self.unlock_application()

    def _delete_folders(self) -> None:
        all_deleted = True
        # The application's own folder comes last, because it contains the others.
        for folder in reversed(client_folders(self.application_path, self.disk)):
            if self._is_used_by_other_driver(folder):
                logger.info("keeping %s: the threads of another driver use it", folder)
                all_deleted = False
                continue
            state = self._state_in(folder)
            for task_id in state.task_ids():
                state.remove_task_directory(task_id)
            for index in state._thread_indexes():
                state.global_directory(index).remove()
            if folder != self.application_path:
                self.disk.delete_tree(folder)
        if not all_deleted:
            return
        locks = (_LOCK_FILE, CLIENTS_FILE)
        empty_directory(self.application_path, self.disk, keep=locks)
        # Delete the locks last, so that the directory stays locked until it is empty.
        for name in locks:
            self.disk.delete(self.application_path / name)
        with contextlib.suppress(OSError):
            # Fails if another process has started to use the directory in the meantime.
            self.disk.delete_directory(self.application_path)

    def _is_used_by_other_driver(self, folder: Path) -> bool:
        """Return whether another driver's threads use a folder.

        Raises:
            LockError: the threads of this driver use the folder.
        """
        if not is_in_use(folder, self.disk):
            return False
        try:
            ours = str(read_process_id(self.application_path, self.disk))
        except (FileNotFoundError, ValueError):
            return True
        if driver_of(folder, self.disk) != ours:
            return True
        raise LockError(
            f"A stream thread of the application uses {folder}. Close the application first."
        )

    def _state_in(self, folder: Path) -> StateDirectory:
        directory = StateDirectory(
            self.application_path.parent, self.application_path.name, disk=self.disk
        )
        directory.path = folder
        return directory

    # --- global stores -------------------------------------------------------------------------

    def global_directory(self, thread_index: int) -> LockedDirectory:
        """Return the directory of a stream thread's global stores.

        It may not exist yet.
        """
        path = self.path / _GLOBAL_DIRECTORY / str(thread_index)
        return LockedDirectory(
            path, self.path, f"the global stores of thread {thread_index}", self.disk
        )

    # --- tasks ---------------------------------------------------------------------------------

    def task_directory(self, task_id: TaskId) -> Path:
        """Return the directory of a task, which may not exist yet."""
        return self.path / str(task_id)

    def checkpoint_path(self, task_id: TaskId) -> Path:
        return self.task_directory(task_id) / _CHECKPOINT_FILE

    def lock_task(self, task_id: TaskId) -> None:
        """Lock a task's state for this process; create its directory if it is missing.

        Does nothing if this object already holds the lock.

        Raises:
            LockError: another process holds the lock.
        """
        directory = self._task(task_id)
        try:
            directory.lock()
        except LockError as error:
            error.task_id = task_id
            raise
        self._tasks[task_id] = directory

    def unlock_task(self, task_id: TaskId) -> None:
        """Unlock a task's state. Does nothing if this object does not hold the lock."""
        directory = self._tasks.pop(task_id, None)
        if directory is not None:
            directory.unlock()

    def prepare_task(self, task_id: TaskId) -> Path:
        """Prepare and return a locked task's directory.

        The directory is emptied if it is corrupted or in another format.
        """
        directory = self._task(task_id)
        directory.prepare()
        return directory.path

    def mark_task_corrupted(self, task_id: TaskId) -> None:
        """Mark a task's state as corrupted: the next `prepare_task` deletes it.

        Raises:
            LockError: another process has locked the task.
        """
        was_locked = task_id in self._tasks
        self.lock_task(task_id)
        self._task(task_id).mark_corrupted()
        if not was_locked:
            self.unlock_task(task_id)

    def write_offset_sum(self, task_id: TaskId, offset_sum: int) -> None:
        """Store the offset sum of a locked task, to be read when the task is not open.

        The offset sum is the number of changelog records that the stores reflect. The group leader
        only uses it to place the task, so it may be outdated, and the write is not durable.
        """
        path = self.task_directory(task_id) / _OFFSET_SUM_FILE
        try:
            self.disk.replace_text(path, f"{offset_sum}\n", durable=False)
        except OSError as error:
            logger.warning("task %s: cannot store the offset sum of its state: %s", task_id, error)

    def offset_sums(self) -> dict[TaskId, int]:
        sums: dict[TaskId, int] = {}
        for task_id in self.task_ids():
            if self._task(task_id).is_marked_corrupted:
                continue
            with contextlib.suppress(OSError, ValueError):
                # The sum was not stored, or the directory is being deleted.
                path = self.task_directory(task_id) / _OFFSET_SUM_FILE
                sums[task_id] = max(0, int(self.disk.read_text(path)))
        return sums

    def remove_task_directory(self, task_id: TaskId) -> None:
        """Delete a task's directory.

        Raises:
            LockError: another process, or this object, has locked the directory.
        """
        try:
            self._task(task_id).remove()
        except LockError as error:
            error.task_id = task_id
            raise

    def task_ids(self, *, with_state_only: bool = False) -> list[TaskId]:
        """Return the ids of the tasks with a directory, sorted.

        With `with_state_only`, only return tasks with stores in their directory.
        """
        if not self.disk.is_directory(self.path):
            return []
        return sorted(
            TaskId.parse(entry.name)
            for entry in self.disk.entries(self.path)
            if _TASK_DIRECTORY.fullmatch(entry.name)
            and self.disk.is_directory(entry)
            and (not with_state_only or self._task(TaskId.parse(entry.name)).has_state())
        )

    def remove_obsolete_tasks(self, *, unused_for_ms: int, clock: Clock) -> list[TaskId]:
        """Delete the directories of tasks that have moved away; return their ids.

        Also deletes task directories in folders without a running client, but does not return the
        ids of those tasks.
        Directories are kept for `unused_for_ms` (`state.cleanup.delay.ms`) after their last use.
        """
        if len(client_folders(self.application_path, self.disk)) > 1:
            # If another process holds the lock, the next cleanup deletes these directories.
            with contextlib.suppress(LockError), clients_lock(self.application_path, self.disk):
                for folder in client_folders(self.application_path, self.disk):
                    if folder != self.path and not is_in_use(folder, self.disk):
                        self._state_in(folder)._remove_unused(unused_for_ms, clock)
        return self._remove_unused(unused_for_ms, clock)

    def _remove_unused(self, unused_for_ms: int, clock: Clock) -> list[TaskId]:
        removed = []
        for task_id in self.task_ids():
            if task_id in self._tasks:
                continue
            try:
                modified_ms = self.disk.modified_ms(self.task_directory(task_id))
                if clock.now_ms() - modified_ms < unused_for_ms:
                    continue
                self.remove_task_directory(task_id)
            except (LockError, FileNotFoundError):
                # Another process uses the directory, or has already deleted it.
                continue
            except (OSError, StreamsError) as error:
                logger.warning("task %s: cannot delete its obsolete state: %s", task_id, error)
                continue
            logger.info("task %s: deleted its obsolete state", task_id)
            removed.append(task_id)
        return removed

    def remove_outdated_tasks(self, *, max_age_ms: int, clock: Clock) -> list[TaskId]:
        """Delete outdated task directories; return the ids of their tasks.

        A directory is outdated if nothing in it has changed for more than `max_age_ms`. Call this
        at startup, when no task is running. If state is older than the oldest deletions that its
        changelog still contains, it may have keys that were deleted in the meantime. Directories in
        use are kept.

        Args:
            max_age_ms: the maximum age (`state.cleanup.dir.max.age.ms`, KIP-1259).

        Raises:
            StreamsError: the disk failed.
        """
        removed = []
        for task_id in self.task_ids():
            path = self.task_directory(task_id)
            try:
                with disk_errors(f"delete the old state in {path}", task_id):
                    if clock.now_ms() - self._changed_ms(path) <= max_age_ms:
                        continue
                    self.remove_task_directory(task_id)
            except LockError:
                continue
            logger.info("task %s: deleted its state, which was too old", task_id)
            removed.append(task_id)
        return removed

    def _changed_ms(self, path: Path) -> int:
        """Return the time of the last change below a directory.

        The time of the directory itself is not up to date if its process was killed.
        """
        found = self.disk.modified_ms(path)
        for entry in self.disk.entries(path):
            # Files that have disappeared were just deleted by the owner of the lock.
            with contextlib.suppress(FileNotFoundError):
                is_directory = self.disk.is_directory(entry)
                changed_ms = self._changed_ms if is_directory else self.disk.modified_ms
                found = max(found, changed_ms(entry))
        return found

    def _task(self, task_id: TaskId) -> LockedDirectory:
        path = self.task_directory(task_id)
        return self._tasks.get(task_id) or LockedDirectory(
            path, self.path, f"task {task_id}", self.disk
        )

    def _thread_indexes(self) -> list[int]:
        """Return the indexes of threads with a directory for global stores."""
        directory = self.path / _GLOBAL_DIRECTORY
        if not self.disk.is_directory(directory):
            return []
        entries = filter(self.disk.is_directory, self.disk.entries(directory))
        names = [entry.name for entry in entries]
        return [int(name) for name in names if _THREAD_DIRECTORY.fullmatch(name)]


def resolve_state_dir(
    state_dir: str | os.PathLike[str], environment: Mapping[str, str] | None = None
) -> Path:
    """Resolve the `state.dir` setting on this host.

    Hosts may mount disks at different paths.

    Args:
        state_dir: the setting; `${NAME}` is replaced with an environment variable of this host.

    Raises:
        ConfigError: a variable is unset or empty on this host.

    Example:
        >>> str(resolve_state_dir("${SCRATCH}/state", {"SCRATCH": "/mnt/disk2"}))
        '/mnt/disk2/state'
    """
    known = os.environ if environment is None else environment

    def value(found: re.Match[str]) -> str:
        given = known.get(found[1])
        if not given:
            raise ConfigError(
                f"state_dir is {os.fspath(state_dir)!r}, but the environment variable {found[1]} "
                f"is {'not set' if given is None else 'empty'} on {os.uname().nodename}. Set it "
                "for the driver and, on a cluster, for the executors: in the environment of "
                "Spark's workers, or with spark.executorEnv."
            )
        return given

    return Path(_VARIABLE.sub(value, os.fspath(state_dir)))
