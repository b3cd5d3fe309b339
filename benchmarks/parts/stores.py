"""The cost of operations on state stores, without a broker, threads or Spark.

The stores are those of processors, with text keys and LONG values. They are opened as in a task,
with RocksDB in an empty directory. Changes are counted instead of being sent to a changelog.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from millstream import Stores, TaskId, TopicPartition, Window, Windowed
from millstream.record import Headers
from millstream.serdes import LONG, STRING
from millstream.state.builders.store_builder import StoreBuilder
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.changelogs.restore import StoreRestorer
from millstream.state.directories.state_directory import StateDirectory
from millstream.state.task_stores import TaskStores

RECORDS = 100_000
ROUNDS = 3
SMOKE_RECORDS = 2_000
SEED = 5

_TASK = TaskId(0, 0)
_CHANGELOG = TopicPartition("bench-store-changelog", 0)
_MINUTE_MS = 60_000
#: The batch size of a stream thread.
_RESTORE_BATCH = 10_000
#: The number of windows, sessions or versions per key.
_PER_KEY = 10


class _Changelog:
    """Counts changes, to provide the offset of commits."""

    def __init__(self) -> None:
        self.logged = 0

    def log_many(
        self,
        store_name: str,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int] | None,
        headers: Sequence[Headers] | None = None,
    ) -> None:
        self.logged += len(keys)


class _Record:
    """The record being processed."""

    timestamp = 0
    place: TopicPartition | None = None
    offset = -1
    headers: Headers = ()


class _OpenStore:
    """A store in a separate task."""

    def __init__(self, builder: StoreBuilder, folder: Path) -> None:
        self.changelog = _Changelog()
        self.directory = StateDirectory(folder, "bench")
        self.stores = TaskStores(
            _TASK,
            [builder],
            self.directory,
            application_id="bench",
            changelogs={builder.name: _CHANGELOG},
            writer=self.changelog,
            context=_Record(),
            # Large enough that all entries stay cached until a flush.
            budget=CacheBudget(1 << 30),
        )
        self.stores.open()
        self.store: Any = self.stores.store(builder.name)

    def flush(self) -> None:
        """Flush the cache."""
        for name, cache in self.stores.caches().items():
            cache.flush()
            self.stores.flush_cache(name)

    def commit(self) -> None:
        """Write uncommitted changes to RocksDB."""
        self.stores.commit({_CHANGELOG: self.changelog.logged - 1})


class Operations:
    """All measured operations. Some use stores that preceding operations have filled.

    Args:
        count: the number of keys.
        folder: an empty folder.
        note: called with the store, the operation, and the seconds per operation.
    """

    def __init__(self, count: int, folder: Path, note: Callable[[str, str, float], None]) -> None:
        self.note = note
        self.folder = folder
        numbers = list(range(count))
        random.Random(SEED).shuffle(numbers)
        self.keys = [f"user-{number:08d}" for number in numbers]
        #: Fewer keys for stores with several entries per key.
        self.fewer_keys = self.keys[: max(1, count // _PER_KEY)]

    def measure(self) -> None:
        """Measure all operations once."""
        self.key_value()
        self.cached()
        self.restored()
        self.window()
        self.session()
        self.versioned()

    def key_value(self) -> None:
        builder = Stores.key_value_builder(Stores.persistent_key_value("store"), STRING, LONG)
        with self._opened(builder) as opened:
            store, keys = opened.store, self.keys
            self._time("key-value", "put", len(keys), lambda: _puts(store, keys))
            self._time("key-value", "commit, per change", len(keys), opened.commit)
            self._time("key-value", "get", len(keys), lambda: list(map(store.get, keys)))
            self._time("key-value", "get, missing key", len(keys), lambda: _misses(store, keys))
            self._time("key-value", "range, per pair", len(keys), lambda: _drain(store.all()))

    def cached(self) -> None:
        supplier = Stores.persistent_key_value("store")
        builder = Stores.timestamped_key_value_builder(supplier, STRING, LONG)
        with self._opened(builder.with_caching(True)) as opened:
            table, keys = opened.stores.table("store"), self.keys
            self._time("cached", "update, first", len(keys), lambda: _update(table, keys))
            self._time("cached", "update, again", len(keys), lambda: _update(table, keys))
            self._time("cached", "flush, per change", len(keys), opened.flush)
            self._time("cached", "commit, per change", len(keys), opened.commit)

    def restored(self) -> None:
        """Write the records of a changelog to a store. Reading them is not measured."""
        for size in (8, 200):
            supplier = Stores.persistent_key_value("store")
            builder = Stores.timestamped_key_value_builder(supplier, STRING, LONG)
            with self._opened(builder) as opened:
                (restorer,) = opened.stores.restorers().values()
                records = [(key.encode(), os.urandom(size)) for key in self.keys]
                self._time(
                    "restored",
                    f"record of {size} bytes",
                    len(records),
                    lambda: _restore(restorer, records),  # noqa: B023
                )

    def window(self) -> None:
        supplier = Stores.persistent_window(
            "store", retention=timedelta(hours=1), window_size=timedelta(minutes=1)
        )
        builder = Stores.window_builder(supplier, STRING, LONG)
        with self._opened(builder) as opened:
            store = opened.store
            places = [(key, n * _MINUTE_MS) for n in range(_PER_KEY) for key in self.fewer_keys]
            self._time("window", "put", len(places), lambda: _window_puts(store, places))
            self._time(
                "window", "fetch", len(places), lambda: [store.fetch(*place) for place in places]
            )
            self._time(
                "window",
                f"fetch of {_PER_KEY} windows",
                len(self.fewer_keys),
                lambda: [
                    _drain(store.fetch(key, 0, _PER_KEY * _MINUTE_MS)) for key in self.fewer_keys
                ],
            )
            self._time("window", "commit, per change", len(places), opened.commit)

    def session(self) -> None:
        supplier = Stores.persistent_session("store", retention=timedelta(hours=1))
        builder = Stores.session_builder(supplier, STRING, LONG)
        with self._opened(builder) as opened:
            store = opened.store
            sessions = [
                Windowed(key, Window(n * _MINUTE_MS, n * _MINUTE_MS + 30_000))
                for n in range(_PER_KEY)
                for key in self.fewer_keys
            ]
            self._time("session", "put", len(sessions), lambda: _puts(store, sessions))
            self._time(
                "session",
                "find, one of 10 sessions",
                len(self.fewer_keys),
                lambda: [
                    _drain(store.find_sessions(key, 65_000, 70_000)) for key in self.fewer_keys
                ],
            )
            self._time("session", "commit, per change", len(sessions), opened.commit)

    def versioned(self) -> None:
        supplier = Stores.persistent_versioned("store", history_retention=timedelta(hours=1))
        builder = Stores.versioned_builder(supplier, STRING, LONG)
        with self._opened(builder) as opened:
            store = opened.store
            versions = [
                (key, n, n * _MINUTE_MS) for n in range(_PER_KEY) for key in self.fewer_keys
            ]
            self._time(
                "versioned",
                "put",
                len(versions),
                lambda: [store.put(*version) for version in versions],
            )
            self._time(
                "versioned",
                "get, latest",
                len(self.fewer_keys),
                lambda: [store.get(key) for key in self.fewer_keys],
            )
            queries = [(key, time) for key, _, time in versions]
            self._time(
                "versioned",
                "get, as of a time",
                len(queries),
                lambda: [store.get(key, time + 1) for key, time in queries],
            )
            self._time("versioned", "commit, per change", len(versions), opened.commit)

    @contextmanager
    def _opened(self, builder: StoreBuilder) -> Iterator[_OpenStore]:
        opened = _OpenStore(builder, self.folder)
        try:
            yield opened
        finally:
            opened.stores.close(clean=False)
            opened.directory.remove_task_directory(_TASK)

    def _time(self, store: str, operation: str, count: int, work: Callable[[], object]) -> None:
        # The cost of a garbage collection depends on other objects in memory, not on the store.
        gc.collect()
        gc.disable()
        began = time.perf_counter()
        work()
        took = time.perf_counter() - began
        gc.enable()
        self.note(store, operation, took / count)


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure all operations and print the medians; return the results to save."""
    count: int = options.records or (SMOKE_RECORDS if options.smoke else RECORDS)
    seconds: dict[tuple[str, str], list[float]] = {}

    def note(store: str, operation: str, each: float) -> None:
        seconds.setdefault((store, operation), []).append(each)

    for number in range(options.rounds or ROUNDS):
        Operations(count, folder / str(number), note).measure()
    print(
        f"stores: {count:,} keys of 13 bytes, LONG values; microseconds per operation\n\n"
        f"{'store':12} {'operation':26} {'median':>8} {'fastest':>8}"
    )
    table: dict[str, dict[str, float]] = {}
    for (store, operation), times in seconds.items():
        median, fastest = statistics.median(times) * 1e6, min(times) * 1e6
        table.setdefault(store, {})[operation] = median
        print(f"{store:12} {operation:26} {median:>8.2f} {fastest:>8.2f}")
    return {"keys": count, "medians_us": table}


def _restore(restorer: StoreRestorer, records: Sequence[tuple[bytes, bytes]]) -> None:
    for first in range(0, len(records), _RESTORE_BATCH):
        keys, values = zip(*records[first : first + _RESTORE_BATCH], strict=True)
        offsets = range(first, first + len(keys))
        restorer.restore_batch(keys, values, [_MINUTE_MS] * len(keys), offsets)


def _puts(store: Any, keys: Sequence[Any]) -> None:
    put = store.put
    for number, key in enumerate(keys):
        put(key, number)


def _misses(store: Any, keys: Sequence[str]) -> None:
    get = store.get
    for key in keys:
        get(key + "?")


def _window_puts(store: Any, places: Sequence[tuple[str, int]]) -> None:
    put = store.put
    for number, (key, start) in enumerate(places):
        put(key, number, start)


def _update(table: Any, keys: Sequence[str]) -> None:
    """Update keys as an aggregation does.

    Reads the entry, changes it, and stores it with the record's position.
    """
    cache = table.cache
    entries, load, dirty = cache.entries, cache.load, cache.dirty
    for number, key in enumerate(table.encode_keys(keys)):
        entry = entries.get(key)
        if entry is None:
            entry = load(key)
        entry.value = (entry.value or 0) + 1
        entry.timestamp = number
        if not entry.dirty_seq:
            dirty.append(entry)
        cache.seq += 1
        entry.dirty_seq = cache.seq
        entry.place, entry.offset = _CHANGELOG, number


def _drain(items: Any) -> int:
    with items:
        return sum(1 for _ in items)
