"""How checks see what tasks do: the methods of tasks tell them, while a history runs.

Also what the disk does to stores: everything that writes to it asks here first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from millstream.runtime.ownership.restoration import Restoration
from millstream.runtime.task.stream_task import StreamTask
from millstream.state.directories.checkpoint import CheckpointFile
from millstream.state.directories.directory import StateDirectory
from millstream.state.directories.locked_directory import LockedDirectory
from millstream.state.directories.own_file import OwnFile
from millstream.state.storage.rocksdb import RocksDBStorage
from simulation.checks import Checks, Violation
from simulation.scheduler import Process, Scheduler


class Disk:
    """What the disk of the instances does.

    Args:
        scheduler: the world.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        #: Instances whose disks are full.
        self.full: set[str] = set()
        self._files: dict[Process, set[OwnFile]] = defaultdict(set)
        self._databases: dict[Process, list[RocksDBStorage]] = defaultdict(list)
        scheduler.on_end = self._ended

    def opened(self, file: OwnFile) -> None:
        """The running process has opened a file."""
        if (process := self._scheduler.current.process) is not None:
            self._files[process].add(file)

    def has_database(self, database: RocksDBStorage) -> None:
        """The running process has opened a database."""
        if (process := self._scheduler.current.process) is not None:
            self._databases[process].append(database)

    def open_files(self, process: Process) -> list[str]:
        """The files that a process has open."""
        return sorted(str(file.path) for file in self._files[process] if file.is_open)

    def _ended(self, process: Process) -> None:
        """Close what a process that was killed has left open, as its system does."""
        for database in self._databases.pop(process, []):
            database.close()
        for file in self._files.pop(process, set()):
            if file.is_open:
                file.close()

    def refuses(self) -> bool:
        """Whether the disk of the running process takes nothing."""
        process = self._scheduler.current.process
        return process is not None and process.name[0] in self.full

    def write(self) -> bool:
        """The running process writes; false if it is dead, so that nothing may change.

        Raises:
            Crashed: it is killed here.
        """
        if self._scheduler.current.dead:
            return False
        if not self._scheduler.in_call:
            self._scheduler.step(self._scheduler.random.randrange(5, 200))
        return True


@contextmanager
def watched(scheduler: Scheduler, checks: Checks, disk: Disk) -> Iterator[None]:
    """Let checks see tasks, and the disk be asked, until this is left."""
    with _replaced(_task_methods(scheduler, checks)), _replaced(_disk_methods(disk)):
        yield


@contextmanager
def _replaced(methods: dict[tuple[type, str], Callable[..., Any]]) -> Iterator[None]:
    originals = {place: getattr(*place) for place in methods}
    for (owner, name), method in methods.items():
        setattr(owner, name, method)
    try:
        yield
    finally:
        for (owner, name), method in originals.items():
            setattr(owner, name, method)


def _task_methods(
    scheduler: Scheduler, checks: Checks
) -> dict[tuple[type, str], Callable[..., Any]]:
    open_stores, start = StreamTask.open_stores, StreamTask.start
    process, post_commit = StreamTask.process, StreamTask.post_commit
    suspend, close = StreamTask.suspend, StreamTask.close
    add = Restoration.add

    def living() -> Process | None:
        found = scheduler.current.process
        return found if found is not None and found.alive else None

    def watched_open(self: StreamTask) -> None:
        open_stores(self)
        if (where := living()) is not None:
            checks.opened(where, self)

    def watched_start(self: StreamTask, committed: Any) -> None:
        start(self, committed)
        if (where := living()) is not None:
            checks.begins(where, self)

    def watched_process(self: StreamTask, most: int) -> int:
        where = living()
        if where is not None and where.slow_us:
            scheduler.step(where.slow_us)
        before = self.processed_total
        try:
            return process(self, most)
        finally:
            if where is not None and where.alive:
                checks.processes(where, self, self.processed_total - before)

    def watched_post_commit(self: StreamTask, offsets: Any, acked: Any) -> None:
        where = living()
        if where is not None:
            checks.has_committed(where, self)
        post_commit(self, offsets, acked)

    def watched_add(self: Restoration, task_id: Any, changelogs: Any, **named: Any) -> None:
        where = living()
        if where is not None and not named.get("standby"):
            checks.restores(where, changelogs)
        add(self, task_id, changelogs, **named)

    def watched_suspend(self: StreamTask) -> None:
        if (where := living()) is not None:
            checks.stops(where, self, clean=True)
        suspend(self)

    def watched_close(self: StreamTask, *, clean: bool) -> None:
        if (where := living()) is not None:
            checks.closes(where, self, clean=clean)
        close(self, clean=clean)

    methods: dict[tuple[type, str], Callable[..., Any]] = {
        (Restoration, "add"): watched_add,
        (StreamTask, "open_stores"): watched_open,
        (StreamTask, "start"): watched_start,
        (StreamTask, "process"): watched_process,
        (StreamTask, "post_commit"): watched_post_commit,
        (StreamTask, "suspend"): watched_suspend,
        (StreamTask, "close"): watched_close,
    }
    return {place: _telling(scheduler, method) for place, method in methods.items()}


def _telling(scheduler: Scheduler, method: Callable[..., Any]) -> Callable[..., Any]:
    """What a check finds ends the history, whoever catches it on its way."""

    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except Violation as violation:
            scheduler.failed(violation)
            raise

    return call


def _disk_methods(disk: Disk) -> dict[tuple[type, str], Callable[..., Any]]:
    write_batch, close = RocksDBStorage.write_batch, RocksDBStorage.close
    write_checkpoint, note = CheckpointFile.write, StateDirectory.note_reached
    open_file, open_database = OwnFile.open, RocksDBStorage.__init__
    wipe, distrust = LockedDirectory.wipe, LockedDirectory.distrust
    no_space = "No space left on device"

    def disk_write_batch(self: RocksDBStorage, *arguments: Any, **named: Any) -> None:
        if disk.write():
            if disk.refuses():
                self._fail("write", OSError(f"IO error: {no_space}"))
            write_batch(self, *arguments, **named)

    def disk_close(self: RocksDBStorage) -> None:
        # What a killed process has written is in the log, which the next one reads: closing the
        # database that it had open changes nothing of what is in it.
        try:
            disk.write()
        finally:
            close(self)

    def disk_open_file(self: OwnFile) -> None:
        open_file(self)
        disk.opened(self)

    def disk_open_database(self: RocksDBStorage, *arguments: Any) -> None:
        open_database(self, *arguments)
        disk.has_database(self)

    def disk_checkpoint(self: CheckpointFile, offsets: Any) -> None:
        if disk.write():
            if disk.refuses():
                raise OSError(28, no_space)
            write_checkpoint(self, offsets)

    def disk_note(self: StateDirectory, *arguments: Any) -> None:
        if disk.write():
            note(self, *arguments)

    def disk_wipe(self: LockedDirectory) -> None:
        if disk.write():
            wipe(self)

    def disk_distrust(self: LockedDirectory) -> None:
        if disk.write():
            distrust(self)

    return {
        (RocksDBStorage, "write_batch"): disk_write_batch,
        (RocksDBStorage, "close"): disk_close,
        (RocksDBStorage, "__init__"): disk_open_database,
        (OwnFile, "open"): disk_open_file,
        (CheckpointFile, "write"): disk_checkpoint,
        (StateDirectory, "note_reached"): disk_note,
        (LockedDirectory, "wipe"): disk_wipe,
        (LockedDirectory, "distrust"): disk_distrust,
    }
