"""Describes stores as tables, with topics, serdes and times.

Also plans how to read the tables.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from millstream.config.streams_config import StreamsConfig
from millstream.errors import ConfigError
from millstream.query.store_catalog import StoreCatalog
from millstream.serdes import Serde
from millstream.spark.code.shipping import ship
from millstream.state.builders.store_builder import KeyValueStoreBuilder, StoreBuilder
from millstream.state.builders.versioned_builders import VersionedStoreBuilder
from millstream.state.builders.window_builders import SessionStoreBuilder, WindowStoreBuilder
from millstream.state.queries.codec import StoreShape
from millstream.state.windows.window_keys import SESSIONS, WINDOWS
from millstream.topology.operations.tables import TableSource
from millstream.topology.physical.topology import Topology

#: The kinds of stores.
SHAPES: Final[tuple[StoreShape, ...]] = ("key-value", "window", "session", "versioned")


@dataclass(frozen=True)
class StoreTimes:
    """The time settings of a store, in milliseconds.

    The store's kind determines which settings apply.
    """

    window_size_ms: int = 0
    #: The maximum time by which a window's start or a session's end may precede stream time.
    lookback_ms: int = 0
    #: The history retention of a versioned store.
    history_ms: int = 0
    #: The segment interval of a versioned store. The versions of a segment expire together.
    segment_ms: int = 1


@dataclass(frozen=True)
class StoreTable:
    store: str
    #: The changelog topic, or the source topic of a global table or of a table that uses its source
    #: topic as its changelog.
    topic: str
    shape: StoreShape
    key: Serde[Any]
    value: Serde[Any]
    times: StoreTimes = StoreTimes()
    #: Whether the store contains the timestamps of values.
    timestamped: bool = False

    @property
    def suffix_bytes(self) -> int:
        """The number of bytes that follow the key in the changelog's keys."""
        layouts = {"window": WINDOWS.suffix_bytes, "session": SESSIONS.suffix_bytes}
        return layouts.get(self.shape, 0)


def lookback_of(retention_ms: int, *, last_millisecond: bool = False) -> int:
    """Return the maximum time by which a store's entries precede stream time.

    With `last_millisecond`, the bound is inclusive, as in persistent time-ordered window stores.
    """
    return retention_ms if last_millisecond else retention_ms - 1


def table_of(topology: Topology, config: StreamsConfig, store: str) -> StoreTable:
    """Describe a store of a topology as a table.

    Raises an `UnknownStateStoreError`, or a `ConfigError` if the store does not support queries.
    """
    codec = StoreCatalog(topology, config).find(store).codec
    if codec is None:
        raise ConfigError(
            f"Store {store} is internal to a DSL operator, and its entries are not keys and values "
            "of the topology, so it cannot be read as a DataFrame. Read the table that the "
            "operator creates."
        )
    return StoreTable(
        store,
        codec.topic,
        codec.shape,
        codec.key_serde,
        codec.value_serde,
        _times_of(_builder_of(topology, store).resolved(config)),
        codec.timestamped,
    )


def check_is_logged(topology: Topology, store: str) -> None:
    """Raise a `ConfigError` if no topic contains the complete content of a store."""
    builder = _builder_of(topology, store)
    if isinstance(builder, KeyValueStoreBuilder) and builder.kind == "lru" and builder.timestamped:
        raise ConfigError(
            f"Store {store} evicts keys without deleting them from its changelog, as LRU stores "
            "with timestamps do. Read it with source='owners'."
        )
    nodes = topology.global_stores.get(store)
    if nodes is not None:
        # A custom processor may change the topic's records before it stores them.
        if not isinstance(nodes.processor.operation, TableSource):
            raise ConfigError(
                f"Store {store} is global, and a custom processor fills it, so its content may "
                f"differ from its topic {nodes.topic}. Read it with source='owners'."
            )
        return
    if any(store in part.changelogs for part in topology._subtopologies()):
        return
    raise ConfigError(
        f"Store {store} has no changelog, because logging is disabled for it. Read it with "
        "source='owners' in the driver of the running application, or enable logging."
    )


def _builder_of(topology: Topology, store: str) -> StoreBuilder:
    nodes = topology.global_stores.get(store)
    return topology.state_stores[store] if nodes is None else nodes.store_builder


def _times_of(builder: StoreBuilder) -> StoreTimes:
    if isinstance(builder, WindowStoreBuilder):
        by_time = builder.time_ordered and builder.persistent
        return StoreTimes(
            window_size_ms=builder.window_size_ms,
            lookback_ms=lookback_of(builder.retention_ms, last_millisecond=by_time),
        )
    if isinstance(builder, SessionStoreBuilder):
        return StoreTimes(lookback_ms=lookback_of(builder.retention_ms))
    if isinstance(builder, VersionedStoreBuilder):
        return StoreTimes(history_ms=builder.history_ms, segment_ms=builder.segment_ms)
    return StoreTimes()


#: The default memory limit of a task for the stored records of a partition.
DEFAULT_MEMORY_BYTES: Final = 512 * 1024 * 1024


@dataclass(frozen=True)
class ReadPlan:
    config: StreamsConfig
    table: StoreTable
    #: The unparsed position of a snapshot; None for the end of the changelog.
    position: str | None = None
    as_of_ms: int | None = None
    history: bool = False
    #: Whether the topic is partitioned by Kafka's default partitioner.
    is_partitioned: bool = True
    #: The start of a stream of changes: "earliest", "latest", or a position.
    starting_offsets: str = "earliest"
    memory_bytes: int = DEFAULT_MEMORY_BYTES

    def __post_init__(self) -> None:
        table = self.table
        if table.shape != "versioned" and (self.as_of_ms is not None or self.history):
            what = "history" if self.history else "as_of"
            raise ConfigError(
                f"Store {table.store} is a {table.shape} store, which has no versions, but {what} "
                "is only for versioned stores. To read earlier content, pass the position of an "
                "earlier snapshot."
            )
        if self.history and self.as_of_ms is not None:
            raise ConfigError("Pass as_of for one time, or history for all versions, not both.")


@contextmanager
def plan_file(plan: ReadPlan) -> Iterator[str]:
    """Write a plan to a temporary file for Spark's planner, and return its path.

    Options, including passwords, would be visible in the query's plan, in the Spark UI and in event
    logs. Only this user can read the file.
    """
    data = ship(plan, "the plan of a DataFrame")
    with tempfile.TemporaryDirectory(prefix="millstream-") as folder:
        path = Path(folder, "plan")
        with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        yield str(path)


def load_plan(path: str) -> ReadPlan:
    plan: ReadPlan = pickle.loads(Path(path).read_bytes())
    return plan
