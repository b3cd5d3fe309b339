"""What is measured of the stores of one task, by Kafka Streams' names."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final

from millstream.metrics.registry import RecordingLevel, Scope
from millstream.metrics.sensors import Sensor
from millstream.record import TaskId
from millstream.state.builders.buffers import SuppressBufferBuilder
from millstream.state.builders.key_value import KeyValueStoreBuilder
from millstream.state.builders.store_builder import StoreBuilder
from millstream.state.builders.windows import SessionStoreBuilder, WindowStoreBuilder
from millstream.state.opening.open_store import OpenStore
from millstream.state.storage.bytes_store import Storage
from millstream.state.storage.rocksdb import RocksDBStorage
from millstream.state.storage.rocksdb_statistics import STORE_GROUP, measure_database
from millstream.state.storage.storages import Storages

CACHE_GROUP: Final = "stream-record-cache-metrics"
_DEBUG: Final = RecordingLevel.DEBUG

#: Methods of stores, and what their calls are called.
CALLS: Final = {
    "put": "put",
    "put_if_absent": "put-if-absent",
    "put_all": "put-all",
    "get": "get",
    "delete": "delete",
    "remove": "remove",
    "fetch": "fetch",
    "all": "all",
    "reverse_all": "all",
    "range": "range",
    "reverse_range": "range",
    "prefix_scan": "prefix-scan",
}


class StoreMeters:
    """The metrics of the stores of a task, while they are open.

    Calls are measured at the level DEBUG, and only those of processors: operators of the DSL work
    on batches and on the cache, below the methods of stores. It costs them 1 us each.

    Args:
        scope: of the task.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._open: list[Scope] = []
        self._commits: dict[str, Sensor] = {}
        self._buffers: dict[str, tuple[Sensor, Sensor]] = {}
        self._hits: dict[str, Sensor] = {}
        self._databases: dict[str, Storage] = {}

    def watching(self, storages: Storages) -> Storages:
        """Storages, of which the databases are remembered."""
        return _Watching(storages, self._databases)

    def opened(self, builder: StoreBuilder, store: OpenStore, took_ns: int) -> None:
        """A store was opened.

        Args:
            builder: of the store.
            store: the store.
            took_ns: how long that took.
        """
        name = builder.name
        part = self._part(**{f"{kind_of(builder)}-state-id": name})
        self._timed(part, "restore").record(took_ns)
        self._commits[name] = self._timed(part, "commit")
        database = self._databases.get(name)
        if isinstance(database, RocksDBStorage):
            measure_database(part, database)
        elif not (builder.persistent or isinstance(builder, SuppressBufferBuilder)):
            count = getattr(store.base, "approximate_num_entries", None)
            if count is not None:
                part.gauge(STORE_GROUP, "num-keys", count)
        if isinstance(builder, SuppressBufferBuilder):
            self._buffers[name] = (
                part.average_and_highest(STORE_GROUP, "suppression-buffer-count", _DEBUG),
                part.average_and_highest(STORE_GROUP, "suppression-buffer-size", _DEBUG),
            )
        if self._scope.records(_DEBUG):
            self._measure_calls(part, store.store)
        if store.cache is not None:
            cache = self._part(**{"record-cache-id": name})
            self._hits[name] = cache.average_lowest_highest(CACHE_GROUP, "hit-ratio", _DEBUG)

    def committed(self, name: str, store: OpenStore, began_ns: int) -> None:
        """A store has written what was committed.

        Args:
            name: of the store.
            store: the store.
            began_ns: when that began.
        """
        self._commits[name].record(perf_counter_ns() - began_ns)
        if name in self._buffers:
            count, size = self._buffers[name]
            count.record(store.store.num_records)
            size.record(store.store.size_bytes)
        if store.cache is not None and store.cache.seq:
            statistics = store.cache.statistics()
            # Each change and each read counts one; what was not there was loaded.
            self._hits[name].record(max(0.0, 1 - statistics.loads / store.cache.seq))

    def closed(self) -> None:
        """All stores were closed."""
        for part in self._open:
            self._scope.remove(part)
        self._open.clear()
        self._databases.clear()

    def _part(self, **labels: str) -> Scope:
        part = self._scope.part(**labels)
        self._open.append(part)
        return part

    def _timed(self, part: Scope, what: str) -> Sensor:
        sensor = part.average_and_highest(STORE_GROUP, f"{what}-latency", _DEBUG)
        part.gauge(STORE_GROUP, f"{what}-rate", sensor.count_rate, _DEBUG)
        return sensor

    def _measure_calls(self, part: Scope, store: Any) -> None:
        sensors: dict[str, Sensor] = {}
        for method, what in CALLS.items():
            call = getattr(store, method, None)
            if call is not None:
                if what not in sensors:
                    sensors[what] = self._timed(part, what)
                # On the object, before anybody has it: where nothing is measured nothing is slower.
                setattr(store, method, _measured(call, sensors[what]))


def kind_of(builder: StoreBuilder) -> str:
    """What Kafka Streams calls the kind of a store, in the label with its name."""
    where = "rocksdb" if builder.persistent else "in-memory"
    if isinstance(builder, WindowStoreBuilder):
        return f"{where}-window"
    if isinstance(builder, SessionStoreBuilder):
        return f"{where}-session"
    if isinstance(builder, SuppressBufferBuilder):
        return "in-memory-suppression"
    if isinstance(builder, KeyValueStoreBuilder) and builder.max_entries is not None:
        return "in-memory-lru"
    return where


def _measured(call: Callable[..., Any], sensor: Sensor) -> Callable[..., Any]:
    @wraps(call)
    def measured(*args: Any, **named: Any) -> Any:
        began_ns = perf_counter_ns()
        try:
            return call(*args, **named)
        finally:
            sensor.record(perf_counter_ns() - began_ns)

    return measured


class _Watching:
    """Storages that remember what they have opened. It is `Storages`."""

    def __init__(self, storages: Storages, opened: dict[str, Storage]) -> None:
        self._storages = storages
        self._opened = opened

    def open(self, name: str, directory: Path, task_id: TaskId) -> Storage:
        """Open a storage."""
        storage = self._opened[name] = self._storages.open(name, directory, task_id)
        return storage

    def destroy(self, name: str, directory: Path, task_id: TaskId) -> None:
        """Delete a closed storage."""
        self._storages.destroy(name, directory, task_id)
