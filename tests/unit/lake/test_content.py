"""The content computed from a changelog equals that of the store, for any order of records."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from millstream.kafka.clients.record_columns import RecordColumns
from millstream.lake.latest_by_key import LatestByKey
from millstream.lake.row_filters import RowFilter, TimeRange
from millstream.lake.store_content import StoreContent, as_records
from millstream.lake.store_rows import StoreRowConverter
from millstream.lake.store_table import StoreTable, StoreTimes, lookback_of
from millstream.serdes import LONG, STRING
from millstream.state.storage.memory import MemoryStore
from millstream.state.versioned.versions import VersionedBytes
from millstream.state.windows.memory_windows import MemoryWindows
from millstream.state.windows.window_keys import SESSIONS, WINDOWS, session_key, window_key

_NO_LIMIT = 1 << 40
_HISTORY_MS = 1_000
_SEGMENT_MS = 300
_RETENTION_MS = 1_000

LoggedRecord = tuple[bytes | None, bytes | None, int]


def columns(records: list[LoggedRecord], first: int = 0) -> RecordColumns:
    """Records as fetched."""
    keys, values, times = ([record[place] for record in records] for place in range(3))
    offsets = range(first, first + len(records))
    return RecordColumns(keys, values, times, offsets, None, None)  # type: ignore[arg-type]


def rows_of(content: StoreContent, records: list[LoggedRecord]) -> list[dict[str, Any]]:
    """The rows after adding the records in batches of seven."""
    for first in range(0, len(records), 7):
        content.add(columns(records[first : first + 7], first))
    rows = [row for table in content.tables() for row in table.to_pylist()]
    content.close()
    return rows


def random_puts(seed: int) -> list[LoggedRecord]:
    """Puts with out-of-order timestamps, within the history and beyond."""
    chance = random.Random(seed)
    keys = [b"a", b"aa", b"b", b"\x00\x00"]
    logged: list[LoggedRecord] = []
    for number in range(chance.choice([5, 40, 200])):
        time = max(0, number * chance.choice([1, 20, 60]) - chance.choice([0, 5, 400, 1_500]))
        value = None if chance.random() < 0.3 else str(number).encode()
        logged.append((chance.choice(keys), value, time))
    return logged


@pytest.mark.parametrize("seed", range(40))
def test_versions_equal_those_of_the_store(seed: int) -> None:
    """The latest version of each key, the versions at a time, and the whole history."""
    logged = random_puts(seed)
    store = VersionedBytes("s", MemoryStore(), history_ms=_HISTORY_MS, segment_ms=_SEGMENT_MS)
    for key, value, time in logged:
        assert key is not None
        store.put(key, value, time)
    table = StoreTable(
        "s",
        "t",
        "versioned",
        STRING,
        STRING,
        StoreTimes(history_ms=_HISTORY_MS, segment_ms=_SEGMENT_MS),
    )
    keys = sorted({key for key, _, _ in logged if key is not None})

    def content(**options: Any) -> set[tuple[bytes, bytes, int]]:
        made = StoreContent(table, RowFilter(), _NO_LIMIT, **options)
        return {(row["key"], row["value"], row["timestamp"]) for row in rows_of(made, logged)}

    latest = {
        (key, version.value, version.timestamp)
        for key in keys
        if (version := store.get_latest(key))
    }
    assert content() == latest
    for time in range(0, store.stream_time + 100, 137):
        valid = {
            (key, version.value, version.timestamp)
            for key in keys
            if (version := store.get_as_of(key, time))
        }
        assert content(as_of_ms=time) == valid
    history = {
        (key, version.value, version.timestamp)
        for key in keys
        for version in store.get_between(key, None, None)
    }
    assert content(history=True) == history


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("shape", ["window", "session"])
def test_windows_equal_those_of_the_store(seed: int, shape: Any) -> None:
    """The last value of each window that has not expired."""
    chance = random.Random(seed)
    layout = WINDOWS if shape == "window" else SESSIONS
    store = MemoryWindows(layout, _RETENTION_MS, lambda: None)
    logged: list[LoggedRecord] = []
    for number in range(200):
        time = max(0, number * 20 - chance.choice([0, 0, 100, 700, 2_000]))
        time = time // 50 * 50
        key = chance.choice([b"a", b"aa", b"b"])
        stored = window_key(key, time) if shape == "window" else session_key(key, time, time + 30)
        value = None if chance.random() < 0.2 else str(number).encode()
        store.put(stored, value, number)
        logged.append((stored, value, number))
    table = StoreTable(
        "s", "t", shape, STRING, STRING, StoreTimes(50, lookback_ms=lookback_of(_RETENTION_MS))
    )
    expected = set(store.read_keys(None, None, 0, 1 << 60))
    rows = rows_of(StoreContent(table, RowFilter(), _NO_LIMIT), logged)
    assert {(row["key"], row["value"]) for row in rows} == expected
    assert len(rows) == len(expected)
    # A `TimeRange` and keys select exactly the windows within them.
    bounds = RowFilter(frozenset({b"aa"}), starts=TimeRange(3_100, 3_500))
    rows = rows_of(StoreContent(table, bounds, _NO_LIMIT), logged)
    assert {(row["key"], row["value"]) for row in rows} == {
        (key, value)
        for key, value in expected
        if layout.key_of(key) == b"aa" and 3_100 <= start_of(shape, key) <= 3_500
    }


def start_of(shape: str, stored: bytes) -> int:
    return int.from_bytes(stored[-8:] if shape == "session" else stored[-12:-4], "big")


@pytest.mark.parametrize("limit_bytes", [_NO_LIMIT, 2_000])
@pytest.mark.parametrize("is_old", [False, True], ids=["pyarrow", "pyarrow before 20"])
def test_the_last_record_of_each_key(
    limit_bytes: int, is_old: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also beyond the memory limit: the rest is on disk, and deleted on close."""
    if is_old:
        monkeypatch.delattr(pc, "inverse_permutation", raising=False)
    chance = random.Random(3)
    expected: dict[bytes, bytes] = {}
    latest = LatestByKey(limit_bytes, str(tmp_path))
    for first in range(0, 5_000, 100):
        records: list[LoggedRecord] = []
        for number in range(first, first + 100):
            key = str(chance.randrange(700)).encode()
            value = None if chance.random() < 0.3 else str(number).encode()
            records.append((key, value, number))
            if value is None:
                expected.pop(key, None)
            else:
                expected[key] = value
        latest.add(as_records(columns(records, first)))
        latest.merge()
    found = [(row["key"], row["value"]) for table in latest.tables() for row in table.to_pylist()]
    assert len(found) == len(expected)
    assert dict(found) == expected
    assert latest.has_spilled == (limit_bytes == 2_000)
    latest.close()
    assert list(tmp_path.iterdir()) == []


def test_rows_have_the_columns_of_the_serdes() -> None:
    """Endless windows have no end, and records without a timestamp have none."""
    table = StoreTable("s", "t", "window", STRING, LONG, StoreTimes((1 << 63) - 1, 10))
    records: list[LoggedRecord] = [
        (window_key(b"a", 60_000), (7).to_bytes(8, "big"), 5),
        (window_key(b"b", 0), (8).to_bytes(8, "big"), -1),
        (None, b"x", 3),
    ]
    rows = StoreRowConverter(table)
    (batch,) = rows.batches(pa.Table.from_batches([as_records(columns(records, 40))]), 2)
    assert batch.schema == rows.schema
    assert batch.select(["key", "window_end", "value", "partition", "offset"]).to_pylist() == [
        {"key": "a", "window_end": None, "value": 7, "partition": 2, "offset": 40},
        {"key": "b", "window_end": None, "value": 8, "partition": 2, "offset": 41},
    ]
    times = batch.column("window_start").cast(pa.int64()).to_pylist()
    assert times == [60_000_000, 0]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [5_000, None]


@pytest.mark.parametrize("limit_bytes", [200_000, 20_000])
def test_pending_records_are_merged_at_the_memory_limit(limit_bytes: int, tmp_path: Path) -> None:
    """By their size, however few they are; the excess is on disk."""
    latest = LatestByKey(limit_bytes, str(tmp_path))
    for number in range(100):
        record = (str(number % 50).encode(), b"%5d" % number * 200, number)
        latest.add(as_records(columns([record], number)))
    # Data beyond the limit is already on disk before anything is read.
    assert latest.has_spilled == (limit_bytes == 20_000)
    found = {row["key"]: row["value"] for table in latest.tables() for row in table.to_pylist()}
    latest.close()
    assert found == {str(number % 50).encode(): b"%5d" % number * 200 for number in range(50, 100)}
