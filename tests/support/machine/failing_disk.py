"""Disks and storages that fail when a test says so."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from millstream.record import TaskId, TopicPartition
from millstream.state.directories.disk import Disk
from millstream.state.storage.bytes_store import ByteItems, ChangelogOffset, Storage
from millstream.state.storage.storages import Storages, storage_error

NO_SPACE = "IO error: No space left on device: While appending to file: 000008.log"
IO_ERROR = "IO error: While fsync: 000008.log: Input/output error"
CORRUPTION = "Corruption: block checksum mismatch"


class FailingStorages:
    """Storages that work until told how to fail.

    Args:
        inner: what works.

    Attributes:
        failures: what the database says by what is tried: `open`, `delete`, `read`, `scan`,
            `write`, `close`.
    """

    def __init__(self, inner: Storages) -> None:
        self.failures: dict[str, str] = {}
        self._inner = inner

    def open(self, name: str, directory: Path, task_id: TaskId) -> Storage:
        self.check("open", name, directory, task_id)
        return _FailingStorage(self, (name, directory, task_id), self._inner)

    def destroy(self, name: str, directory: Path, task_id: TaskId) -> None:
        self.check("delete", name, directory, task_id)
        self._inner.destroy(name, directory, task_id)

    def check(
        self,
        attempt: str,
        name: str,
        directory: Path,
        task_id: TaskId,
        on_failure: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        if attempt in self.failures:
            error = Exception(self.failures[attempt])
            failure = storage_error(attempt, name, task_id, directory, error)
            on_failure(failure)
            raise failure from error


class _FailingStorage:
    def __init__(
        self, owner: FailingStorages, place: tuple[str, Path, TaskId], storages: Storages
    ) -> None:
        self._owner = owner
        self._place = place
        self._inner = storages.open(*place)
        self.on_failure: Callable[[Exception], None] = lambda error: None

    def _check(self, attempt: str) -> None:
        self._owner.check(attempt, *self._place, self.on_failure)

    def is_empty(self) -> bool:
        return self._inner.is_empty()

    def get(self, key: bytes) -> bytes | None:
        self._check("read")
        return self._inner.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._check("read")
        return self._inner.get_many(keys)

    def scan(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> ByteItems:
        self._check("scan")
        return self._inner.scan(start, end, reverse=reverse)

    def approximate_num_entries(self) -> int:
        return self._inner.approximate_num_entries()

    def write_batch(
        self,
        items: Mapping[bytes, bytes | None],
        offset: ChangelogOffset | None,
        *,
        dropped: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        self._check("write")
        self._inner.write_batch(items, offset, dropped=dropped)

    def expect_many(self, expected: bool) -> None:
        self._inner.expect_many(expected)

    def committed_offset(self, partition: TopicPartition) -> int | None:
        return self._inner.committed_offset(partition)

    def close(self) -> None:
        self._inner.close()
        self._check("close")


class FullDisk(Disk):
    """A disk on which nothing can be made or written while it is full."""

    def __init__(self) -> None:
        self.is_full = False

    def make_directory(self, path: Path, permissions: int, *, parents: bool = False) -> None:
        if self.is_full and not path.exists():
            self._refuse(path)
        super().make_directory(path, permissions, parents=parents)

    def write_text(self, path: Path, text: str) -> None:
        if self.is_full:
            self._refuse(path)
        super().write_text(path, text)

    def replace_text(self, path: Path, text: str, *, durable: bool) -> None:
        if self.is_full:
            self._refuse(path)
        super().replace_text(path, text, durable=durable)

    def write_at_start(self, descriptor: int, path: Path, text: str) -> None:
        if self.is_full:
            self._refuse(path)
        super().write_at_start(descriptor, path, text)

    def _refuse(self, path: Path) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
