"""A store without a task: opened alone, logged nowhere, in memory or in a folder of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from millstream.processor.task_context import CurrentRecord
from millstream.record import TaskId
from millstream.state.builders.store_builder import StoreBuilder
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.changelogs.record_at_hand import RecordAtHand
from millstream.state.opening.by_kind import open_store
from millstream.state.opening.environment import StoreEnvironment
from millstream.state.opening.open_store import OpenStore
from millstream.state.queries.codec import StoreCodec, codec_of
from millstream.state.storage.rocksdb import RocksDBStorages


def opened_alone(
    builder: StoreBuilder,
    *,
    directory: Path = Path("nowhere"),
    context: RecordAtHand | None = None,
    cache_bytes: int = 0,
) -> tuple[OpenStore, StoreCodec]:
    """An open store and how it is asked. Whoever opens one on disk closes it.

    Args:
        builder: of the store, with its serdes.
        directory: where it is, if it is persistent.
        context: the record at hand; None for none.
        cache_bytes: what its cache may use, if it has one.
    """
    environment = StoreEnvironment(
        task_id=TaskId(0, 0),
        directory=directory,
        topic=f"app-{builder.name}-changelog",
        restored_from=None,
        writer=None,
        context=context or CurrentRecord(),
        budget=CacheBudget(cache_bytes),
        recent_max_bytes=1 << 20,
        storages=RocksDBStorages(),
        dropped=_nowhere,
    )
    codec = codec_of(builder, environment.topic)
    assert codec is not None, f"store {builder.name} takes no queries"
    return open_store(builder, environment), codec


def _nowhere(*dropped: Any) -> None:
    """Nobody counts."""
