"""Data and offset in RocksDB agree, and an unreadable database raises an error."""

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
    """A reopened database contains the written batches, including deletions."""
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


def test_a_failed_batch_leaves_no_trace(open_storage: Open) -> None:
    """An offset without its data would lose records permanently."""
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


def test_closing_ends_open_scans_and_unlocks_the_directory(open_storage: Open) -> None:
    """An open scan must not keep the database locked for its next owner."""
    storage = open_storage()
    storage.write_batch({b"a": b"1", b"b": b"2"}, None)
    started, untouched = storage.scan(None, None), storage.scan(None, None, reverse=True)
    assert next(started) == (b"a", b"1")
    storage.close()
    assert list(started) == list(untouched) == []
    assert open_storage().get(b"a") == b"1"


def test_a_closed_database_rejects_all_calls(open_storage: Open) -> None:
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


def test_an_open_database_cannot_be_opened_again(open_storage: Open) -> None:
    open_storage()
    with pytest.raises(LockError):
        open_storage()


def test_reads_and_scans_detect_a_damaged_block(open_storage: Open, tmp_path: Path) -> None:
    """A scan over a damaged block must fail, not end early as if there were no more keys.

    Each failure is recorded before it is raised, so that user code that catches it cannot hide it.
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


def test_an_unreadable_database_is_reported_as_corrupted(
    open_storage: Open, tmp_path: Path
) -> None:
    """The file CURRENT contains garbage. Once destroyed, the database can be opened again."""
    open_storage().close()
    (tmp_path / "db" / "s" / "CURRENT").write_text("garbage")
    with pytest.raises(TaskCorruptedError, match="rebuilt from its changelog"):
        open_storage()
    RocksDBStorages().destroy("s", tmp_path / "db" / "s", TaskId(0, 0))
    assert open_storage().is_empty()


def test_the_tuning_hook_gets_the_name_and_options_of_each_store(tmp_path: Path) -> None:
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
def test_bulk_loaded_records_are_read_in_order(
    open_storage: Open, batch_of: Callable[[int, int], dict[bytes, bytes | None]]
) -> None:
    """Whatever the order of writes. The store can be read meanwhile, continues bulk loading
    afterwards, and is an ordinary database on disk."""
    storage = open_storage()
    storage.write_batch({b"00001": b"before"}, (TP, 1))
    storage.set_bulk_loading(True)
    expected_content: dict[bytes, bytes | None] = {}
    for number, start in enumerate(range(0, 20_000, 2_000)):
        batch = batch_of(start, start + 2_000)
        # The latest write wins, and deleted keys are missing.
        batch |= dict.fromkeys(list(expected_content)[:50], None)
        storage.write_batch(batch, (TP, 10 + number))
        expected_content |= batch
        if number == 6:
            assert storage.get(b"00003") == expected_content.get(b"00003")
            storage.set_bulk_loading(True)
    assert storage.committed_offset(TP) == 19
    expected = sorted(({b"00001": b"before"} | expected_content).items())
    found = [(key, value) for key, value in expected if value is not None]
    assert list(storage.scan(None, None)) == found
    storage.set_bulk_loading(False)
    storage.write_batch({b"99999": b"after"}, (TP, 20))
    storage.close()
    again = open_storage()
    assert list(again.scan(None, None)) == [*found, (b"99999", b"after")]
    assert again.committed_offset(TP) == 20


def test_an_open_scan_continues_during_bulk_loading(open_storage: Open) -> None:
    """A query may have begun before the restoration."""
    storage = open_storage()
    storage.write_batch({b"00001": b"before", b"00002": b"too"}, (TP, 1))
    scan = storage.scan(None, None)
    assert next(scan) == (b"00001", b"before")
    storage.set_bulk_loading(True)
    storage.write_batch(_mixed(0, 5_000), (TP, 7))
    assert list(scan) == [(b"00002", b"too")]
    storage.write_batch(_mixed(5_000, 10_000), (TP, 8))
    storage.set_bulk_loading(False)
    expected_content = {b"00001": b"before", b"00002": b"too"} | _mixed(0, 10_000)
    assert dict(storage.scan(None, None)) == expected_content
    assert storage.committed_offset(TP) == 8


def test_closing_during_bulk_loading_loses_no_records(open_storage: Open) -> None:
    storage = open_storage()
    storage.set_bulk_loading(True)
    storage.write_batch(_mixed(0, 5_000), (TP, 7))
    storage.close()
    storage.set_bulk_loading(False)
    again = open_storage()
    assert dict(again.scan(None, None)) == _mixed(0, 5_000)
    assert again.committed_offset(TP) == 7


@pytest.mark.parametrize("option", ["tuning", "statistics"])
def test_a_tuned_store_is_not_reopened_for_bulk_loading(tmp_path: Path, option: str) -> None:
    """Reopening would call the user's function again and reset the statistics."""
    seen: list[str] = []
    settings = RocksDBSettings(
        tuning=(lambda name, options: seen.append(name)) if option == "tuning" else None,
        statistics=option == "statistics",
    )
    storage = RocksDBStorage("tuned", tmp_path / "t", TaskId(0, 0), RocksDBStorages(settings))
    storage.set_bulk_loading(True)
    opened = storage._db
    storage.write_batch(_mixed(0, 5_000), (TP, 7))
    assert storage._db is opened
    storage.close()


def test_data_is_read_from_memtables_and_disk(open_storage: Open) -> None:
    """Data that does not fit into memtables is read completely and in order, in both directions."""
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
