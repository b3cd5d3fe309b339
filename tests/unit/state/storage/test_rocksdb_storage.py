"""Goal: data and offset in RocksDB agree, and a database that cannot be read says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import (
    InvalidStateStoreError,
    LockError,
    StreamsError,
    TaskCorruptedError,
)
from millstream.record import TaskId, TopicPartition
from millstream.state.storage.rocksdb import (
    RocksDBSettings,
    RocksDBStorage,
    RocksDBStorages,
)

TP = TopicPartition("c", 3)
Open = Callable[..., RocksDBStorage]


def test_data_and_offset_survive_closing(open_storage: Open) -> None:
    """What a batch wrote is there after reopening, deletions included."""
    storage = open_storage()
    assert storage.is_empty()
    storage.write_batch({b"a": b"1", b"b": b"2"}, (TP, 1))
    storage.write_batch({b"a": None}, (TP, 2))
    storage.close()
    storage.close()
    again = open_storage()
    assert list(again.scan(None, None)) == [(b"b", b"2")]
    assert again.committed_offset(TP) == 2
    assert again.committed_offset(TopicPartition("c", 4)) is None
    assert not again.is_empty()


def test_a_batch_that_cannot_be_written_leaves_no_trace(open_storage: Open) -> None:
    """An offset without its data would lose records for good."""
    storage = open_storage()
    storage.write_batch({b"a": b"1"}, (TP, 1))
    database: Any = storage._db

    class Full:
        def __getattr__(self, name: str) -> Any:
            return getattr(database, name)

        def write(self, batch: Any, options: Any) -> None:
            raise OSError("No space left on device")

    storage._db = Full()  # type: ignore[assignment]
    with pytest.raises(StreamsError, match="No space left"):
        storage.write_batch({b"a": b"2"}, (TP, 2))
    storage._db = database
    assert (storage.get(b"a"), storage.committed_offset(TP)) == (b"1", 1)


def test_closing_ends_open_scans_and_frees_the_directory(open_storage: Open) -> None:
    """A forgotten scan must not keep the database locked for its next owner."""
    storage = open_storage()
    storage.write_batch({b"a": b"1", b"b": b"2"}, None)
    started, untouched = storage.scan(None, None), storage.scan(None, None, reverse=True)
    assert next(started) == (b"a", b"1")
    storage.close()
    assert list(started) == list(untouched) == []
    assert open_storage().get(b"a") == b"1"


def test_a_closed_database_refuses(open_storage: Open) -> None:
    """Every call on a closed database says that the store is closed."""
    storage = open_storage()
    storage.close()
    calls: list[Callable[[], object]] = [
        lambda: storage.get(b"a"),
        lambda: storage.get_many([b"a"]),
        lambda: storage.scan(None, None),
        lambda: storage.write_batch({b"a": b"1"}, None),
        lambda: storage.approximate_num_entries(),
    ]
    for call in calls:
        with pytest.raises(InvalidStateStoreError, match="Store s is currently closed"):
            call()


def test_one_owner_at_a_time(open_storage: Open) -> None:
    """Opening an open database is refused as a lock."""
    open_storage()
    with pytest.raises(LockError):
        open_storage()


def test_a_damaged_block_is_found_by_reads_and_scans(open_storage: Open, tmp_path: Path) -> None:
    """A scan over a damaged block must fail, not end early as if there were no more keys.

    Each failure is noted before it is raised: user code that catches it cannot hide it.
    """
    storage = open_storage()
    storage.write_batch({b"%04d" % i: bytes(100) for i in range(1_000)}, (TP, 1))
    assert storage._db is not None
    storage._db.flush()
    storage.close()
    table = max((tmp_path / "db" / "s").glob("*.sst"), key=lambda path: path.stat().st_size)
    damaged = bytearray(table.read_bytes())
    damaged[20_000:20_050] = b"\xff" * 50
    table.write_bytes(damaged)
    storage = open_storage()
    noted: list[Exception] = []
    storage.on_failure = noted.append
    for reverse in (False, True):
        with pytest.raises(TaskCorruptedError):
            list(storage.scan(None, None, reverse=reverse))
    with pytest.raises(TaskCorruptedError):
        storage.get_many([b"%04d" % i for i in range(1_000)])
    with pytest.raises(TaskCorruptedError) as caught:
        deque(map(storage.get, (b"%04d" % i for i in range(1_000))), maxlen=0)
    assert caught.value.task_ids == {(0, 0)}
    assert len(noted) == 4
    assert noted[-1] is caught.value


def test_an_unreadable_database_is_corrupted(open_storage: Open, tmp_path: Path) -> None:
    """Garbage in place of the list of files: refused, and fine again once destroyed."""
    open_storage().close()
    (tmp_path / "db" / "s" / "CURRENT").write_text("garbage")
    with pytest.raises(TaskCorruptedError, match="rebuilt from its changelog"):
        open_storage()
    RocksDBStorages().destroy("s", tmp_path / "db" / "s", TaskId(0, 0))
    assert open_storage().is_empty()


def test_tuning_sees_the_options_of_each_store(tmp_path: Path) -> None:
    """The hook is called with the store's name and can change what is opened."""
    seen: list[str] = []
    settings = RocksDBSettings(tuning=lambda name, options: seen.append(name))
    storage = RocksDBStorage("tuned", tmp_path / "t", TaskId(0, 0), RocksDBStorages(settings))
    storage.close()
    assert seen == ["tuned"]


def _mixed(start: int, stop: int) -> dict[bytes, bytes | None]:
    numbers = [number * 7_919 % 30_011 for number in range(start, stop)]
    return {b"%05d" % number: b"%d" % number for number in numbers}


def _ascending(start: int, stop: int) -> dict[bytes, bytes | None]:
    return {b"%05d" % number: b"%d" % number for number in range(start, stop)}


@pytest.mark.parametrize("batch_of", [_mixed, _ascending])
def test_what_came_in_any_order_is_read_in_order(
    open_storage: Open, batch_of: Callable[[int, int], dict[bytes, bytes | None]]
) -> None:
    """A store that expects many records takes them as they come; it can be read at any time, goes
    on from there, and stands on disk as any other."""
    storage = open_storage()
    storage.write_batch({b"00001": b"before"}, (TP, 1))
    storage.expect_many(True)
    right: dict[bytes, bytes | None] = {}
    for number, start in enumerate(range(0, 20_000, 2_000)):
        batch = batch_of(start, start + 2_000)
        # The latest counts, and what is deleted is gone.
        batch |= dict.fromkeys(list(right)[:50], None)
        storage.write_batch(batch, (TP, 10 + number))
        right |= batch
        if number == 6:
            assert storage.get(b"00003") == right.get(b"00003")
            storage.expect_many(True)
    assert storage.committed_offset(TP) == 19
    expected = sorted(({b"00001": b"before"} | right).items())
    found = [(key, value) for key, value in expected if value is not None]
    assert list(storage.scan(None, None)) == found
    storage.expect_many(False)
    storage.write_batch({b"99999": b"after"}, (TP, 20))
    storage.close()
    again = open_storage()
    assert list(again.scan(None, None)) == [*found, (b"99999", b"after")]
    assert again.committed_offset(TP) == 20


def test_an_open_scan_goes_on_while_many_records_come(open_storage: Open) -> None:
    """A query may have begun before the store was to be restored."""
    storage = open_storage()
    storage.write_batch({b"00001": b"before", b"00002": b"too"}, (TP, 1))
    scan = storage.scan(None, None)
    assert next(scan) == (b"00001", b"before")
    storage.expect_many(True)
    storage.write_batch(_mixed(0, 5_000), (TP, 7))
    assert list(scan) == [(b"00002", b"too")]
    storage.write_batch(_mixed(5_000, 10_000), (TP, 8))
    storage.expect_many(False)
    right = {b"00001": b"before", b"00002": b"too"} | _mixed(0, 10_000)
    assert dict(storage.scan(None, None)) == right
    assert storage.committed_offset(TP) == 8


def test_closing_in_the_middle_of_many_records_loses_none(open_storage: Open) -> None:
    storage = open_storage()
    storage.expect_many(True)
    storage.write_batch(_mixed(0, 5_000), (TP, 7))
    storage.close()
    storage.expect_many(False)
    again = open_storage()
    assert dict(again.scan(None, None)) == _mixed(0, 5_000)
    assert again.committed_offset(TP) == 7


@pytest.mark.parametrize("where", ["tuned", "counted"])
def test_a_tuned_store_stays_as_it_was_opened(tmp_path: Path, where: str) -> None:
    """To open it anew would need the user's function again, and lose what was counted."""
    seen: list[str] = []
    settings = RocksDBSettings(
        tuning=(lambda name, options: seen.append(name)) if where == "tuned" else None,
        statistics=where == "counted",
    )
    storage = RocksDBStorage("tuned", tmp_path / "t", TaskId(0, 0), RocksDBStorages(settings))
    storage.expect_many(True)
    opened = storage._db
    storage.write_batch(_mixed(0, 5_000), (TP, 7))
    assert storage._db is opened
    storage.close()


def test_reads_spill_over_to_disk(open_storage: Open) -> None:
    """More data than memtables hold is read back whole, in order, both ways."""
    storage = open_storage()
    for start in range(0, 200_000, 20_000):
        items = {b"%08d" % (i * 7919 % 200_000): bytes(100) for i in range(start, start + 20_000)}
        storage.write_batch(items, (TP, start))
    keys = [key for key, _ in storage.scan(None, None)]
    assert keys == [b"%08d" % i for i in range(200_000)]
    assert [key for key, _ in storage.scan(b"00100000", b"00100003", reverse=True)] == [
        b"00100002",
        b"00100001",
        b"00100000",
    ]
    assert storage.approximate_num_entries() == pytest.approx(200_000, rel=0.1)
