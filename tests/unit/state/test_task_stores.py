"""The stores of a task open, commit, restore, close and recover together."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.tasks.standalone_store import flush_caches

from millstream.config.streams_config import StreamsConfig
from millstream.errors import (
    IllegalStateError,
    LockError,
    TaskCorruptedError,
    UnknownStateStoreError,
)
from millstream.record import TaskId, TopicPartition, ValueAndTimestamp
from millstream.serdes import JSON, LONG, STRING
from millstream.state.builders.store_builder import KeyValueStoreBuilder, StoreBuilder
from millstream.state.builders.versioned_builders import VersionedStoreBuilder
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.changelogs.restore import apply_latest
from millstream.state.directories.state_directory import StateDirectory
from millstream.state.opening.open_store import OpenStore, StoreEnvironment
from millstream.state.opening.store_layers import open_store
from millstream.state.storage.memory import MemoryStore
from millstream.state.storage.overlay import UncommittedBudget
from millstream.state.storage.value_formats import PLAIN
from millstream.state.storage.write_check import WriteCheck
from millstream.state.task_stores import TaskStores

OpenTask = Callable[..., TaskStores]
CHANGELOG = TopicPartition("app-s-changelog", 0)


def replay(stores: TaskStores, changelog: Any) -> int:
    """Restore from the changelog, starting at the store's offset, as the runtime does."""
    restorer = stores.restorers()[CHANGELOG]
    start = restorer.start_offset() or 0
    records = changelog.records[start:]
    return restorer.restore_batch(
        [key for _, key, _, _ in records],
        [value for _, _, value, _ in records],
        [time for _, _, _, time in records],
        range(start, len(changelog.records)),
    )


def test_only_committed_writes_survive_a_dirty_close(open_task: OpenTask, changelog: Any) -> None:
    """After a crash, the store is at its last commit, and the changelog supplies the rest."""
    stores = open_task()
    stores.store("s").put("a", ValueAndTimestamp(1, 1))
    stores.commit({CHANGELOG: 0})
    stores.store("s").put("a", ValueAndTimestamp(2, 2))
    stores.store("s").put("b", ValueAndTimestamp(3, 3))
    assert stores.uncommitted_bytes > 0
    stores.close(clean=False)
    stores = open_task()
    assert stores.changelog_offsets() == {CHANGELOG: 0}
    assert list(stores.store("s").all()) == [("a", ValueAndTimestamp(1, 1))]
    assert replay(stores, changelog) == 2
    assert stores.changelog_offsets() == {CHANGELOG: 2}
    assert list(stores.store("s").all()) == [
        ("a", ValueAndTimestamp(2, 2)),
        ("b", ValueAndTimestamp(3, 3)),
    ]
    stores.close(clean=False)
    assert open_task().changelog_offsets() == {CHANGELOG: 2}


def test_an_in_memory_store_is_restored_completely(open_task: OpenTask, changelog: Any) -> None:
    """Nothing is on disk, and the changelog supplies everything."""
    builder = KeyValueStoreBuilder("s", kind="in_memory", key_serde=STRING, value_serde=LONG)
    stores = open_task(builder)
    stores.store("s").put_all([("a", 1), ("b", 2), ("a", None)])
    stores.commit({CHANGELOG: 2})
    assert stores.changelog_offsets() == {CHANGELOG: 2}
    stores.close(clean=True)
    stores = open_task(builder)
    assert stores.changelog_offsets() == {CHANGELOG: None}
    assert replay(stores, changelog) == 3
    assert list(stores.store("s").all()) == [("b", 2)]
    assert not Path(stores._directory.path).exists()


def test_restoring_skips_null_keys_and_keeps_the_last_value(open_task: OpenTask) -> None:
    """The offsets of skipped records count; timestamps are prepended to values."""
    stores = open_task()
    restorer = stores.restorers()[CHANGELOG]
    assert restorer.start_offset() is None
    one = struct.pack(">q", 1)
    assert restorer.restore_batch([], [], [], []) == 0
    assert restorer.restore_batch([b"a", b"b"], [one, one], [5, 6], [10, 12]) == 2
    assert (
        restorer.restore_batch(
            [b"b", None, b"a", b"a"], [None, one, None, one], [7] * 4, range(20, 24)
        )
        == 4
    )
    assert restorer.start_offset() == 24
    assert list(stores.store("s").all()) == [("a", ValueAndTimestamp(1, 7))]


def test_writes_during_a_restoration_are_an_error(open_task: OpenTask) -> None:
    """Restoring below uncommitted writes raises."""
    stores = open_task()
    stores.store("s").put("a", ValueAndTimestamp(1, 1))
    with pytest.raises(IllegalStateError, match="cannot be restored"):
        stores.restorers()[CHANGELOG].restore_batch([b"a"], [None], [0], [0])


def test_offsets_do_not_go_back(open_task: OpenTask) -> None:
    """A lower offset indicates a bug in the runtime."""
    stores = open_task()
    stores.commit({CHANGELOG: 5})
    stores.commit({CHANGELOG: 5})
    with pytest.raises(AssertionError, match="has reached offset 5"):
        stores.commit({CHANGELOG: 4})


def test_data_without_an_offset_is_discarded(
    open_task: OpenTask, caplog: pytest.LogCaptureFixture
) -> None:
    """Its changelog position is unknown, so the store is rebuilt."""
    stores = open_task()
    stores.store("s").put("key", ValueAndTimestamp(1, 1))
    stores.commit({})
    stores.close(clean=False)
    with caplog.at_level(logging.INFO):
        stores = open_task()
    assert "rebuilding store s from its changelog" in caplog.text
    assert list(stores.store("s").all()) == []


def test_a_thread_with_many_uncommitted_writes_needs_a_commit(open_task: OpenTask) -> None:
    """Detects a limit that is not enforced, or is still exceeded after the commit."""
    stores = open_task(uncommitted_max_bytes=200)
    assert not stores.needs_commit
    for n in range(20):
        stores.store("s").put(f"key-{n}", ValueAndTimestamp(n, n))
    stores.after_work()
    assert stores.needs_commit
    stores.on_commit_started()
    assert stores.needs_commit
    stores.commit({CHANGELOG: 19})
    assert not stores.needs_commit
    assert stores.uncommitted_bytes == 0


def test_a_closed_task_releases_its_uncommitted_bytes(open_task: OpenTask) -> None:
    """Detects a thread that commits after each batch because of a task that it no longer owns."""
    budget = UncommittedBudget(200)
    stores = open_task(uncommitted=budget)
    for n in range(20):
        stores.store("s").put(f"key-{n}", ValueAndTimestamp(n, n))
    stores.after_work()
    assert budget.is_exceeded
    stores.close(clean=False)
    assert not budget.is_exceeded


def test_a_store_only_writes_delivered_units(open_task: OpenTask) -> None:
    """`WriteCheck` accepts commits in order, and rejects others."""
    check = WriteCheck()
    stores = open_task(write_check=check)
    check.begin()
    stores.store("s").put("a", ValueAndTimestamp(1, 1))
    with pytest.raises(IllegalStateError, match="unit 1"):
        stores.commit({CHANGELOG: 0})
    check.end()
    with pytest.raises(IllegalStateError, match="only units up to 0 are delivered"):
        stores.commit({CHANGELOG: 0})
    check.flushed()
    stores.on_commit_started()
    check.begin()
    stores.store("s").put("b", ValueAndTimestamp(1, 1))
    stores.commit({CHANGELOG: 0})
    with pytest.raises(IllegalStateError, match="unit 2"):
        stores.commit({CHANGELOG: 1})


@pytest.mark.parametrize(
    "builder",
    [
        VersionedStoreBuilder("s", 100, 10, STRING, LONG),
        KeyValueStoreBuilder("s", "rocksdb", STRING, LONG, timestamped=True),
    ],
    ids=["versioned", "key-value"],
)
def test_restored_records_count_as_delivered(
    open_task: OpenTask, changelog: Any, builder: StoreBuilder
) -> None:
    """Undelivered batches, of the crashed task or of others, do not prevent a restoration."""
    changelog.records.append(("s", b"a", LONG.serialize("", 1), 1))
    check = WriteCheck()
    check.begin()
    stores = open_task(builder, write_check=check)
    assert replay(stores, changelog) == 1


def test_a_task_has_one_owner(open_task: OpenTask, tmp_path: Path) -> None:
    """A task that is open elsewhere can only be opened after it is closed there."""
    stores = open_task()
    with pytest.raises(LockError, match="0_0"):
        open_task()
    stores.close(clean=True)
    stores.close(clean=True)
    stores.open()
    assert stores.names == ["s"]


def test_a_corrupted_store_is_deleted_and_rebuilt(open_task: OpenTask, changelog: Any) -> None:
    """A `TaskCorruptedError` on opening leaves nothing locked; the next attempt opens an empty
    store."""
    stores = open_task()
    stores.store("s").put("a", ValueAndTimestamp(1, 1))
    stores.commit({CHANGELOG: 0})
    stores.close(clean=True)
    (stores._directory.task_directory(TaskId(0, 0)) / "rocksdb/s/CURRENT").write_text("garbage")
    with pytest.raises(TaskCorruptedError) as caught:
        stores.open()
    assert caught.value.task_ids == {TaskId(0, 0)}
    stores.open()
    assert stores.changelog_offsets() == {CHANGELOG: None}
    replay(stores, changelog)
    assert stores.store("s").get("a") == ValueAndTimestamp(1, 1)
    stores.mark_corrupted()
    stores.close(clean=True)
    stores.open()
    assert list(stores.store("s").all()) == []


def test_all_stores_are_closed_if_one_cannot_be_opened(open_task: OpenTask) -> None:
    """Otherwise the next attempt would find the database of another store locked."""

    builders: list[Any] = [KeyValueStoreBuilder("s", "rocksdb", STRING, LONG), _BrokenBuilder()]
    stores = open_task(builders[0])
    stores.close(clean=True)
    stores._builders = builders
    with pytest.raises(TaskCorruptedError):
        stores.open()
    stores._builders = builders[:1]
    stores.open()


def test_errors_of_unknown_and_unopened_stores_differ(open_task: OpenTask) -> None:
    """The error lists the stores, or explains that they are not open."""
    stores = open_task()
    with pytest.raises(UnknownStateStoreError, match="it has s"):
        stores.store("other")
    stores.close(clean=False)
    with pytest.raises(IllegalStateError, match="not open"):
        stores.store("s")


def test_a_plain_store_cannot_back_a_table(open_task: OpenTask) -> None:
    """Operators of tables need timestamps."""
    stores = open_task(
        KeyValueStoreBuilder("s", kind="in_memory", key_serde=STRING, value_serde=LONG)
    )
    with pytest.raises(IllegalStateError, match="timestamped_key_value_builder"):
        stores.table("s")


def test_uncommitted_writes_in_a_clean_close_are_logged(
    open_task: OpenTask, caplog: pytest.LogCaptureFixture
) -> None:
    """They are dropped with a warning."""
    stores = open_task()
    stores.store("s").put("a", ValueAndTimestamp(1, 1))
    with caplog.at_level(logging.WARNING):
        stores.close(clean=True)
    assert "bytes of uncommitted writes" in caplog.text


def test_a_recycled_task_keeps_its_stores_and_loses_its_caches(
    open_task: OpenTask, changelog: Any
) -> None:
    """Reads must see the records applied by the standby, not the active task's cache."""
    builder = KeyValueStoreBuilder(
        "s", kind="rocksdb", key_serde=STRING, value_serde=LONG, timestamped=True, caching=True
    )
    stores = open_task(builder)
    store = stores.store("s")
    store.put("a", ValueAndTimestamp(1, 1))
    flush_caches(stores, lambda name, changes: None)
    stores.commit({CHANGELOG: 0})
    stores.recycle()
    stores.restorers()[CHANGELOG].restore_batch([b"a"], [struct.pack(">q", 9)], [9], [1])
    assert store.get("a") == ValueAndTimestamp(9, 9)
    assert stores.changelog_offsets() == {CHANGELOG: 1}


def test_stores_with_writes_of_a_closed_processor_are_not_recycled(
    open_task: OpenTask, changelog: Any
) -> None:
    """These writes follow the last commit, and may not have been delivered."""
    stores = open_task()
    store = stores.store("s")
    store.put("a", ValueAndTimestamp(1, 1))
    stores.commit({CHANGELOG: 0})
    assert stores.can_recycle
    store.put("last", ValueAndTimestamp(2, 2))
    assert not stores.can_recycle
    with pytest.raises(IllegalStateError, match="cannot stay open for another role"):
        stores.recycle()
    stores.close(clean=False)
    stores = open_task()
    assert stores.changelog_offsets() == {CHANGELOG: 0}
    assert replay(stores, changelog) == 1
    assert list(stores.store("s").all()) == [
        ("a", ValueAndTimestamp(1, 1)),
        ("last", ValueAndTimestamp(2, 2)),
    ]


def test_in_memory_stores_with_uncommitted_writes_are_not_recycled(open_task: OpenTask) -> None:
    """These writes are only visible in the changelog."""
    stores = open_task(
        KeyValueStoreBuilder("s", kind="in_memory", key_serde=STRING, value_serde=LONG)
    )
    stores.store("s").put("a", 1)
    assert not stores.uncommitted_bytes
    assert not stores.can_recycle
    stores.commit({CHANGELOG: 0})
    assert stores.can_recycle


def test_cached_changes_can_be_written_without_a_flush(open_task: OpenTask, changelog: Any) -> None:
    """Otherwise an offset could be committed before the changes of its record."""
    builder = KeyValueStoreBuilder(
        "s", kind="rocksdb", key_serde=STRING, value_serde=LONG, timestamped=True, caching=True
    )
    stores = open_task(builder)
    stores.store("s").put("a", ValueAndTimestamp(1, 1))
    assert (stores.has_cached_changes, changelog.records) == (True, [])
    assert stores.write_cached_changes() == ["s"]
    assert (stores.has_cached_changes, len(changelog.records)) == (False, 1)
    assert stores.write_cached_changes() == []


class _NoOffsetsBuilder:
    """A persistent store that stores no offset, like a custom store."""

    name = "custom"
    logging = True
    persistent = True

    def __init__(self) -> None:
        self.base = _PersistentMemoryStore()
        self.topic_config: Mapping[str, str] = {}

    def resolved(self, config: StreamsConfig) -> StoreBuilder:
        return self

    def changelog_config(self) -> dict[str, str]:
        return {}

    def close(self) -> None: ...


class _PersistentMemoryStore(MemoryStore):
    """A store whose data seems to survive the process."""

    persistent = True


@open_store.register
def _open_without_offsets(builder: _NoOffsetsBuilder, environment: StoreEnvironment) -> OpenStore:
    base = builder.base
    return OpenStore(builder, None, base, apply_latest(base, PLAIN), keeps_offset=False)


class _BrokenBuilder(_NoOffsetsBuilder):
    """Describes a store that cannot be opened."""

    name = "broken"


@open_store.register
def _fail_to_open(builder: _BrokenBuilder, environment: StoreEnvironment) -> OpenStore:
    raise TaskCorruptedError("broken", task_ids=[environment.task_id])


def test_offsets_of_stores_without_own_offsets_are_written_to_the_checkpoint_file(
    tmp_path: Path, changelog: Any, context: Any
) -> None:
    """Written after large changes or when forced, and read when the task is opened; not for other
    stores."""
    own = TopicPartition("app-custom-changelog", 0)
    builders: list[StoreBuilder] = [
        _NoOffsetsBuilder(),
        KeyValueStoreBuilder("s", kind="rocksdb", key_serde=STRING, value_serde=JSON),
    ]
    stores = TaskStores(
        TaskId(0, 0),
        builders,
        StateDirectory(tmp_path, "app"),
        application_id="app",
        changelogs={"custom": own, "s": CHANGELOG},
        writer=changelog,
        context=context,
        budget=CacheBudget(0),
    )
    file = tmp_path / "app" / "0_0" / ".checkpoint"
    stores.open()
    stores.commit({own: 10_000, CHANGELOG: 5})
    assert not file.exists()
    stores.commit({own: 10_001})
    assert file.read_text() == "0\n1\napp-custom-changelog 0 10001\n"
    stores.commit({own: 10_002})
    stores.close(clean=False)
    stores.open()
    assert stores.changelog_offsets() == {own: 10_001, CHANGELOG: 5}
    stores.commit({own: 10_003})
    stores.close(clean=True)
    assert file.read_text().endswith(" 10003\n")
    stores.close(clean=True)
    assert file.exists()
    file.write_text("garbage")
    with pytest.raises(TaskCorruptedError, match="cannot be read"):
        stores.open()
    stores.open()
    assert stores.changelog_offsets() == {own: None, CHANGELOG: None}
    stores.close(clean=True)


def test_stores_are_flushed_in_their_order(tmp_path: Path, changelog: Any, context: Any) -> None:
    """Changes forwarded into a later store are flushed in the same pass."""
    builders = [
        KeyValueStoreBuilder(name, "in_memory", STRING, LONG, timestamped=True, caching=True)
        for name in ("first", "second")
    ]
    stores = TaskStores(
        TaskId(0, 0),
        builders,
        StateDirectory(tmp_path, "app"),
        application_id="app",
        changelogs={},
        writer=changelog,
        context=context,
        budget=CacheBudget(10_000),
    )
    stores.open()
    seen: list[tuple[str, list[Any]]] = []

    def forward(name: str, changes: Any) -> None:
        seen.append((name, changes.keys))
        if name == "first":
            stores.store("second").put("derived", ValueAndTimestamp(1, 1))

    for cache in stores.caches().values():
        cache.forwards_changes = True
    stores.store("first").put("a", ValueAndTimestamp(1, 1))
    flush_caches(stores, forward)
    assert seen == [("first", ["a"]), ("second", ["derived"])]
    assert [name for name, *_ in changelog.records] == ["first", "second"]
    stores.close(clean=True)
