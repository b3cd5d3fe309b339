"""The metrics of a task's stores, named as in Kafka Streams."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final

from millstream.metrics.registry import MetricsScope, RecordingLevel
from millstream.metrics.sensors import Sensor
from millstream.record import TaskId
from millstream.state.builders.buffer_builders import SuppressBufferBuilder
from millstream.state.builders.store_builder import KeyValueStoreBuilder, StoreBuilder
from millstream.state.builders.window_builders import SessionStoreBuilder, WindowStoreBuilder
from millstream.state.opening.open_store import OpenStore
from millstream.state.storage.bytes_store import Storage
from millstream.state.storage.rocksdb import RocksDBStorage
from millstream.state.storage.rocksdb_statistics import STORE_GROUP, add_database_metrics
from millstream.state.storage.storages import Storages

CACHE_GROUP: Final = "stream-record-cache-metrics"
_DEBUG: Final = RecordingLevel.DEBUG

#: The metric name of each store method.
METRIC_BY_METHOD: Final = {
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


class StoreMetrics:
    """The metrics of a task's stores while they are open.

    At the DEBUG level, the calls of store methods by processors are measured, which takes 1 us per
    call. The operators of the DSL process batches and access caches without these methods, so their
    operations are not measured.
    """

    def __init__(self, scope: MetricsScope) -> None:
        self._scope = scope
        self._open: list[MetricsScope] = []
        self._commits: dict[str, Sensor] = {}
        self._buffers: dict[str, tuple[Sensor, Sensor]] = {}
        self._hits: dict[str, Sensor] = {}
        self._databases: dict[str, Storage] = {}

    def track_databases(self, storages: Storages) -> Storages:
        """Wrap a factory of storages so that each database it opens is registered."""
        return _TrackingStorages(storages, self._databases)

    def on_open(self, builder: StoreBuilder, store: OpenStore, took_ns: int) -> None:
        name = builder.name
        part = self._part(**{f"{metrics_scope_of(builder)}-state-id": name})
        self._timed(part, "restore").record(took_ns)
        self._commits[name] = self._timed(part, "commit")
        database = self._databases.get(name)
        if isinstance(database, RocksDBStorage):
            add_database_metrics(part, database)
        elif not (builder.persistent or isinstance(builder, SuppressBufferBuilder)):
            count = getattr(store.base, "approximate_num_entries", None)
            if count is not None:
                part.gauge(STORE_GROUP, "num-keys", count)
        if isinstance(builder, SuppressBufferBuilder):
            self._buffers[name] = (
                part.average_and_maximum(STORE_GROUP, "suppression-buffer-count", _DEBUG),
                part.average_and_maximum(STORE_GROUP, "suppression-buffer-size", _DEBUG),
            )
        if self._scope.records(_DEBUG):
            self._measure_calls(part, store.store)
        if store.cache is not None:
            cache = self._part(**{"record-cache-id": name})
            self._hits[name] = cache.average_minimum_maximum(CACHE_GROUP, "hit-ratio", _DEBUG)

    def on_commit(self, name: str, store: OpenStore, began_ns: int) -> None:
        self._commits[name].record(perf_counter_ns() - began_ns)
        if name in self._buffers:
            count, size = self._buffers[name]
            count.record(store.store.num_records)
            size.record(store.store.size_bytes)
        if store.cache is not None and store.cache.seq:
            statistics = store.cache.statistics()
            # Each change and each read increments seq; a read that misses the cache is a load.
            self._hits[name].record(max(0.0, 1 - statistics.loads / store.cache.seq))

    def on_close(self) -> None:
        for part in self._open:
            self._scope.remove(part)
        self._open.clear()
        self._databases.clear()

    def _part(self, **labels: str) -> MetricsScope:
        part = self._scope.child(**labels)
        self._open.append(part)
        return part

    def _timed(self, part: MetricsScope, what: str) -> Sensor:
        sensor = part.average_and_maximum(STORE_GROUP, f"{what}-latency", _DEBUG)
        part.gauge(STORE_GROUP, f"{what}-rate", sensor.count_rate, _DEBUG)
        return sensor

    def _measure_calls(self, part: MetricsScope, store: Any) -> None:
        sensors: dict[str, Sensor] = {}
        for method, what in METRIC_BY_METHOD.items():
            call = getattr(store, method, None)
            if call is not None:
                if what not in sensors:
                    sensors[what] = self._timed(part, what)
                # Wrap the methods of this object only, so that unmeasured stores have no overhead.
                setattr(store, method, _measured(call, sensors[what]))


def metrics_scope_of(builder: StoreBuilder) -> str:
    """Return Kafka Streams' name for a type of store, the prefix of its metric label."""
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
    def measured(*args: Any, **kwargs: Any) -> Any:
        began_ns = perf_counter_ns()
        try:
            return call(*args, **kwargs)
        finally:
            sensor.record(perf_counter_ns() - began_ns)

    return measured


class _TrackingStorages:
    """Registers each database that the wrapped factory opens. Implements `Storages`."""

    def __init__(self, storages: Storages, databases: dict[str, Storage]) -> None:
        self._storages = storages
        self._databases = databases

    def open(self, name: str, directory: Path, task_id: TaskId) -> Storage:
        storage = self._databases[name] = self._storages.open(name, directory, task_id)
        return storage

    def destroy(self, name: str, directory: Path, task_id: TaskId) -> None:
        self._storages.destroy(name, directory, task_id)
