"""A store with a time index finds the same windows as a scan of its segments."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.record import TaskId, TopicPartition
from millstream.state.storage.overlay import OverlayStore
from millstream.state.storage.rocksdb import RocksDBStorage, RocksDBStorages
from millstream.state.windows.segmented_windows import SegmentedWindows, segment_length_ms
from millstream.state.windows.time_index import TimeIndexedOverlay, TimeOrderedWindows
from millstream.state.windows.window_keys import (
    SESSIONS,
    WINDOWS,
    KeyLayout,
    session_key,
    window_key,
)

RETENTION_MS = 150_000
CHANGELOG = TopicPartition("app-s-changelog", 0)
LAYOUTS = pytest.mark.parametrize(
    ("layout", "stored"),
    [(WINDOWS, window_key), (SESSIONS, lambda key, time: session_key(key, time - 5, time))],
    ids=["windows", "sessions"],
)

#: Ranges of keys to read.
_BOUNDS: tuple[tuple[bytes | None, bytes | None], ...] = (
    (None, None),
    (b"", None),
    (None, b"a"),
    (b"a", b"b\xff"),
)


class Pair:
    """A store with the index and one without. `recent_bytes` decides whether they also keep windows
    in memory."""

    def __init__(self, folder: Path, layout: KeyLayout, recent_bytes: int) -> None:
        self._folder, self._layout, self._recent_bytes = folder, layout, recent_bytes
        self.open()

    def open(self) -> None:
        def storage(name: str) -> RocksDBStorage:
            return RocksDBStorage(name, self._folder / name, TaskId(0, 0), RocksDBStorages())

        layout, recent_bytes = self._layout, self._recent_bytes
        overlay = TimeIndexedOverlay(
            storage("indexed"),
            layout,
            segment_length_ms(RETENTION_MS),
        )
        self.indexed = TimeOrderedWindows(
            layout,
            overlay,
            retention_ms=RETENTION_MS,
            recent_bytes=recent_bytes,
            expired=lambda: None,
        )
        self.plain = SegmentedWindows(
            layout,
            OverlayStore(storage("plain")),
            retention_ms=RETENTION_MS,
            recent_bytes=recent_bytes,
            time_ordered=True,
            expired=lambda: None,
        )
        self.both = (self.indexed, self.plain)

    def close(self) -> None:
        for store in self.both:
            store.close()


def _place(layout: KeyLayout, stored: bytes, by_time: bool) -> tuple[int, bytes]:
    time = layout.time_of(stored)
    return (time, stored) if by_time else (time // segment_length_ms(RETENTION_MS), stored)


@LAYOUTS
@pytest.mark.parametrize("recent_bytes", [0, 4_000])
def test_the_index_finds_the_same_windows_as_a_segment_scan(
    tmp_path: Path, layout: KeyLayout, stored: Callable[[bytes, int], bytes], recent_bytes: int
) -> None:
    """After puts and deletions, commits, restorations, restarts and expired segments."""
    chance = random.Random(recent_bytes)
    pair, now, found = Pair(tmp_path, layout, recent_bytes), 10_000, 0
    for step in range(50):
        now += chance.choice((0, 100, 20_000))
        size = chance.randint(1, 12)
        keys = [
            stored(
                chance.choice((b"a", b"b\xff", b"")), now - chance.randint(0, RETENTION_MS) % now
            )
            for _ in range(size)
        ]
        values = [chance.choice((b"one", b"two", None)) for _ in keys]
        action = chance.choice(
            ("put", "put", "many", "many", "many", "remove", "commit", "restore", "open")
        )
        for store in pair.both:
            if action == "many":
                store.put_many(keys, values, [0] * size)
            elif action == "put":
                store.put(keys[0], values[0], 0)
            elif action == "remove":
                store.remove(keys[0], 0)
            elif action in ("commit", "open"):
                store.commit((CHANGELOG, step))
            else:
                store.commit((CHANGELOG, step))
                store.restore(dict(zip(keys, values, strict=True)), (CHANGELOG, step))
        if action == "open":
            pair.close()
            pair.open()
        first = now - chance.randint(0, RETENTION_MS)
        last = first + chance.choice((0, 1_000, RETENTION_MS))
        indexed, plain = (list(store.read_including_expired(first, last)) for store in pair.both)
        assert indexed == plain
        # By time if windows of all keys are read, otherwise by segment and key.
        for start, end in _BOUNDS:
            by_time = start is None and end is None and layout is WINDOWS
            for reverse in (False, True):
                some, others = (
                    list(store.read_keys(start, end, first, last, reverse=reverse))
                    for store in pair.both
                )
                assert some == others
                places = [_place(layout, each, by_time) for each, _ in some]
                assert places == sorted(places, reverse=reverse)
                for begin, _ in some[1:2]:
                    rest = pair.indexed.read_keys(
                        start, end, first, last, reverse=reverse, begin=begin
                    )
                    assert list(rest) == some[1:]
        found += len(plain)
    assert found > 50
    pair.close()


def test_the_index_is_dropped_with_its_segment(tmp_path: Path) -> None:
    pair = Pair(tmp_path, WINDOWS, 0)
    for time in range(0, 20 * RETENTION_MS, 10_000):
        pair.indexed.put(window_key(b"k", time), b"v", 0)
        pair.indexed.commit((CHANGELOG, time))
    pair.close()
    storage = RocksDBStorage("indexed", tmp_path / "indexed", TaskId(0, 0), RocksDBStorages())
    left = len(list(storage.scan(None, None)))
    assert left < 2 * 3 * RETENTION_MS // 10_000
    storage.close()
