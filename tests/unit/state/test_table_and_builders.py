"""Operators read and write tables in batches; builders describe stores."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from typing import Any

import pytest
from support.tasks.standalone_store import flush_caches

from millstream.config.streams_config import StreamsConfig
from millstream.errors import ConfigError
from millstream.serdes import JSON, LONG, STRING, Serde
from millstream.state.builders.store_builder import KeyValueStoreBuilder
from millstream.state.stores import KeyValueStoreSupplier, Stores
from millstream.state.task_stores import TaskStores

OpenTask = Callable[..., TaskStores]


def test_every_uncached_update_is_logged_and_the_last_one_stored(
    open_task: OpenTask, changelog: Any
) -> None:
    """One changelog record per update, with its own timestamp; reads return the last update."""
    table = open_task().table("s")
    keys = table.encode_keys(["a", "b", "a", "b"])
    table.write_many(keys, [1, 2, 3, None], [10, 11, 12, 13])
    assert table.read_many([b"b", b"a", b"a"]) == [None, (3, 12), (3, 12)]
    assert table.get(b"a") == (3, 12)
    assert table.get(b"b") is None
    assert [
        (key, value and struct.unpack(">q", value)[0], time)
        for _, key, value, time in changelog.records
    ] == [(b"a", 1, 10), (b"b", 2, 11), (b"a", 3, 12), (b"b", None, 13)]


def test_cached_and_uncached_tables_read_alike(open_task: OpenTask) -> None:
    """Objects in the cache, bytes in the cache, and bytes in the store give the same results."""
    for caching in (False, True):
        for serde in (LONG, JSON):
            builder = KeyValueStoreBuilder("s", "rocksdb", STRING, serde, True, caching)
            stores = open_task(builder)
            table = stores.table("s")
            table.write_many([b"a", b"b", b"c"], [1, 2, 3], [1, 2, 3])
            flush_caches(stores, lambda name, changes: None)
            table.write_many([b"b", b"c"], [None, 4], [4, 5])
            if table.cache is not None:
                table.cache.load(b"c")
            assert table.read_many([b"c", b"b", b"a", b"x"]) == [(4, 5), None, (1, 1), None]
            stores.mark_corrupted()
            stores.close(clean=False)


def test_private_copies_of_mutable_values(open_task: OpenTask) -> None:
    """A value that is changed in place is not shared; an immutable value needs no copy."""
    table = open_task(KeyValueStoreBuilder("s", "in_memory", STRING, JSON, True)).table("s")
    shared = {"n": [1]}
    mine = table.private_copy(shared)
    mine["n"].append(2)
    assert shared == {"n": [1]}
    assert not table.immutable
    assert table.decode(table.encode(None)) is None


def test_stores_creates_builders() -> None:
    """Suppliers and builders of the public API. Options return changed copies."""
    supplier = Stores.persistent_key_value("counts")
    assert supplier == KeyValueStoreSupplier("counts", "rocksdb")
    assert Stores.in_memory_key_value("m").kind == "in_memory"
    plain = Stores.key_value_builder(supplier, STRING, LONG)
    assert (plain.name, plain.timestamped, plain.caching, plain.logging) == (
        "counts",
        False,
        False,
        True,
    )
    timestamped: KeyValueStoreBuilder = Stores.timestamped_key_value_builder(supplier).with_caching(
        True
    )
    assert timestamped.timestamped
    assert timestamped.caching
    logged = timestamped.with_logging({"retention.ms": "5"})
    assert (logged.logging, logged.topic_config) == (True, {"retention.ms": "5"})
    unlogged = logged.with_logging(False)
    assert (unlogged.logging, unlogged.topic_config) == (False, {})
    assert plain.changelog_config() == {
        "cleanup.policy": "compact",
        "message.timestamp.type": "CreateTime",
    }
    assert not plain.caching
    assert pickle.loads(pickle.dumps(unlogged)) == unlogged


def test_builder_defaults_come_from_the_config() -> None:
    """Kind and serdes. If there is no serde, the error names the missing one."""

    def config_of(value: Serde[Any] | None) -> StreamsConfig:
        return StreamsConfig(
            application_id="app",
            bootstrap_servers="localhost:9092",
            default_key_serde=STRING,
            default_value_serde=value,
            default_dsl_store="in_memory",
        )

    builder = KeyValueStoreBuilder("s")
    with pytest.raises(ConfigError, match="no serde for its values"):
        builder.resolved(config_of(None))
    config = config_of(LONG)
    resolved = builder.resolved(config)
    assert (resolved.kind, resolved.key_serde, resolved.value_serde) == ("in_memory", STRING, LONG)
    assert KeyValueStoreBuilder("s", "rocksdb", JSON, JSON).resolved(config).kind == "rocksdb"


@pytest.mark.parametrize("name", ["", "a/b", ".checkpoint", ".."])
def test_invalid_store_names_are_rejected(name: str) -> None:
    """The store's directory and changelog are named after it."""
    with pytest.raises(ConfigError, match="is not a valid store name"):
        KeyValueStoreBuilder(name)


def test_unknown_store_kinds_are_rejected() -> None:
    """The error lists the valid ones."""
    with pytest.raises(ConfigError, match="rocksdb, in_memory"):
        KeyValueStoreBuilder("s", "leveldb")  # type: ignore[arg-type]
