"""Disks and storages that fail on request."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from millstream.record import TaskId
from millstream.state.directories.disk import Disk
from millstream.state.storage.storages import Storages, storage_error

NO_SPACE = "IO error: No space left on device: While appending to file: 000008.log"
IO_ERROR = "IO error: While fsync: 000008.log: Input/output error"
CORRUPTION = "Corruption: block checksum mismatch"


class FailingStorages:
    """Storages that fail on request.

    Attributes:
        failures: the database's error by operation: `open`, `delete`, `read`, `scan`, `write`,
            `close`.
    """

    def __init__(self, inner: Storages) -> None:
        self.failures: dict[str, str] = {}
        self._inner = inner

    def open(self, name: str, directory: Path, task_id: TaskId) -> Any:
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


#: The operation of each method of a storage that can fail.
_OPERATIONS = {"get": "read", "get_many": "read", "scan": "scan", "write_batch": "write"}


class _FailingStorage:
    def __init__(
        self, owner: FailingStorages, place: tuple[str, Path, TaskId], storages: Storages
    ) -> None:
        self._owner = owner
        self._place = place
        self._inner = storages.open(*place)
        self.on_failure: Callable[[Exception], None] = lambda error: None

    def __getattr__(self, name: str) -> Any:
        method, operation = getattr(self._inner, name), _OPERATIONS.get(name)
        if operation is None:
            return method

        def checked(*arguments: Any, **named: Any) -> Any:
            self._owner.check(operation, *self._place, self.on_failure)
            return method(*arguments, **named)

        return checked

    def close(self) -> None:
        self._inner.close()
        self._owner.check("close", *self._place, self.on_failure)


class FullDisk(Disk):
    """A disk on which nothing can be created or written while it is full."""

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
