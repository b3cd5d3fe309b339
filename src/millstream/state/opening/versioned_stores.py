"""Opening versioned stores."""

from __future__ import annotations

from typing import Any

from millstream.state.builders.versioned import VersionedStoreBuilder
from millstream.state.changelogs.restore import apply_each
from millstream.state.opening.environment import StoreEnvironment
from millstream.state.opening.lowest_layer import open_base
from millstream.state.opening.open_store import OpenStore
from millstream.state.queries.readers import VersionedReader
from millstream.state.storage.bytes_store import ChangelogOffset
from millstream.state.versioned.store import VersionedKeyValueStore
from millstream.state.versioned.table import VersionedTable
from millstream.state.versioned.versions import VersionedBytes


def open_versioned_store(
    builder: VersionedStoreBuilder, environment: StoreEnvironment
) -> OpenStore:
    """Open a versioned store whose builder is resolved.

    Raises:
        TaskCorruptedError: what is on disk cannot be read.
    """
    key_serde, value_serde = builder.serdes()
    base = open_base(builder.name, builder.persistent, environment)
    versions = VersionedBytes(
        builder.name, base, history_ms=builder.history_ms, segment_ms=builder.segment_ms
    )
    table = VersionedTable(
        builder.name,
        versions,
        topic=environment.topic,
        key_serde=key_serde,
        value_serde=value_serde,
        changelog=environment.changelog_of(builder),
        dropped=environment.dropped,
    )
    store: VersionedKeyValueStore[Any, Any] = VersionedKeyValueStore(
        table,
        topic=environment.topic,
        key_serde=key_serde,
        persistent=base.persistent,
        context=environment.context,
    )

    def finish(offset: ChangelogOffset) -> None:
        versions.save_stream_time()
        base.commit_restored(offset)

    return OpenStore(
        store,
        table,
        base,
        apply_each(versions.put, finish),
        before_commit=versions.save_stream_time,
        reader=VersionedReader(versions),
        position=store.position,
    )
