"""The disk of an instance: the production code's files and databases, with injected faults.

At each change, another process may run or this one may be killed. Changes of a killed process are
kept, as an operating system keeps them; changes while its code unwinds are ignored. Its open
databases are closed: RocksDB has written each batch to its write-ahead log, so the next process
reads the same data as after a crash.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from errno import ENOSPC
from pathlib import Path

from millstream.record import TaskId, TopicPartition
from millstream.state.directories.disk import Disk
from millstream.state.storage.bytes_store import ByteItems, ChangelogOffset, Storage
from millstream.state.storage.rocksdb import RocksDBSettings, RocksDBStorages
from millstream.state.storage.storages import storage_error
from simulation.scheduler import Process, Scheduler

_NO_SPACE = "No space left on device"


class DiskFaults:
    """The disks that are full.

    Args:
        scheduler: the simulation's scheduler.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        #: The names of the instances with a full disk.
        self.full: set[str] = set()

    def may_change(self, process: Process) -> bool:
        """Simulate the time of a change. Return false if the process is dead, so that it must not
        change anything.

        Raises:
            Crashed: the process was killed here.
        """
        scheduler = self._scheduler
        if not process.alive:
            return False
        if not scheduler.in_call and scheduler.current.process is process:
            scheduler.step(scheduler.random.randrange(5, 200))
        return True

    def is_full(self, process: Process) -> bool:
        """Whether the disk of a process is full."""
        return process.instance in self.full


class SimulatedDisk(Disk):
    """The files of one process.

    Args:
        faults: the faults of disks.
        process: the owner of the files.
    """

    def __init__(self, faults: DiskFaults, process: Process) -> None:
        self._faults = faults
        self._process = process

    def _change(self, path: Path, change: Callable[[], None], *, needs_space: bool = False) -> None:
        if self._faults.may_change(self._process):
            if needs_space and self._faults.is_full(self._process):
                raise OSError(ENOSPC, _NO_SPACE, str(path))
            change()

    def make_directory(self, path: Path, permissions: int, *, parents: bool = False) -> None:
        make = super().make_directory
        self._change(path, lambda: make(path, permissions, parents=parents))

    def write_text(self, path: Path, text: str) -> None:
        write = super().write_text
        self._change(path, lambda: write(path, text), needs_space=True)

    def replace_text(self, path: Path, text: str, *, durable: bool) -> None:
        replace = super().replace_text
        # Power failures are not simulated, so files need no fsync.
        self._change(path, lambda: replace(path, text, durable=False), needs_space=True)

    def touch(self, path: Path) -> None:
        touch = super().touch
        self._change(path, lambda: touch(path))

    def delete(self, path: Path) -> None:
        delete = super().delete
        self._change(path, lambda: delete(path))

    def delete_directory(self, path: Path) -> None:
        delete = super().delete_directory
        self._change(path, lambda: delete(path))

    def delete_tree(self, path: Path) -> None:
        delete = super().delete_tree
        self._change(path, lambda: delete(path))

    def write_at_start(self, descriptor: int, path: Path, text: str) -> None:
        # The owner of a lock, in its file: few bytes, for which there is always space.
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)


class SimulatedStorages:
    """Opens the databases of one process.

    Args:
        faults: the faults of disks.
        process: the owner of the databases.
    """

    def __init__(self, faults: DiskFaults, process: Process) -> None:
        self._faults = faults
        self._process = process
        # Small databases open faster.
        self._real = RocksDBStorages(
            RocksDBSettings(block_cache_bytes=1 << 20, write_buffer_bytes=1 << 16)
        )
        self._opened: list[SimulatedStorage] = []

    def open(self, name: str, directory: Path, task_id: TaskId) -> Storage:
        self._faults.may_change(self._process)
        storage = SimulatedStorage(
            self._real.open(name, directory, task_id),
            self._faults,
            self._process,
            (name, task_id, directory),
        )
        self._opened.append(storage)
        return storage

    def destroy(self, name: str, directory: Path, task_id: TaskId) -> None:
        if self._faults.may_change(self._process):
            self._real.destroy(name, directory, task_id)

    def close_all(self) -> None:
        """Close the databases of a killed process."""
        for storage in self._opened:
            storage.close()


class SimulatedStorage:
    """One database.

    Args:
        real: the database.
        faults: the faults of disks.
        process: the process that has it open.
        place: name, task and directory, for errors.
    """

    def __init__(
        self,
        real: Storage,
        faults: DiskFaults,
        process: Process,
        place: tuple[str, TaskId, Path],
    ) -> None:
        self._real = real
        self._faults = faults
        self._process = process
        self._place = place
        self.on_failure: Callable[[Exception], None] = lambda error: None
        self.get = real.get
        self.get_many = real.get_many
        self.approximate_num_entries = real.approximate_num_entries
        self.committed_offset: Callable[[TopicPartition], int | None] = real.committed_offset

    def is_empty(self) -> bool:
        return self._real.is_empty()

    def scan(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> ByteItems:
        return self._real.scan(start, end, reverse=reverse)

    def write_batch(
        self,
        items: Mapping[bytes, bytes | None],
        offset: ChangelogOffset | None,
        *,
        deleted_ranges: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        if not self._faults.may_change(self._process):
            return
        if self._faults.is_full(self._process):
            name, task_id, directory = self._place
            error = OSError(f"IO error: {_NO_SPACE}")
            failure = storage_error("write", name, task_id, directory, error)
            self.on_failure(failure)
            raise failure from error
        self._real.write_batch(items, offset, deleted_ranges=deleted_ranges)

    def set_bulk_loading(self, enabled: bool) -> None:
        self._real.set_bulk_loading(enabled)

    def close(self) -> None:
        try:
            self._faults.may_change(self._process)
        finally:
            self._real.close()
