"""Where an application keeps its state on one host, and who may use which part of it.

    <state.dir>/<application.id>/
        .lock                            held by the driver of the application
        kafka-streams-process-metadata   the process id, the same over restarts (`process_id`)
        .clients, .client                whose folder this is (`client_folder`)
        <sub-topology>_<partition>/      one directory per task
            .lock                        held by the stream thread that owns the task
            .format                      tells our directories from Kafka Streams'
            .checkpoint                  offsets of stores which keep none
            .reached                     about how many changelog records the state stands for
            rocksdb/<store>/
        global/<thread index>/           one directory per stream thread, for its global stores
            .lock, .format, rocksdb/<store>/
        client-2/, client-3/, ...        the same of other drivers whose threads run on this host:
                                         .client, the process id, task directories, global

The layout is Kafka Streams' own. Its data is not read: a task directory that is not ours is emptied
when the task is opened, and rebuilt from the changelogs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import uuid
from pathlib import Path
from typing import Final

from millstream.clock import Clock
from millstream.errors import LockError, StreamsError
from millstream.record import TaskId
from millstream.state.directories.client_folder import (
    CLIENTS_FILE,
    ClientFolder,
    claim_folder,
    client_folders,
    clients_locked,
    driver_of,
    is_in_use,
)
from millstream.state.directories.disk import Disk, disk_errors
from millstream.state.directories.file_lock import FileLock
from millstream.state.directories.host_path import state_dir_here
from millstream.state.directories.locked_directory import (
    LockedDirectory,
    empty_directory,
    make_directory,
)
from millstream.state.directories.process_id import (
    NewProcessId,
    kept_process_id,
    read_process_id,
)

logger = logging.getLogger(__name__)

_LOCK_FILE: Final = ".lock"
_CHECKPOINT_FILE: Final = ".checkpoint"
_REACHED_FILE: Final = ".reached"
_TASK_DIRECTORY: Final = re.compile(r"\d+_\d+")
_GLOBAL_DIRECTORY: Final = "global"
_THREAD_DIRECTORY: Final = re.compile(r"\d+")


class StateDirectory:
    """The state of one application on one host.

    The driver locks it as a whole (`lock_application`); the stream threads, which are processes of
    their own, claim the folder of their client in it (`of_client`) and lock the tasks they work on.
    A lock ends with its process, however that ends.

    Args:
        state_dir: the `state.dir` setting; created if missing.
        application_id: the `application.id` setting.
        new_process_id: makes the process id when there is none yet.
        disk: where it is; by default this host's.

    Raises:
        ConfigError: `state_dir` names a variable of the environment that this host does not have.
    """

    def __init__(
        self,
        state_dir: str | os.PathLike[str],
        application_id: str,
        *,
        new_process_id: NewProcessId = uuid.uuid4,
        disk: Disk | None = None,
    ) -> None:
        #: Where everything is.
        self.disk = disk or Disk()
        self.application_path = state_dir_here(state_dir) / application_id
        #: Where tasks and global stores are: the folder of a client.
        self.path = self.application_path
        self._folder: ClientFolder | None = None
        self._new_process_id = new_process_id
        self._application_lock = FileLock(self.application_path / _LOCK_FILE, self.disk)
        #: Those that were locked here and not given back.
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
        """The state of one client: of the threads of one driver, as far as they are on this host.

        It is in a folder that drivers elsewhere, whose threads run on this host too, do not use
        before `release`, and before all threads of the client have ended.

        Args:
            state_dir: the `state.dir` setting; created if missing.
            application_id: the `application.id` setting.
            driver: the id of the driver.
            clock: for waiting until others have found their folders.
            disk: where it is; by default this host's.
            new_process_id: makes the client's process id when the folder has none yet.

        Raises:
            LockError: there are too many clients.
            StreamsError: the process id cannot be read, or the disk fails.
        """
        directory = cls(state_dir, application_id, new_process_id=new_process_id, disk=disk)
        application = directory.application_path
        with disk_errors(f"find a folder in {application}"):
            directory._folder = claim_folder(
                application, driver, clock, directory.disk, new_process_id
            )
        directory.path = directory._folder.path
        return directory

    @property
    def is_claimed(self) -> bool:
        """Whether this is the folder of a client, claimed by one of its threads."""
        return self._folder is not None

    def release(self) -> None:
        """Let other clients use the folder, if this is the last thread of its client."""
        if self._folder is not None:
            self._folder.release()

    # --- the application -----------------------------------------------------------------------

    def lock_application(self) -> None:
        """Make this process the only driver which uses the directory.

        Raises:
            LockError: another driver uses it.
        """
        make_directory(self.application_path, self.disk)
        try:
            with disk_errors(f"lock {self.application_path}"):
                self._application_lock.acquire()
        except LockError as error:
            raise LockError(
                "Another instance of the application uses the state directory "
                f"{self.application_path}: {error.message} "
                "Two instances on one host need two settings of state.dir."
            ) from None

    def unlock_application(self) -> None:
        """Let another driver use the directory. Does nothing if it is not locked."""
        self._application_lock.release()

    def process_id(self) -> uuid.UUID:
        """The id that is kept here, made when first asked for and kept ever after.

        It is the client's, or, for a driver, the one that the application's own folder keeps: so
        where a driver's threads run on its host, as they do on a local session, they have its id.

        Several processes may ask at the same time: all get the same.

        Raises:
            StreamsError: the file holds something else. Whoever has locked the application
                replaces it instead.
        """
        if self._folder is not None:
            return self._folder.process_id
        make_directory(self.application_path, self.disk)
        return kept_process_id(
            self.application_path,
            self.disk,
            self._new_process_id,
            may_replace=self._application_lock.is_held,
        )

    def clean_up(self) -> None:
        """Delete all local state of the application; it comes back from Kafka.

        The state of other drivers whose threads run on this host is left alone.

        Raises:
            LockError: a stream thread runs, or another driver uses the directory.
        """
        if not self.disk.is_directory(self.application_path):
            return
        was_locked = self._application_lock.is_held
        self.lock_application()
        try:
            with clients_locked(self.application_path, self.disk):
                self._delete_folders()
        finally:
            if not was_locked:
                self.unlock_application()

    def _delete_folders(self) -> None:
        all_deleted = True
        # The application's own folder last: the others are in it.
        for folder in reversed(client_folders(self.application_path, self.disk)):
            if self._is_anothers(folder):
                logger.info("%s is kept: the threads of another driver use it", folder)
                all_deleted = False
                continue
            state = self._in(folder)
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
        # Last, so that others find them taken until everything is gone.
        for name in locks:
            self.disk.delete(self.application_path / name)
        with contextlib.suppress(OSError):
            # Not empty: somebody has come already.
            self.disk.delete_directory(self.application_path)

    def _is_anothers(self, folder: Path) -> bool:
        """Whether the threads of another driver use a folder.

        Raises:
            LockError: those of this one do.
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

    def _in(self, folder: Path) -> StateDirectory:
        """The state in the folder of a client."""
        directory = StateDirectory(
            self.application_path.parent, self.application_path.name, disk=self.disk
        )
        directory.path = folder
        return directory

    # --- global stores -------------------------------------------------------------------------

    def global_directory(self, thread_index: int) -> LockedDirectory:
        """Where a stream thread keeps its copies of the global topics. It need not exist."""
        path = self.path / _GLOBAL_DIRECTORY / str(thread_index)
        return LockedDirectory(
            path, self.path, f"the global stores of thread {thread_index}", self.disk
        )

    # --- tasks ---------------------------------------------------------------------------------

    def task_directory(self, task_id: TaskId) -> Path:
        """Where a task keeps its state. It need not exist."""
        return self.path / str(task_id)

    def checkpoint_path(self, task_id: TaskId) -> Path:
        """The task's checkpoint file."""
        return self.task_directory(task_id) / _CHECKPOINT_FILE

    def lock_task(self, task_id: TaskId) -> None:
        """Make this process the only one to use the task's state. Creates its directory.

        Does nothing if this object holds the lock already.

        Raises:
            LockError: another process holds it.
        """
        directory = self._task(task_id)
        try:
            directory.lock()
        except LockError as error:
            error.task_id = task_id
            raise
        self._tasks[task_id] = directory

    def unlock_task(self, task_id: TaskId) -> None:
        """Let others use the task's state. Does nothing if it is not locked here."""
        directory = self._tasks.pop(task_id, None)
        if directory is not None:
            directory.unlock()

    def prepare_task(self, task_id: TaskId) -> Path:
        """The directory of a locked task, emptied unless what is in it is in our format, and can
        be trusted."""
        directory = self._task(task_id)
        directory.prepare()
        return directory.path

    def distrust_task(self, task_id: TaskId) -> None:
        """Have the task's state thrown away when it is prepared next, by whoever does that.

        Raises:
            LockError: another process has the task locked.
        """
        was_locked = task_id in self._tasks
        self.lock_task(task_id)
        self._task(task_id).distrust()
        if not was_locked:
            self.unlock_task(task_id)

    def note_reached(self, task_id: TaskId, offset_sum: int) -> None:
        """Take down how far the state of a locked task is, for when nobody has it open.

        Nothing depends on it but where the group's leader places the task, so it may be old, and
        is not written durably.
        """
        path = self.task_directory(task_id) / _REACHED_FILE
        try:
            self.disk.replace_text(path, f"{offset_sum}\n", durable=False)
        except OSError as error:
            logger.warning("task %s: it is not noted how far its state is: %s", task_id, error)

    def reached(self) -> dict[TaskId, int]:
        """How far the state of each task is that has been noted here."""
        sums: dict[TaskId, int] = {}
        for task_id in self.task_ids():
            if self._task(task_id).is_distrusted:
                continue
            with contextlib.suppress(OSError, ValueError):
                # Not noted, or being removed.
                path = self.task_directory(task_id) / _REACHED_FILE
                sums[task_id] = max(0, int(self.disk.read_text(path)))
        return sums

    def remove_task_directory(self, task_id: TaskId) -> None:
        """Delete a task's directory.

        Raises:
            LockError: another process, or this object, has it locked.
        """
        try:
            self._task(task_id).remove()
        except LockError as error:
            error.task_id = task_id
            raise

    def task_ids(self, *, with_state_only: bool = False) -> list[TaskId]:
        """The tasks that have a directory here, in order.

        Args:
            with_state_only: leave out directories without a store in them.
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
        """Delete the directories of tasks that have moved away, and say which.

        Those in folders whose clients are gone are deleted, too, but not told.

        Args:
            unused_for_ms: how long a directory must have been unused (`state.cleanup.delay.ms`).
            clock: what time it is.
        """
        if len(client_folders(self.application_path, self.disk)) > 1:
            # If somebody looks for a folder just now, it is done the next time.
            with contextlib.suppress(LockError), clients_locked(self.application_path, self.disk):
                for folder in client_folders(self.application_path, self.disk):
                    if folder != self.path and not is_in_use(folder, self.disk):
                        self._in(folder)._remove_unused(unused_for_ms, clock)
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
                # Somebody uses it, or was faster in removing it.
                continue
            except (OSError, StreamsError) as error:
                logger.warning("task %s: its obsolete state stays: %s", task_id, error)
                continue
            logger.info("task %s: its obsolete state was deleted", task_id)
            removed.append(task_id)
        return removed

    def remove_outdated_tasks(self, *, max_age_ms: int, clock: Clock) -> list[TaskId]:
        """Delete the directories of tasks in which nothing was changed for long, and say which.

        For the start, when nobody works in them: a copy that was left alone for longer than its
        changelog keeps deletions has keys that were deleted since. Those in use are left alone.

        Args:
            max_age_ms: for how long (`state.cleanup.dir.max.age.ms`, KIP-1259).
            clock: what time it is.

        Raises:
            StreamsError: the disk refuses it.
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
            logger.info("task %s: its state was deleted, as it is too old", task_id)
            removed.append(task_id)
        return removed

    def _changed_ms(self, path: Path) -> int:
        """When something below a directory was changed last: a process that was killed has not
        said of the directory itself that it has used it."""
        found = self.disk.modified_ms(path)
        for entry in self.disk.entries(path):
            # What is gone by now was changed a moment ago, by whoever has the lock.
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
        """The threads that have a directory for global stores."""
        directory = self.path / _GLOBAL_DIRECTORY
        if not self.disk.is_directory(directory):
            return []
        entries = filter(self.disk.is_directory, self.disk.entries(directory))
        names = [entry.name for entry in entries]
        return [int(name) for name in names if _THREAD_DIRECTORY.fullmatch(name)]
