"""Opening versioned stores, buffers and the stores of unjoined records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.state.buffers.builders import (
    GraceBufferBuilder,
    OuterJoinStoreBuilder,
    SuppressBufferBuilder,
)
from millstream.state.buffers.grace_buffer import GraceBuffer
from millstream.state.buffers.outer_join_store import OuterJoinStore
from millstream.state.buffers.time_ordered_buffer import TimeOrderedBuffer
from millstream.state.keyvalue.opening import OpenStore, StoreEnvironment, open_base
from millstream.state.storage.bytes_store import ChangelogOffset
from millstream.state.storage.memory import MemoryStore
from millstream.state.storage.value_formats import PLAIN
from millstream.state.versioned.builder import VersionedStoreBuilder
from millstream.state.versioned.bytes import VersionedBytes
from millstream.state.versioned.store import VersionedKeyValueStore
from millstream.state.versioned.table import VersionedTable


def open_versioned_store(
    builder: VersionedStoreBuilder, environment: StoreEnvironment
) -> OpenStore:
    """Open a versioned store whose builder is resolved.

    Raises:
        TaskCorruptedError: what is on disk cannot be read.
    """
    key_serde, value_serde = builder.serdes()
    base = open_base(builder.name, True, environment)
    versions = VersionedBytes(
        builder.name, base, history_ms=builder.history_ms, segment_ms=builder.segment_ms
    )
    table = VersionedTable(
        builder.name,
        versions,
        topic=environment.topic,
        key_serde=key_serde,
        value_serde=value_serde,
        writer=environment.writer if builder.logging else None,
        dropped=environment.dropped,
    )
    store: VersionedKeyValueStore[Any, Any] = VersionedKeyValueStore(
        table, topic=environment.topic, key_serde=key_serde, persistent=True
    )

    def apply(
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        offset: ChangelogOffset,
    ) -> None:
        for key, value, timestamp in zip(keys, values, timestamps, strict=True):
            if key is not None:
                versions.put(key, value, timestamp)
        versions.save_stream_time()
        base.commit(offset)

    return OpenStore(
        store,
        table,
        None,
        base,
        PLAIN,
        persistent=True,
        apply=apply,
        log_changes=versions.save_stream_time,
    )


def open_suppress_buffer(
    builder: SuppressBufferBuilder, environment: StoreEnvironment
) -> OpenStore:
    """Open the buffer of a suppress whose builder is resolved."""
    key_serde, value_serde = builder.serdes()
    base = MemoryStore()
    buffer = TimeOrderedBuffer(
        builder.name,
        topic=environment.topic,
        key_serde=key_serde,
        value_serde=value_serde,
        writer=environment.writer if builder.logging else None,
        offsets=base,
    )
    return OpenStore(
        buffer,
        buffer,
        None,
        base,
        PLAIN,
        persistent=False,
        apply=buffer.apply,
        log_changes=buffer.log_changes,
    )


def open_grace_buffer(builder: GraceBufferBuilder, environment: StoreEnvironment) -> OpenStore:
    """Open the buffer of a join with grace whose builder is resolved.

    Raises:
        TaskCorruptedError: what is on disk cannot be read.
    """
    key_serde, value_serde = builder.serdes()
    base = open_base(builder.name, True, environment)
    buffer = GraceBuffer(
        builder.name,
        base,
        topic=environment.topic,
        key_serde=key_serde,
        value_serde=value_serde,
        grace_ms=builder.grace_ms,
        writer=environment.writer if builder.logging else None,
    )
    return OpenStore(buffer, buffer, None, base, PLAIN, persistent=True)


def open_outer_join_store(
    builder: OuterJoinStoreBuilder, environment: StoreEnvironment
) -> OpenStore:
    """Open the store of unjoined records whose builder is resolved.

    Raises:
        TaskCorruptedError: what is on disk cannot be read.
    """
    key_serde, left_serde = builder.serdes()
    assert builder.right_serde is not None, "the right serde is not resolved"
    base = open_base(builder.name, builder.persistent, environment)
    store = OuterJoinStore(
        builder.name,
        base,
        topic=environment.topic,
        key_serde=key_serde,
        left_serde=left_serde,
        right_serde=builder.right_serde,
        persistent=base.persistent,
        writer=environment.writer if builder.logging else None,
    )
    return OpenStore(store, store, None, base, PLAIN, base.persistent)
