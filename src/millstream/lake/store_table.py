"""A store as a table: which topic tells its content, and what its columns are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from millstream.config import StreamsConfig
from millstream.errors import ConfigError
from millstream.query.stores import KnownStores
from millstream.serdes import Serde
from millstream.state.builders.key_value import KeyValueStoreBuilder
from millstream.state.builders.store_builder import StoreBuilder
from millstream.state.builders.versioned import VersionedStoreBuilder
from millstream.state.builders.windows import SessionStoreBuilder, WindowStoreBuilder
from millstream.state.queries.codec import Shape
from millstream.state.windows.window_keys import SESSIONS, WINDOWS
from millstream.topology.operations.tables import TableSource
from millstream.topology.physical.nodes import GlobalStoreNodes
from millstream.topology.physical.topology import Topology

#: What a store can be.
SHAPES: Final[tuple[Shape, ...]] = ("key-value", "window", "session", "versioned")


@dataclass(frozen=True)
class Times:
    """The times of a store, in milliseconds, as far as its kind has them.

    Args:
        window_size_ms: how long the windows of a window store are.
        reach_ms: how far behind the latest time a window's start or a session's end may lie.
        history_ms: how far back the versions of a versioned store are kept.
        segment_ms: the length of the intervals in which its versions expire together.
    """

    window_size_ms: int = 0
    reach_ms: int = 0
    history_ms: int = 0
    segment_ms: int = 1


@dataclass(frozen=True)
class StoreTable:
    """A store as a table.

    Args:
        store: its name.
        topic: its changelog; the topic itself of a global table, and of a table that reuses it.
        shape: what it is.
        key: the serde of its keys.
        value: the serde of its values.
        times: what decides how long it shows what it has.
        timestamped: whether its owners know the timestamps of values.
    """

    store: str
    topic: str
    shape: Shape
    key: Serde[Any]
    value: Serde[Any]
    times: Times = Times()
    timestamped: bool = False

    @property
    def suffix_bytes(self) -> int:
        """What follows a key in the keys of the changelog."""
        layouts = {"window": WINDOWS.suffix_bytes, "session": SESSIONS.suffix_bytes}
        return layouts.get(self.shape, 0)


def reach_of(retention_ms: int, *, last_millisecond: bool = False) -> int:
    """How far behind the latest time a store still shows what it has.

    Args:
        retention_ms: of the store.
        last_millisecond: whether it counts as well, as in stores on disk of windows that are
            ordered by time.
    """
    return retention_ms if last_millisecond else retention_ms - 1


def table_of(topology: Topology, config: StreamsConfig, store: str) -> StoreTable:
    """A store of a topology as a table.

    Raises:
        UnknownStateStoreError: the topology has no such store.
        ConfigError: nothing but the store itself tells its content, or it takes no queries.
    """
    known = KnownStores(topology, config).find(store)
    if known.codec is None:
        raise ConfigError(
            f"Store {store} belongs to an operator of the DSL, which keeps there what has no keys "
            "and values of its own: it cannot be read as a DataFrame. Read the table that the "
            "operator makes."
        )
    return StoreTable(
        store,
        known.codec.topic,
        known.codec.shape,
        known.codec.key_serde,
        known.codec.value_serde,
        _times_of(_builder_of(topology, store).resolved(config)),
        known.codec.timestamped,
    )


def check_is_logged(topology: Topology, store: str) -> None:
    """Refuse a store whose content no topic tells.

    Raises:
        ConfigError: it is such a store.
    """
    builder = _builder_of(topology, store)
    if isinstance(builder, KeyValueStoreBuilder) and builder.kind == "lru" and builder.timestamped:
        raise ConfigError(
            f"Store {store} forgets keys without telling its changelog, as stores with timestamps "
            "that hold a number of keys do. Read it with source='owners'."
        )
    nodes = topology.global_stores.get(store)
    if nodes is not None:
        if not _is_copied(nodes):
            raise ConfigError(
                f"Store {store} is global, and a processor of your own fills it: its topic "
                f"{nodes.topic} does not tell what it put there. Read it with source='owners'."
            )
        return
    if any(store in part.changelogs for part in topology._subtopologies()):
        return
    raise ConfigError(
        f"Store {store} has no changelog, since logging is off for it: no topic tells its content. "
        "Read it with source='owners', in the driver of the running application, or switch logging "
        "on."
    )


def _is_copied(nodes: GlobalStoreNodes) -> bool:
    """Whether a global store holds what its topic says, and nothing else."""
    return isinstance(nodes.processor.operation, TableSource)


def _builder_of(topology: Topology, store: str) -> StoreBuilder:
    nodes = topology.global_stores.get(store)
    return topology.state_stores[store] if nodes is None else nodes.store_builder


def _times_of(builder: StoreBuilder) -> Times:
    if isinstance(builder, WindowStoreBuilder):
        by_time = builder.time_ordered and builder.persistent
        return Times(
            window_size_ms=builder.window_size_ms,
            reach_ms=reach_of(builder.retention_ms, last_millisecond=by_time),
        )
    if isinstance(builder, SessionStoreBuilder):
        return Times(reach_ms=reach_of(builder.retention_ms))
    if isinstance(builder, VersionedStoreBuilder):
        return Times(history_ms=builder.history_ms, segment_ms=builder.segment_ms)
    return Times()
