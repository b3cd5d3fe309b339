"""Goal: a process killed with SIGKILL leaves data and offset that agree, and loses no commit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from support.machine.scripts import Program, python
from support.waiting import wait_for

from millstream.record import TopicPartition
from millstream.serdes import LONG, STRING
from millstream.state.builders.key_value import KeyValueStoreBuilder
from millstream.state.task_stores import TaskStores

CHANGELOG = TopicPartition("app-s-changelog", 0)

#: Works for ever: after step n, every key has the value n and the offset is n; prints n.
_WORKER = """
import sys
from millstream.record import TaskId, TopicPartition
from millstream.serdes import LONG, STRING
from millstream.state.builders.key_value import KeyValueStoreBuilder
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.directories.state_directory import StateDirectory
from millstream.state.task_stores import TaskStores

class Writer:
    def log_many(self, store_name, keys, values, timestamps, headers=None): pass

class Context:
    timestamp, place, offset, headers = 0, None, -1, ()

state_dir, what = sys.argv[1:]
changelog = TopicPartition("app-s-changelog", 0)
stores = TaskStores(
    TaskId(0, 0), [KeyValueStoreBuilder("s", "rocksdb", STRING, LONG)],
    StateDirectory(state_dir, "app"), application_id="app", changelogs={"s": changelog},
    writer=Writer(), context=Context(), budget=CacheBudget(0),
)
stores.open()
n = stores.changelog_offsets()[changelog]
n = 0 if n is None else n + 1
# Large enough that memtables are flushed to disk under way.
keys = [f"key-{i:05}" + "x" * 1000 for i in range(3_000)]
(restorer,) = stores.restorers().values()
if what.startswith("restore-many"):
    restorer.begin(0, 1_000_000)
    if what == "restore-many-mixed":
        keys = keys[::2] + keys[1::2]
while True:
    if what.startswith("restore"):
        data = [n.to_bytes(8, "big")] * len(keys)
        restorer.restore_batch([key.encode() for key in keys], data, [0] * len(keys), [n])
    else:
        stores.store("s").put_all([(key, n) for key in keys])
        stores.commit({changelog: n})
    print(n, flush=True)
    n += 1
    if what == "reopen":
        stores.close(clean=True)
        stores.open()
"""


def has_told(worker: Program, steps: int) -> bool:
    assert worker.is_running, worker.errors
    return len(worker.lines) >= steps


@pytest.mark.parametrize("what", ["commit", "restore", "reopen"])
def test_data_and_offset_agree_after_sigkill(
    tmp_path: Path, open_task: Callable[..., TaskStores], what: str
) -> None:
    """Method: kill a working process at several moments; look; let the next one go on.

    It commits, restores, or closes and opens again and again.
    """
    builder = KeyValueStoreBuilder("s", kind="rocksdb", key_serde=STRING, value_serde=LONG)
    before = -1
    for steps_seen in (1, 4, 15) if what == "commit" else (1, 4):
        with python(_WORKER, tmp_path, what) as worker:
            wait_for(partial(has_told, worker, steps_seen), 60, f"{steps_seen} steps")
        first_told, last_told = int(worker.lines[0]), int(worker.lines[-1])
        assert first_told == before + 1
        stores = open_task(builder, state_dir=tmp_path)
        offset = stores.changelog_offsets()[CHANGELOG]
        assert offset is not None
        # The last step may have been finished without having been told.
        assert offset in (last_told, last_told + 1)
        values = [value for _, value in stores.store("s").all()]
        assert len(values) == 3_000
        assert set(values) == {offset}
        stores.close(clean=True)
        before = offset


@pytest.mark.parametrize("what", ["restore-many", "restore-many-mixed"])
def test_of_many_restored_records_the_last_come_again_after_sigkill(
    tmp_path: Path, open_task: Callable[..., TaskStores], what: str
) -> None:
    """They are not logged: what is lost with the process is lost to the offset as well.

    What RocksDB has put on disk by itself counts: 48 MB at most are in memory, and a step is 3 MB.
    """
    builder = KeyValueStoreBuilder("s", kind="rocksdb", key_serde=STRING, value_serde=LONG)
    next_step = 0
    for steps_seen in (1, 30):
        with python(_WORKER, tmp_path, what) as worker:
            wait_for(partial(has_told, worker, steps_seen), 60, f"{steps_seen} steps")
        first_told, last_told = int(worker.lines[0]), int(worker.lines[-1])
        assert first_told == next_step
        stores = open_task(builder, state_dir=tmp_path)
        offset = stores.changelog_offsets()[CHANGELOG]
        values = [value for _, value in stores.store("s").all()]
        if offset is None:
            assert not values
            assert last_told < 20
        else:
            assert last_told - 20 < offset <= last_told + 1
            assert values == [offset] * 3_000
        stores.close(clean=True)
        next_step = 0 if offset is None else offset + 1


def test_a_clean_close_is_read_by_the_next_process(
    tmp_path: Path, open_task: Callable[..., TaskStores]
) -> None:
    """Several commits, closed, opened: nothing lost, nothing uncommitted kept."""
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
