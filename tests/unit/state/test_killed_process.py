"""After SIGKILL, data and offset agree, and no commit is lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from support.machine.scripts import Program, python
from support.waiting import wait_for

from millstream.record import TopicPartition
from millstream.serdes import LONG, STRING
from millstream.state.builders.store_builder import KeyValueStoreBuilder
from millstream.state.task_stores import TaskStores

CHANGELOG = TopicPartition("app-s-changelog", 0)

#: Runs until it is killed. After step n, every key has the value n and the offset is n. Prints n.
_WORKER = """
import sys
from millstream.record import TaskId, TopicPartition
from millstream.serdes import LONG, STRING
from millstream.state.builders.store_builder import KeyValueStoreBuilder
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.directories.state_directory import StateDirectory
from millstream.state.task_stores import TaskStores

class Writer:
    def log_many(self, store_name, keys, values, timestamps, headers=None): pass

class Context:
    timestamp, place, offset, headers = 0, None, -1, ()

state_dir, mode = sys.argv[1:]
changelog = TopicPartition("app-s-changelog", 0)
stores = TaskStores(
    TaskId(0, 0), [KeyValueStoreBuilder("s", "rocksdb", STRING, LONG)],
    StateDirectory(state_dir, "app"), application_id="app", changelogs={"s": changelog},
    writer=Writer(), context=Context(), budget=CacheBudget(0),
)
stores.open()
n = stores.changelog_offsets()[changelog]
n = 0 if n is None else n + 1
# Large enough that memtables are flushed to disk meanwhile.
keys = [f"key-{i:05}" + "x" * 1000 for i in range(3_000)]
(restorer,) = stores.restorers().values()
if mode.startswith("restore-many"):
    restorer.begin(0, 1_000_000)
    if mode == "restore-many-mixed":
        keys = keys[::2] + keys[1::2]
while True:
    if mode.startswith("restore"):
        data = [n.to_bytes(8, "big")] * len(keys)
        restorer.restore_batch([key.encode() for key in keys], data, [0] * len(keys), [n])
    else:
        stores.store("s").put_all([(key, n) for key in keys])
        stores.commit({changelog: n})
    print(n, flush=True)
    n += 1
    if mode == "reopen":
        stores.close(clean=True)
        stores.open()
"""


def has_reported(worker: Program, steps: int) -> bool:
    assert worker.is_running, worker.errors
    return len(worker.lines) >= steps


@pytest.mark.parametrize("mode", ["commit", "restore", "reopen"])
def test_data_and_offset_agree_after_sigkill(
    tmp_path: Path, open_task: Callable[..., TaskStores], mode: str
) -> None:
    """Kills a running process at several moments, checks the store, and starts the next one.

    The process commits, restores, or repeatedly closes and reopens the store.
    """
    builder = KeyValueStoreBuilder("s", kind="rocksdb", key_serde=STRING, value_serde=LONG)
    before = -1
    for steps_seen in (1, 4, 15) if mode == "commit" else (1, 4):
        with python(_WORKER, tmp_path, mode) as worker:
            wait_for(partial(has_reported, worker, steps_seen), 60, f"{steps_seen} steps")
        first_reported, last_reported = int(worker.lines[0]), int(worker.lines[-1])
        assert first_reported == before + 1
        stores = open_task(builder, state_dir=tmp_path)
        offset = stores.changelog_offsets()[CHANGELOG]
        assert offset is not None
        # The last step may have finished without being reported.
        assert offset in (last_reported, last_reported + 1)
        values = [value for _, value in stores.store("s").all()]
        assert len(values) == 3_000
        assert set(values) == {offset}
        stores.close(clean=True)
        before = offset


@pytest.mark.extended
@pytest.mark.parametrize("mode", ["restore-many", "restore-many-mixed"])
def test_the_last_bulk_restored_records_are_restored_again_after_sigkill(
    tmp_path: Path, open_task: Callable[..., TaskStores], mode: str
) -> None:
    """Bulk loading writes no write-ahead log: the offset does not include lost data either.

    Data that RocksDB has flushed by itself counts. At most 48 MB are in memory, and a step is 3 MB.
    """
    builder = KeyValueStoreBuilder("s", kind="rocksdb", key_serde=STRING, value_serde=LONG)
    next_step = 0
    for steps_seen in (1, 30):
        with python(_WORKER, tmp_path, mode) as worker:
            wait_for(partial(has_reported, worker, steps_seen), 60, f"{steps_seen} steps")
        first_reported, last_reported = int(worker.lines[0]), int(worker.lines[-1])
        assert first_reported == next_step
        stores = open_task(builder, state_dir=tmp_path)
        offset = stores.changelog_offsets()[CHANGELOG]
        values = [value for _, value in stores.store("s").all()]
        if offset is None:
            assert not values
            assert last_reported < 20
        else:
            assert last_reported - 20 < offset <= last_reported + 1
            assert values == [offset] * 3_000
        stores.close(clean=True)
        next_step = 0 if offset is None else offset + 1


def test_a_cleanly_closed_store_can_be_reopened(
    tmp_path: Path, open_task: Callable[..., TaskStores]
) -> None:
    """After several commits, nothing is lost."""
    builder = KeyValueStoreBuilder("s", kind="rocksdb", key_serde=STRING, value_serde=LONG)
    stores = open_task(builder, state_dir=tmp_path)
    for n in range(5):
        stores.store("s").put(f"key-{n}", n)
        stores.commit({CHANGELOG: n})
    stores.close(clean=True)
    stores = open_task(builder, state_dir=tmp_path)
    assert stores.changelog_offsets() == {CHANGELOG: 4}
    assert [value for _, value in stores.store("s").all()] == list(range(5))
    with pytest.raises(StopIteration):
        next(stores.store("s").range("x"))
