"""Reading a range of keys does not read the windows of other keys."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from millstream.record import TaskId, TopicPartition
from millstream.state.storage.overlay import OverlayStore
from millstream.state.storage.rocksdb import RocksDBStorage, RocksDBStorages
from millstream.state.windows.segmented_windows import SegmentedWindows
from millstream.state.windows.window_keys import (
    SESSIONS,
    WINDOWS,
    KeyLayout,
    session_key,
    window_key,
)

RETENTION_MS = 300_000
CHANGELOG = TopicPartition("app-s-changelog", 0)
LAYOUTS = pytest.mark.parametrize(
    ("layout", "stored"),
    [(WINDOWS, window_key), (SESSIONS, lambda key, time: session_key(key, time - 5, time))],
    ids=["windows", "sessions"],
)


class ReadCounter:
    """Counts the pairs that an overlay reads."""

    def __init__(self, base: OverlayStore) -> None:
        self.pairs = 0
        scan = base.scan

        def counted(start: bytes, end: bytes, *, reverse: bool) -> object:
            for pair in scan(start, end, reverse=reverse):
                self.pairs += 1
                yield pair

        patch.object(base, "scan", counted).start()


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[KeyLayout], tuple[SegmentedWindows, OverlayStore]]:
    def open_one(layout: KeyLayout) -> tuple[SegmentedWindows, OverlayStore]:
        storage = RocksDBStorage("s", tmp_path / "s", TaskId(0, 0), RocksDBStorages())
        base = OverlayStore(storage)
        store = SegmentedWindows(
            layout,
            base,
            retention_ms=RETENTION_MS,
            recent_bytes=0,
            time_ordered=False,
            expired=lambda: None,
        )
        return store, base

    return open_one


def fill(store: SegmentedWindows) -> None:
    """500 keys with 4 windows each."""
    for number in range(2_000):
        store.put(window_key(b"key%04d" % (number % 500), number * 100), b"v", 0)
    store.commit((CHANGELOG, 1))


def all_windows(store: SegmentedWindows, first: int, last: int) -> list[tuple[bytes, bytes]]:
    return list(store.read_keys(None, None, first, last))


@LAYOUTS
def test_a_narrow_range_is_a_subset_of_all_windows(
    opened: Callable[[KeyLayout], tuple[SegmentedWindows, OverlayStore]],
    layout: KeyLayout,
    stored: Callable[[bytes, int], bytes],
) -> None:
    """Also with keys that are prefixes of one another, or look like times."""
    chance = random.Random(3)
    keys = [b"", b"a", b"a\x00", b"a\x00\x00\x00", b"a\x00\x00\x00\x00\x00\x02", b"a\xff", b"b"]
    store, _ = opened(layout)
    for number in range(400):
        time = chance.randint(5, RETENTION_MS)
        store.put(stored(chance.choice(keys), time), b"%d" % number, 0)
        if number == 200:
            store.commit((CHANGELOG, 1))
    for _ in range(200):
        lowest, highest = sorted(chance.choices(keys, k=2))
        first, last = sorted(chance.choices(range(RETENTION_MS), k=2))
        reverse = chance.random() < 0.5
        whole = store.read_keys(None, None, first, last, reverse=reverse)
        expected = [pair for pair in whole if lowest <= layout.key_of(pair[0]) <= highest]
        found = list(store.read_keys(lowest, highest, first, last, reverse=reverse))
        assert found == expected
        expected = [
            pair for pair in all_windows(store, first, last) if layout.key_of(pair[0]) <= highest
        ]
        assert list(store.read_keys(None, highest, first, last)) == expected
        expected = [
            pair for pair in all_windows(store, first, last) if layout.key_of(pair[0]) >= lowest
        ]
        assert list(store.read_keys(lowest, None, first, last)) == expected
    store.close()


@pytest.mark.parametrize("reverse", [False, True])
def test_keys_outside_an_open_range_are_not_read(
    opened: Callable[[KeyLayout], tuple[SegmentedWindows, OverlayStore]], reverse: bool
) -> None:
    """Neither after the last key nor before the first."""
    store, base = opened(WINDOWS)
    fill(store)
    counter = ReadCounter(base)
    upto = list(store.read_keys(None, b"key0001", 0, RETENTION_MS, reverse=reverse))
    since = list(store.read_keys(b"key0498", None, 0, RETENTION_MS, reverse=reverse))
    assert {WINDOWS.key_of(stored) for stored, _ in upto} == {b"key0000", b"key0001"}
    assert {WINDOWS.key_of(stored) for stored, _ in since} == {b"key0498", b"key0499"}
    assert len(upto) == len(since) == 8
    assert counter.pairs == 16
    patch.stopall()
    store.close()


def test_a_long_key_is_read_quickly(
    opened: Callable[[KeyLayout], tuple[SegmentedWindows, OverlayStore]],
) -> None:
    """A slow query for a key of 200 KB would block its stream thread.

    Detects a quadratic time, which is 10,000 times as long for a key of 100 times the size.
    """
    store, _ = opened(WINDOWS)

    def processor_s(size: int) -> float:
        key = bytes(size)
        store.put(window_key(key, 1_000), b"v", 0)
        store.commit((CHANGELOG, 1))
        began_s = time.thread_time()
        assert len(list(store.read_keys(key, key, 0, RETENTION_MS))) == 1
        return time.thread_time() - began_s

    assert processor_s(200_000) < 1_000 * processor_s(2_000)
    store.close()


def test_other_keys_are_not_read(
    opened: Callable[[KeyLayout], tuple[SegmentedWindows, OverlayStore]],
) -> None:
    store, base = opened(WINDOWS)
    fill(store)
    counter = ReadCounter(base)
    found = list(store.read_keys(b"key0042", b"key0043", 0, RETENTION_MS))
    assert len(found) == 8
    assert counter.pairs == 8
    patch.stopall()
    store.close()
