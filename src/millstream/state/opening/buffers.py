"""Opening the stores of the DSL's own: buffers, unjoined records, subscriptions."""

from __future__ import annotations

from typing import Any

from millstream.state.buffers.grace_buffer import GraceBuffer
from millstream.state.buffers.outer_join_store import OuterJoinStore
from millstream.state.buffers.subscription_store import SubscriptionTable
from millstream.state.buffers.time_ordered_buffer import TimeOrderedBuffer
from millstream.state.builders.buffers import (
    GraceBufferBuilder,
    OuterJoinStoreBuilder,
    SubscriptionStoreBuilder,
    SuppressBufferBuilder,
)
from millstream.state.changelogs.logged_store import LoggedStore
from millstream.state.changelogs.restore import apply_each, apply_latest
from millstream.state.keyvalue.store import KeyValueStore
from millstream.state.opening.environment import StoreEnvironment
from millstream.state.opening.lowest_layer import open_base
from millstream.state.opening.open_store import OpenStore
from millstream.state.storage.memory import MemoryStore
from millstream.state.storage.value_formats import PLAIN, TIMESTAMPED


def open_suppress_buffer(
    builder: SuppressBufferBuilder, environment: StoreEnvironment
) -> OpenStore:
    """Open the buffer of a suppress whose builder is resolved."""
    key_serde, value_serde = builder.serdes()
    buffer = TimeOrderedBuffer(
        builder.name,
        topic=environment.topic,
        key_serde=key_serde,
        value_serde=value_serde,
        changelog=environment.changelog_of(builder),
    )
    # Keeps nothing but the offset reached.
    base = MemoryStore()
    return OpenStore(
        buffer,
        buffer,
        base,
        apply_each(buffer.restore, base.commit),
        before_commit=buffer.log_changes,
    )


def open_grace_buffer(builder: GraceBufferBuilder, environment: StoreEnvironment) -> OpenStore:
    """Open the buffer of a join with grace whose builder is resolved.

    Raises:
        TaskCorruptedError: what is on disk cannot be read.
    """
    key_serde, value_serde = builder.serdes()
    base = open_base(builder.name, builder.persistent, environment)
    buffer = GraceBuffer(
        builder.name,
        base,
        topic=environment.topic,
        key_serde=key_serde,
        value_serde=value_serde,
        grace_ms=builder.grace_ms,
        changelog=environment.changelog_of(builder),
    )
    return OpenStore(
        buffer, buffer, base, apply_latest(base, PLAIN), on_recycle=buffer.forget_conclusions
    )


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
        changelog=environment.changelog_of(builder),
    )
    return OpenStore(store, store, base, apply_latest(base, PLAIN))


def open_subscription_store(
    builder: SubscriptionStoreBuilder, environment: StoreEnvironment
) -> OpenStore:
    """Open the store of a foreign-key join whose builder is resolved.

    Raises:
        TaskCorruptedError: what is on disk cannot be read.
    """
    key_serde, value_serde = builder.serdes()
    changelog = environment.changelog_of(builder, TIMESTAMPED)
    base = open_base(builder.name, builder.persistent, environment)
    # Whoever looks into the store from outside sees a key-value store.
    store: KeyValueStore[Any, Any] = KeyValueStore(
        builder.name,
        LoggedStore(base, changelog),
        TIMESTAMPED,
        topic=environment.topic,
        key_serde=key_serde,
        value_serde=value_serde,
        persistent=base.persistent,
        context=environment.context,
    )
    table = SubscriptionTable(builder.name, base, changelog)
    return OpenStore(store, table, base, apply_latest(base, TIMESTAMPED))
