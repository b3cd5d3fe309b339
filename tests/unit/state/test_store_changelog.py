"""All kinds of stores log their changes through `StoreChangelog`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from unit.state.conftest import CHANGELOG, TASK, Context

import millstream.state
from millstream.record import Headers, ValueAndTimestamp
from millstream.serdes import BYTES, LONG, STRING
from millstream.state.builders.buffer_builders import (
    GraceBufferBuilder,
    OuterJoinStoreBuilder,
    SubscriptionStoreBuilder,
    SuppressBufferBuilder,
)
from millstream.state.builders.store_builder import StoreBuilder
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.changelogs.store_changelog import StoreChangelog
from millstream.state.directories.state_directory import StateDirectory
from millstream.state.storage.value_formats import TIMESTAMPED
from millstream.state.stores import Stores
from millstream.state.task_stores import TaskStores
from millstream.state.windows.window_keys import session_key, window_key
from millstream.windowed import Window, Windowed

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
ONE = LONG.serialize("t", 1)

LoggedRecord = tuple[bytes, bytes | None, int | None, Headers]


class Log:
    """The sent records, and the number of calls."""

    def __init__(self) -> None:
        self.records: list[LoggedRecord] = []
        self.calls = 0

    def log_many(
        self,
        store_name: str,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int] | None,
        headers: Sequence[Headers] | None = None,
    ) -> None:
        assert store_name == "s"
        count = len(keys)
        times = [None] * count if timestamps is None else timestamps
        of_records = [()] * count if headers is None else headers
        self.records += zip(keys, values, times, of_records, strict=True)
        self.calls += 1


KINDS: dict[str, tuple[StoreBuilder, Callable[[TaskStores], object], list[LoggedRecord]]] = {
    "key-value": (
        Stores.key_value_builder(Stores.persistent_key_value("s"), STRING, LONG),
        lambda stores: stores.store("s").put("a", 1),
        [(b"a", ONE, 5, ())],
    ),
    "timestamped": (
        Stores.timestamped_key_value_builder(Stores.in_memory_key_value("s"), STRING, LONG),
        lambda stores: stores.store("s").put("a", ValueAndTimestamp(1, 3)),
        [(b"a", ONE, 3, ())],
    ),
    "lru": (
        Stores.key_value_builder(Stores.lru_map("s", 1), STRING, LONG),
        lambda stores: stores.store("s").put_all([("a", 1), ("b", 1)]),
        [(b"a", None, 5, ()), (b"a", ONE, 5, ()), (b"b", ONE, 5, ())],
    ),
    "window": (
        Stores.timestamped_window_builder(
            Stores.persistent_window("s", HOUR, MINUTE), STRING, LONG
        ),
        lambda stores: stores.store("s").put("a", ValueAndTimestamp(1, 3), 0),
        [(window_key(b"a", 0), ONE, 3, ())],
    ),
    "duplicates": (
        Stores.window_builder(
            Stores.persistent_window("s", HOUR, MINUTE, retain_duplicates=True), STRING, LONG
        ),
        lambda stores: [stores.store("s").put("a", value, 0) for value in (1, None)],
        [(window_key(b"a", 0, 1), ONE, 5, ()), (window_key(b"a", 0, 2), None, 5, ())],
    ),
    "session": (
        Stores.session_builder(Stores.in_memory_session("s", HOUR), STRING, LONG),
        lambda stores: stores.store("s").put(Windowed("a", Window(0, 9)), 1),
        [(session_key(b"a", 0, 9), ONE, 5, ())],
    ),
    "versioned": (
        Stores.versioned_builder(Stores.persistent_versioned("s", HOUR), STRING, LONG),
        lambda stores: stores.store("s").put("a", 1, 3),
        [(b"a", ONE, 3, ())],
    ),
    "subscription": (
        SubscriptionStoreBuilder("s", "rocksdb", BYTES, BYTES),
        lambda stores: stores.table("s").put_many([b"a"], [b"row"], [3], [(("h", b"x"),)]),
        [(b"a", b"row", 3, (("h", b"x"),))],
    ),
    "unmatched records": (
        OuterJoinStoreBuilder("s", "rocksdb", STRING, LONG, LONG),
        lambda stores: stores.table("s").remove(b"gone", record_time=3),
        [(b"gone", None, 3, ())],
    ),
}


def opened(tmp_path: Path, builder: StoreBuilder, writer: Log) -> TaskStores:
    context = Context()
    context.timestamp = 5
    stores = TaskStores(
        TASK,
        [builder],
        StateDirectory(tmp_path, "app"),
        application_id="app",
        changelogs={"s": CHANGELOG},
        writer=writer,
        context=context,
        budget=CacheBudget(0),
    )
    stores.open()
    return stores


@pytest.mark.parametrize("kind", KINDS)
def test_logged_records(tmp_path: Path, kind: str) -> None:
    """Keys as stored, values without timestamp prefix, the timestamp of the write."""
    builder, write, expected = KINDS[kind]
    log = Log()
    stores = opened(tmp_path, builder, log)
    write(stores)
    assert log.records == expected
    stores.close(clean=False)


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_without_logging_does_not_log(tmp_path: Path, kind: str) -> None:
    builder: Any = KINDS[kind][0]
    log = Log()
    stores = opened(tmp_path, builder.with_logging(False), log)
    KINDS[kind][1](stores)
    assert log.calls == 0
    stores.close(clean=False)


@pytest.mark.parametrize("logging", [True, False])
def test_buffers_log_without_a_timestamp_of_their_own(tmp_path: Path, logging: bool) -> None:
    """The buffer of `suppress` logs at each commit, that of a join with grace immediately."""
    grace: Any = GraceBufferBuilder("s", 0, STRING, LONG).with_logging(logging)
    log = Log()
    stores = opened(tmp_path / "grace", grace, log)
    stores.table("s").put("a", 1, timestamp=3, place=None, offset=0)
    assert [record[2:] for record in log.records] == [(None, ())] * logging
    stores.close(clean=False)
    suppress: Any = SuppressBufferBuilder("s", STRING, LONG).with_logging(logging)
    log = Log()
    stores = opened(tmp_path / "suppress", suppress, log)
    for key in ("a", "b", "a"):
        stores.table("s").put(0, key, 1, None, timestamp=3, place=None, offset=0)
    assert log.calls == 0
    stores.log_changes()
    stores.log_changes()
    assert log.calls == logging
    assert [record[2:] for record in log.records] == [(None, (("v", b"\x03"),))] * 2 * logging
    stores.close(clean=False)


def test_many_changes_are_logged_in_one_call() -> None:
    """A call costs about as much as a record. Repeated keys keep their order."""
    log = Log()
    changelog = StoreChangelog("s", log, TIMESTAMPED)
    stored = TIMESTAMPED.join_many([b"1", None, b"2"], [7, 8, 9])
    changelog.log_stored_many([b"a", b"a", b"a"], stored, [7, 8, 9])
    changelog.log_stored(b"b", stored[0], 7)
    changelog.log_stored(b"b", None, 8)
    assert log.records == [
        (b"a", b"1", 7, ()),
        (b"a", None, 8, ()),
        (b"a", b"2", 9, ()),
        (b"b", b"1", 7, ()),
        (b"b", None, 8, ()),
    ]
    assert log.calls == 3


def test_only_the_changelog_uses_the_writer() -> None:
    """The task's stores and their environment only pass it on."""
    folder = Path(*millstream.state.__path__)
    users = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        if "ChangelogWriter" in path.read_text()
    }
    assert users == {"changelogs/store_changelog.py", "opening/open_store.py", "task_stores.py"}
