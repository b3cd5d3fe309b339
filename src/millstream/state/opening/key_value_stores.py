"""Opening key-value stores."""

from __future__ import annotations

from typing import Any

from millstream.state.builders.key_value import KeyValueStoreBuilder
from millstream.state.caches.record_cache import RecordCache
from millstream.state.changelogs.logged_lru import LoggedLRUStore
from millstream.state.changelogs.logged_store import LoggedStore
from millstream.state.changelogs.restore import apply_each, apply_latest
from millstream.state.keyvalue.store import KeyValueStore
from millstream.state.keyvalue.table import TimestampedTable
from millstream.state.opening.environment import StoreEnvironment
from millstream.state.opening.lowest_layer import open_base
from millstream.state.opening.open_store import OpenStore
from millstream.state.queries.readers import KeyValueReader
from millstream.state.storage.bytes_store import BytesStore
from millstream.state.storage.lru import LRUStore
from millstream.state.storage.value_formats import format_of


def open_key_value_store(builder: KeyValueStoreBuilder, environment: StoreEnvironment) -> OpenStore:
    """Open a key-value store whose builder is resolved.

    Raises:
        TaskCorruptedError: what is on disk cannot be read.
    """
    name, topic, context = builder.name, environment.topic, environment.context
    key_serde, value_serde = builder.serdes()
    value_format = format_of(builder.timestamped)
    changelog = environment.changelog_of(builder, value_format)
    lru = None if builder.max_entries is None else LRUStore(builder.max_entries)
    base = lru or open_base(name, builder.persistent, environment)
    layers: BytesStore = base
    if lru is not None and changelog.enabled and not builder.timestamped:
        # Follows Kafka Streams, where the timestamps hide from the changelog what is forgotten.
        layers = LoggedLRUStore(lru, changelog, context)
    elif changelog.enabled:
        layers = LoggedStore(layers, changelog)
    cache = None
    if builder.caching and environment.budget.max_bytes > 0:
        cache = layers = RecordCache(
            name,
            layers,
            value_format,
            topic=topic,
            key_serde=key_serde,
            value_serde=value_serde,
            budget=environment.budget,
            context=context,
        )
        cache.remembers_more = lru is not None
    store: KeyValueStore[Any, Any] = KeyValueStore(
        name,
        layers,
        value_format,
        topic=topic,
        key_serde=key_serde,
        value_serde=value_serde,
        persistent=base.persistent,
        context=context,
        cache=cache,
    )
    table = None
    if builder.timestamped:
        table = TimestampedTable(
            name,
            layers,
            cache=cache,
            topic=topic,
            key_serde=key_serde,
            value_serde=value_serde,
        )
    if lru is None:
        apply = apply_latest(base, value_format)
    else:
        # Their order says which keys were used last.
        apply = apply_each(lru.put, lru.commit, value_format)
    reader = KeyValueReader(layers, base, cache)
    return OpenStore(store, table, base, apply, cache, reader=reader, position=store.position)
