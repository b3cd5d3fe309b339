"""RocksDB stores in temporary directories, with an in-memory changelog."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from millstream.record import Headers, TaskId, TopicPartition
from millstream.serdes import LONG, STRING
from millstream.state.builders.store_builder import KeyValueStoreBuilder, StoreBuilder
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.directories.state_directory import StateDirectory
from millstream.state.storage.overlay import UncommittedBudget
from millstream.state.storage.rocksdb import RocksDBStorage, RocksDBStorages
from millstream.state.storage.write_check import WriteCheck
from millstream.state.task_stores import TaskStores

TASK = TaskId(0, 0)
CHANGELOG = TopicPartition("app-s-changelog", 0)


class Changelog:
    """The records written to an in-memory changelog topic. The offset is the index."""

    def __init__(self) -> None:
        self.records: list[tuple[str, bytes, bytes | None, int | None]] = []

    def log_many(
        self,
        store_name: str,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int] | None,
        headers: Sequence[Headers] | None = None,
    ) -> None:
        names = [store_name] * len(keys)
        times = [None] * len(keys) if timestamps is None else timestamps
        self.records += zip(names, keys, values, times, strict=True)

    @property
    def last_offset(self) -> int:
        return len(self.records) - 1


class Context:
    """The record being processed, to be set by the test."""

    def __init__(self) -> None:
        self.timestamp = 0
        self.place: TopicPartition | None = None
        self.offset = -1
        self.headers: Headers = ()


@pytest.fixture
def changelog() -> Changelog:
    return Changelog()


@pytest.fixture
def context() -> Context:
    return Context()


@pytest.fixture
def open_storage(tmp_path: Path) -> Iterator[Callable[..., RocksDBStorage]]:
    """Opens RocksDB databases and closes the remaining ones after the test."""
    opened: list[RocksDBStorage] = []

    def open_storage(name: str = "s") -> RocksDBStorage:
        opened.append(RocksDBStorage(name, tmp_path / "db" / name, TASK, RocksDBStorages()))
        return opened[-1]

    yield open_storage
    for storage in opened:
        storage.close()


@pytest.fixture
def open_task(
    tmp_path: Path, changelog: Changelog, context: Context
) -> Iterator[Callable[..., TaskStores]]:
    """Opens the stores of task 0_0. The default is a timestamped store `s` of STRING to LONG."""
    opened: list[TaskStores] = []

    def open_task(
        builder: StoreBuilder | None = None,
        *,
        budget: CacheBudget | None = None,
        uncommitted_max_bytes: int = 1 << 20,
        uncommitted: UncommittedBudget | None = None,
        recent_max_bytes: int = 1 << 20,
        write_check: WriteCheck | None = None,
        state_dir: Path | None = None,
    ) -> TaskStores:
        builder = builder or KeyValueStoreBuilder(
            "s", kind="rocksdb", key_serde=STRING, value_serde=LONG, timestamped=True
        )
        stores = TaskStores(
            TASK,
            [builder],
            StateDirectory(state_dir or tmp_path / "state", "app"),
            application_id="app",
            changelogs={builder.name: CHANGELOG} if builder.logging else {},
            writer=changelog,
            context=context,
            budget=budget or CacheBudget(1 << 20),
            uncommitted=uncommitted or UncommittedBudget(uncommitted_max_bytes),
            recent_max_bytes=recent_max_bytes,
            write_check=write_check,
        )
        opened.append(stores)
        stores.open()
        return stores

    yield open_task
    for stores in opened:
        stores.close(clean=False)
