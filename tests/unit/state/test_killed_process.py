"""Goal: a process killed with SIGKILL leaves data and offset that agree, and loses no commit."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.record import TopicPartition
from millstream.serdes import LONG, STRING
from millstream.state.builders import KeyValueStoreBuilder
from millstream.state.task_stores import TaskStores

CHANGELOG = TopicPartition("app-s-changelog", 0)

#: Commits for ever: after commit n, every key has the value n and the offset is n; prints n.
_WORKER = """
import sys
from millstream.record import TaskId, TopicPartition
from millstream.serdes import LONG, STRING
from millstream.state.builders import KeyValueStoreBuilder
from millstream.state.cache_entries import CacheBudget
from millstream.state.directory import StateDirectory
from millstream.state.task_stores import TaskStores

class Writer:
    def log_many(self, store_name, keys, values, timestamps, headers=None): pass

class Context:
    timestamp, place, offset, headers = 0, None, -1, ()

changelog = TopicPartition("app-s-changelog", 0)
stores = TaskStores(
    TaskId(0, 0), [KeyValueStoreBuilder("s", "rocksdb", STRING, LONG)],
    StateDirectory(sys.argv[1], "app"), application_id="app", changelogs={"s": changelog},
    writer=Writer(), context=Context(), budget=CacheBudget(0), exactly_once=True,
)
stores.open()
store = stores.store("s")
n = stores.changelog_offsets()[changelog]
n = 0 if n is None else n + 1
while True:
    # Large enough that memtables are flushed to disk under way.
    store.put_all([(f"key-{i:05}" + "x" * 1000, n) for i in range(3_000)])
    stores.commit({changelog: n})
    print(n, flush=True)
    n += 1
"""


def test_data_and_offset_agree_after_sigkill(
    tmp_path: Path, open_task: Callable[..., TaskStores]
) -> None:
    """Method: kill a committing process at several moments; look; let the next one go on."""
    builder = KeyValueStoreBuilder("s", kind="rocksdb", key_serde=STRING, value_serde=LONG)
    before = -1
    for commits_seen in (1, 4, 15):
        worker = subprocess.Popen(
            [sys.executable, "-c", _WORKER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        try:
            assert worker.stdout is not None
            told = [int(worker.stdout.readline()) for _ in range(commits_seen)]
        finally:
            worker.send_signal(signal.SIGKILL)
            worker.wait(timeout=10)
            rest = worker.stdout.read() if worker.stdout else ""
            if worker.stdout:
                worker.stdout.close()
        last_told = [*told, *map(int, rest.split())][-1]
        assert told[0] == before + 1
        stores = open_task(builder, state_dir=tmp_path, exactly_once=True)
        offset = stores.changelog_offsets()[CHANGELOG]
        assert offset is not None
        # The last commit may have been finished without having been told.
        assert offset in (last_told, last_told + 1)
        values = [value for _, value in stores.store("s").all()]
        assert values == [offset] * 3_000
        stores.close(clean=True)
        before = offset


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
