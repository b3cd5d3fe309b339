"""Stores of an application at hand as DataFrames: what `KafkaStreams.dataframe` does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Final

from millstream.config import StreamsConfig
from millstream.errors import ConfigError
from millstream.lake.options import time_ms_of
from millstream.lake.owners import owned_rows
from millstream.lake.plan import ReadPlan
from millstream.lake.reading import load
from millstream.lake.store_table import check_is_logged, table_of
from millstream.query.state_queries import StateQueries
from millstream.query.stores import KnownStores
from millstream.topology.physical.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SOURCES: Final = ("changelog", "owners")


def store_dataframe(
    session: Callable[[], SparkSession],
    topology: Topology,
    config: StreamsConfig,
    store: str,
    queries: Callable[[], StateQueries],
    *,
    source: str,
    position: str | None,
    as_of: datetime | None,
    history: bool,
) -> DataFrame:
    """A snapshot of a store; see `KafkaStreams.dataframe`."""
    if source not in _SOURCES:
        raise ConfigError(f"source is {source!r}, and can be {' or '.join(map(repr, _SOURCES))}.")
    KnownStores(topology, config).find(store)
    table = table_of(topology, config, store)
    if source == "owners":
        if position is not None or as_of is not None or history:
            raise ConfigError(
                "source='owners' shows a store as it is now: position, as_of and history are read "
                "from the changelog. Leave out source."
            )
        is_global = store in topology.global_stores
        return owned_rows(session(), table, queries(), is_global=is_global)
    check_is_logged(topology, store)
    plan = ReadPlan(
        config,
        table,
        position=position,
        as_of_ms=None if as_of is None else time_ms_of(as_of),
        history=history,
        # Nobody needs to have written the topic of a global table by its keys.
        is_partitioned=store not in topology.global_stores,
    )
    return load(session(), plan)


def changes_dataframe(
    session: Callable[[], SparkSession],
    topology: Topology,
    config: StreamsConfig,
    store: str,
    starting_offsets: str,
) -> DataFrame:
    """A streaming DataFrame of a store's changes; see `KafkaStreams.changes_dataframe`."""
    KnownStores(topology, config).find(store)
    table = table_of(topology, config, store)
    check_is_logged(topology, store)
    plan = ReadPlan(config, table, starting_offsets=starting_offsets)
    return load(session(), plan, stream=True)
