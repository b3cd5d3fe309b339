"""Stores without a task: opening them, views of them, flushing their caches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from millstream.processor.task_context import CurrentRecord
from millstream.query.page_iterator import StoreIterator
from millstream.query.views import QueryableStoreType, S
from millstream.record import TaskId
from millstream.state.builders.store_builder import StoreBuilder
from millstream.state.caches.cache_entries import CacheBudget, FlushedChanges
from millstream.state.opening.open_store import OpenStore, StoreEnvironment
from millstream.state.opening.store_layers import open_store
from millstream.state.queries.codec import Pairs, StoreCodec, codec_of
from millstream.state.queries.read_requests import ReadRequest
from millstream.state.storage.rocksdb import RocksDBStorages
from millstream.state.task_stores import TaskStores


def open_standalone_store(
    builder: StoreBuilder, *, directory: Path = Path("nowhere")
) -> tuple[OpenStore, StoreCodec]:
    """Open a store without a changelog and return it with its codec for queries.

    The caller closes persistent stores.
    """
    environment = StoreEnvironment(
        task_id=TaskId(0, 0),
        directory=directory,
        topic=f"app-{builder.name}-changelog",
        restored_from=None,
        writer=None,
        context=CurrentRecord(),
        budget=CacheBudget(0),
        recent_max_bytes=1 << 20,
        storages=RocksDBStorages(),
        dropped=lambda *_: None,
    )
    codec = codec_of(builder, environment.topic)
    assert codec is not None, f"store {builder.name} does not support queries"
    return open_store(builder, environment), codec


class LocalStoreReader:
    """Reads one open store of one task; implements `ViewReader`."""

    def __init__(self, opened: OpenStore) -> None:
        self._opened = opened

    def first(self, read: ReadRequest, finish: Callable[[Pairs], Any]) -> Any:
        return finish(self._read(read))

    def iterate(self, read: ReadRequest, finish: Callable[[Pairs], Any]) -> StoreIterator[Any]:
        return StoreIterator(iter(finish(self._read(read))))

    def _read(self, read: ReadRequest) -> Pairs:
        read_store = self._opened.read
        return (None if read_store is None else read_store(read)) or ()


def local_view(opened: OpenStore, codec: StoreCodec, kind: QueryableStoreType[S]) -> S:
    """Return a view of one open store; the store must support its type."""
    return kind.view(codec, LocalStoreReader(opened), timestamped=kind.timestamped)


def flush_caches(stores: TaskStores, forward: Callable[[str, FlushedChanges], None]) -> None:
    """Flush each cache once, in the order of the stores.

    Args:
        forward: takes the name of a store and its changes.
    """
    for name, cache in stores.caches().items():
        changes = cache.flush()
        if changes is not None:
            forward(name, changes)
        stores.flush_cache(name)
