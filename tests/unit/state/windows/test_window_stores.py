"""Window and session stores for processors: iteration, retention, and restarts.

Reads are tested in tests/properties/stores/test_window_state_model.py and by the conformance
vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import (
    ConfigError,
    InvalidStateStoreError,
    NullKeyError,
    StreamsError,
)
from millstream.record import TopicPartition, ValueAndTimestamp
from millstream.serdes import LONG, STRING
from millstream.state.builders.window_builders import (
    SessionStoreBuilder,
    WindowStoreBuilder,
    changelog_retention,
)
from millstream.state.storage.rocksdb import RocksDBStorage
from millstream.state.stores import Stores
from millstream.state.task_stores import TaskStores
from millstream.state.windows.window_keys import window_key
from millstream.windowed import MAX_TIME_MS, Window, Windowed

OpenTask = Callable[..., TaskStores]
CHANGELOG = TopicPartition("app-s-changelog", 0)
MINUTE = timedelta(minutes=1)


def windows(kind: Any = "rocksdb", **options: Any) -> WindowStoreBuilder:
    options = {"retention_ms": 100_000, "window_size_ms": 10, **options}
    return WindowStoreBuilder("s", kind, STRING, LONG, **options)


def sessions(kind: Any = "rocksdb", retention_ms: int = 100_000) -> SessionStoreBuilder:
    return SessionStoreBuilder("s", kind, STRING, LONG, retention_ms)


@pytest.mark.parametrize("kind", ["rocksdb", "in_memory"])
def test_an_iterator_is_a_snapshot(open_task: OpenTask, kind: str) -> None:
    """Puts and deletions during an iteration are seen by the next one; leaving the block closes the
    iterator."""
    store = open_task(windows(kind)).store("s")
    for start in (0, 10, 20):
        store.put("k", start, start)
    for iterate in (lambda: store.fetch("k", 0, 99), store.all):
        with iterate() as items:
            next(items)
            store.put("k", 99, 10)
            store.put("k", None, 20)
            assert [value for _, value in items] == [10, 20]
            with pytest.raises(StopIteration):
                next(items)
        store.put("k", 10, 10)
        store.put("k", 20, 20)


def test_a_closed_store_rejects_all_calls(open_task: OpenTask) -> None:
    """Open iterators raise as well."""
    for builder in (windows(), sessions()):
        stores = open_task(builder)
        store = stores.store("s")
        if isinstance(builder, WindowStoreBuilder):
            store.put("k", 1, 0)
            items = store.all()
        else:
            store.put(Windowed("k", Window(0, 1)), 1)
            items = store.fetch("k")
        stores.close(clean=False)
        with pytest.raises(InvalidStateStoreError, match="closed"):
            store.fetch("k", 0) if isinstance(builder, WindowStoreBuilder) else store.fetch("k")
        with pytest.raises(InvalidStateStoreError, match="while it was being iterated"):
            next(items)


def test_invalid_arguments_are_rejected(open_task: OpenTask) -> None:
    """A missing key, a negative start, a value without its timestamp."""
    store = open_task(windows(timestamped=True)).store("s")
    value = ValueAndTimestamp(1, 2)
    with pytest.raises(NullKeyError):
        store.put(None, value, 0)
    with pytest.raises(NullKeyError):
        store.fetch(None, 0, 1)
    with pytest.raises(ValueError, match="not negative"):
        store.put("k", value, -1)
    with pytest.raises(StreamsError, match="ValueAndTimestamp"):
        store.put("k", 1, 0)
    session_store = open_task(sessions("in_memory")).store("s")
    with pytest.raises(NullKeyError):
        session_store.put(Windowed(None, Window(0, 1)), 1)
    for call in (lambda key: session_store.put(key, 1), session_store.remove):
        with pytest.raises(NullKeyError, match="needs a session's key, but got None"):
            call(None)
        with pytest.raises(TypeError, match="stores sessions, but got 'k'"):
            call("k")


def test_the_changelog_contains_stored_keys_and_plain_values(
    open_task: OpenTask, changelog: Any, context: Any
) -> None:
    """Keys with start and sequence number. A value is logged with its own timestamp, a deletion
    with that of the record."""
    context.timestamp = 7
    one = (1).to_bytes(8, "big")
    store = open_task(windows(timestamped=True)).store("s")
    store.put("k", ValueAndTimestamp(1, 5), 10)
    store.put("k", None, 10)
    key = b"k" + (10).to_bytes(8, "big") + bytes(4)
    assert [record[1:] for record in changelog.records] == [(key, one, 5), (key, None, 7)]
    changelog.records.clear()
    duplicates = open_task(windows("in_memory", retain_duplicates=True)).store("s")
    for value in (1, None, 1):
        duplicates.put("k", value, 10)
    numbers = [(record[1][-4:], record[2]) for record in changelog.records]
    assert numbers == [(b"\0\0\0\x01", one), (b"\0\0\0\x02", None), (b"\0\0\0\x03", one)]
    assert [value for _, value in duplicates.fetch("k", 0, 20)] == [1, 1]


def test_a_removed_session_is_logged_as_a_deletion(
    open_task: OpenTask, changelog: Any, context: Any
) -> None:
    """Otherwise a restoration would restore it. The deletion has the current timestamp."""
    context.timestamp = 7
    store = open_task(sessions()).store("s")
    session = Windowed("k", Window(1, 5))
    store.put(session, 1)
    store.remove(session)
    (_, key, value, _), deletion = changelog.records
    assert value is not None
    assert deletion[1:] == (key, None, 7)


def test_stream_time_and_sequence_numbers_survive_a_restart(
    open_task: OpenTask, changelog: Any
) -> None:
    """Expired records stay expired, and a new duplicate does not overwrite those on disk."""
    builder = windows(retain_duplicates=True)
    stores = open_task(builder)
    stores.store("s").put("k", 1, 0)
    stores.store("s").put("k", 2, 100_000)
    stores.commit({CHANGELOG: changelog.last_offset})
    stores.close(clean=True)
    store = open_task(builder).store("s")
    store.put("k", 3, 100_000)
    assert list(store.fetch("k", 0, MAX_TIME_MS)) == [(100_000, 2), (100_000, 3)]


def test_windows_beyond_the_memory_limit_are_read_from_disk(open_task: OpenTask) -> None:
    """Written in one batch that exceeds the limit of recent windows."""
    table = open_task(windows(), recent_max_bytes=1_000).table("s")
    starts = list(range(0, 40_000, 2_000))
    keys = [window_key(b"k", start) for start in starts]
    table.write_encoded_many(keys, [bytes(8)] * len(keys), starts)
    assert all(table.fetch(b"k", start) is not None for start in starts)
    assert [found[0] for found in table.fetch_between(b"k", 0, 50_000)] == starts


@pytest.mark.parametrize("kind", ["rocksdb", "in_memory"])
def test_a_duplicate_does_not_overwrite_restored_ones(open_task: OpenTask, kind: str) -> None:
    stores = open_task(windows(kind, retain_duplicates=True))
    keys = [b"k" + bytes(8) + number.to_bytes(4, "big") for number in (1, 2)]
    values = [number.to_bytes(8, "big") for number in (1, 2)]
    stores.restorers()[CHANGELOG].restore_batch(keys, values, [0, 0], [0, 1])
    stores.store("s").put("k", 3, 0)
    assert list(stores.store("s").fetch("k", 0, 0)) == [(0, 1), (0, 2), (0, 3)]


@pytest.mark.parametrize("how", ["commit", "restore"])
@pytest.mark.parametrize(
    ("starts", "kept"),
    [
        ([0, 59_999, 60_000, 130_000], [60_000, 130_000]),
        ([0, 119_999], [0, 119_999]),
        ([0, 120_000], [120_000]),
    ],
)
def test_expired_segments_are_deleted_from_disk(
    open_task: OpenTask,
    tmp_path: Path,
    open_storage: Callable[..., RocksDBStorage],
    how: str,
    starts: list[int],
    kept: list[int],
) -> None:
    """A write deletes expired segments in RocksDB, also those of earlier runs."""
    stores = open_task(windows(retention_ms=60_000))
    store = stores.store("s")
    for offset, start in enumerate(starts):
        if how == "restore":
            key = b"k" + start.to_bytes(8, "big") + bytes(4)
            stores.restorers()[CHANGELOG].restore_batch([key], [bytes(8)], [start], [offset])
            continue
        store.put("k", 1, start)
        stores.commit({})
    store.put("late", 1, 0)
    stores.close(clean=True)
    directory = tmp_path / "state" / "app" / "0_0" / "rocksdb"
    assert (directory / "s").is_dir()
    (tmp_path / "db").symlink_to(directory)
    found = [key for key, _ in open_storage("s").scan(None, b"\xf0")]
    assert [int.from_bytes(key[-12:-4], "big") for key in found] == kept


@pytest.mark.parametrize("caching", [False, True])
def test_a_growing_session_is_forwarded_once(open_task: OpenTask, caching: bool) -> None:
    """The cache moves the session with each record and flushes only its last state."""
    builder = sessions().with_caching(caching)
    stores = open_task(builder)
    table = stores.table("s")
    if table.cache is not None:
        table.cache.forwards_changes = True
    table.put(b"k", 0, 0, 0, 0)
    for end in range(10, 1_000, 10):
        ((start, last, value),) = table.find(b"k", end - 10, end + 10)
        assert (start, last, value) == (0, end - 10, end - 10)
        table.replace(b"k", (start, last), start, end, end, end)
    assert table.find(b"k", 0, 2_000) == [(0, 990, 990)]
    if table.cache is not None:
        assert len(table.cache.entries) == len(table.cache.dirty) == 1
        changes = table.cache.flush()
        assert (changes.keys, changes.new_values) == ([Windowed("k", Window(0, 990))], [990])
    assert list(stores.store("s").fetch("k")) == [(Windowed("k", Window(0, 990)), 990)]


def test_builders_configure_the_changelog() -> None:
    """It is kept for the retention plus a day, and not compacted if windows are never updated."""
    supplier = Stores.persistent_window("w", MINUTE, MINUTE)
    builder = Stores.window_builder(supplier, STRING, LONG)
    assert (builder.kind, builder.retention_ms, builder.window_size_ms) == (
        "rocksdb",
        60_000,
        60_000,
    )
    assert builder.changelog_config()["cleanup.policy"] == "compact,delete"
    assert builder.changelog_config()["retention.ms"] == "86460000"
    assert changelog_retention(builder, 5) == {"retention.ms": "60005"}
    forever = WindowStoreBuilder("w", retention_ms=MAX_TIME_MS)
    assert changelog_retention(forever, 5) == {"retention.ms": str(MAX_TIME_MS)}
    duplicates: WindowStoreBuilder = Stores.window_builder(
        Stores.in_memory_window("w", MINUTE, MINUTE, retain_duplicates=True)
    ).with_caching(True)
    assert duplicates.topic_config == {"cleanup.policy": "delete"}
    assert not duplicates.caching
    named = duplicates.with_logging({"segment.bytes": "1"})
    assert named.topic_config == {"cleanup.policy": "delete", "segment.bytes": "1"}
    session: SessionStoreBuilder = Stores.session_builder(
        Stores.in_memory_session("x", MINUTE)
    ).with_logging(False)
    assert (session.kind, session.logging, session.persistent) == ("in_memory", False, False)


def test_invalid_retentions_are_rejected() -> None:
    """Negative retentions, and windows that would expire before their end."""
    for make in (
        lambda: Stores.persistent_window("w", MINUTE, 2 * MINUTE),
        lambda: Stores.in_memory_window("w", -MINUTE, MINUTE),
        lambda: Stores.in_memory_window("w", MINUTE, -MINUTE),
        lambda: Stores.persistent_session("w", -MINUTE),
        lambda: Stores.in_memory_session("a/b", MINUTE),
        lambda: WindowStoreBuilder("w", retention_ms=-1),
        lambda: SessionStoreBuilder("w", kind="lru"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigError):
            make()
