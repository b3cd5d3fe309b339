"""Which stores are opened how: one row for each kind of builder."""

from __future__ import annotations

from functools import singledispatch

from millstream.errors import StreamsError
from millstream.state.builders.buffers import (
    GraceBufferBuilder,
    OuterJoinStoreBuilder,
    SubscriptionStoreBuilder,
    SuppressBufferBuilder,
)
from millstream.state.builders.key_value import KeyValueStoreBuilder
from millstream.state.builders.store_builder import StoreBuilder
from millstream.state.builders.versioned import VersionedStoreBuilder
from millstream.state.builders.windows import SessionStoreBuilder, WindowStoreBuilder
from millstream.state.opening.buffers import (
    open_grace_buffer,
    open_outer_join_store,
    open_subscription_store,
    open_suppress_buffer,
)
from millstream.state.opening.environment import StoreEnvironment
from millstream.state.opening.key_value_stores import open_key_value_store
from millstream.state.opening.open_store import OpenStore
from millstream.state.opening.versioned_stores import open_versioned_store
from millstream.state.opening.window_stores import open_session_store, open_window_store


@singledispatch
def open_store(builder: StoreBuilder, environment: StoreEnvironment) -> OpenStore:
    """Open a store in a task.

    Args:
        builder: of the store; everything in it must be resolved.
        environment: what the store finds in its task.

    Raises:
        TaskCorruptedError: what is on disk cannot be read.
        LockError: another owner has it open.
        StreamsError: the disk refuses it, or the builder is of no kind that is known.
    """
    raise StreamsError(
        f"Store {builder.name} cannot be opened: {type(builder).__name__} is no builder of a kind "
        "that is known. Make builders with Stores.",
        task_id=environment.task_id,
    )


open_store.register(KeyValueStoreBuilder, open_key_value_store)
open_store.register(WindowStoreBuilder, open_window_store)
open_store.register(SessionStoreBuilder, open_session_store)
open_store.register(VersionedStoreBuilder, open_versioned_store)
open_store.register(SuppressBufferBuilder, open_suppress_buffer)
open_store.register(GraceBufferBuilder, open_grace_buffer)
open_store.register(OuterJoinStoreBuilder, open_outer_join_store)
open_store.register(SubscriptionStoreBuilder, open_subscription_store)
