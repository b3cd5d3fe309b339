"""What can be known to go wrong before anything is started."""

from __future__ import annotations

import logging

from millstream.config import StreamsConfig
from millstream.config_optimization import optimizations
from millstream.errors import ConfigError, TopologyError
from millstream.runtime.rocksdb_tuning import rocksdb_tuning
from millstream.runtime.task.required_serde import required_serde
from millstream.state.builders.store_builder import StoreBuilder
from millstream.topology.physical.nodes import ProcessorNode, SourceNode
from millstream.topology.physical.topology import Topology

logger = logging.getLogger(__name__)


def check_topology(topology: Topology, config: StreamsConfig) -> None:
    """See that a topology can be run with these settings.

    Raises:
        TopologyError: it reads nothing, not even a global topic.
        ConfigError: a serde is missing, or settings do not fit the topology.
    """
    check_building(topology, config)
    rocksdb_tuning(config)
    sources = [node for node in topology.nodes.values() if isinstance(node, SourceNode)]
    if not sources and not topology.global_stores:
        raise TopologyError(
            "The topology reads no topic. Begin with builder.stream(...) or topology.add_source()."
        )
    _check_dead_letters(topology, config)
    _check_histories(topology, config)
    ends = [node for node in topology.nodes.values() if not isinstance(node, ProcessorNode)]
    for node in (*ends, *(store.source for store in topology.global_stores.values())):
        required_serde(node, "key", config)
        required_serde(node, "value", config)
    _check_stores(topology, config)


def check_building(topology: Topology, config: StreamsConfig) -> None:
    """See that a topology was built as these settings ask for.

    Raises:
        TopologyError: names were generated where explicit ones are demanded.
        ConfigError: other optimizations were applied than the settings name.
        TypeError: it is no topology, or these are no settings.
    """
    if not isinstance(topology, Topology):
        raise TypeError(
            f"What is run is a Topology, but this is {topology!r}. A StreamsBuilder gives one by "
            "build()."
        )
    if not isinstance(config, StreamsConfig):
        raise TypeError(f"The settings must be a StreamsConfig, but got {config!r}.")
    if config.ensure_explicit_internal_resource_naming:
        topology.check_explicit_names()
    applied = topology.optimizations
    if applied is None or "topology_optimization" not in config.given:
        return
    if optimizations(config.topology_optimization) != applied:
        raise ConfigError(
            f"topology_optimization is {config.topology_optimization!r}, but the topology was "
            f"built with {', '.join(sorted(applied)) or 'none'}. Optimizations are applied when "
            "a topology is built: give the same to "
            f"StreamsBuilder(optimize={config.topology_optimization!r}), or remove the setting."
        )


def _check_dead_letters(topology: Topology, config: StreamsConfig) -> None:
    """Follows Kafka Streams (KIP-1034): what failed once would fail again, without an end."""
    letters = config.errors_dead_letter_queue_topic_name
    for node in topology.nodes.values():
        if letters is not None and isinstance(node, SourceNode) and node.reads(letters):
            raise ConfigError(
                f"errors_dead_letter_queue_topic_name is '{letters}', which source '{node.name}' "
                "of the same topology reads. Give the queue a topic of its own, and another "
                "application to read it."
            )


def _check_histories(topology: Topology, config: StreamsConfig) -> None:
    for history in topology.lake_histories.values():
        if history.then is not None and config.max_task_idle_ms < 0:
            raise ConfigError(
                f"max_task_idle_ms is {config.max_task_idle_ms}, so that tasks would not wait for "
                f"the history {history.name!r} before they read {history.then!r}. Set it to 0 or "
                "more.",
                declared_at=history.declared_at or None,
            )


def _check_stores(topology: Topology, config: StreamsConfig) -> None:
    nodes = [node for node in topology.nodes.values() if isinstance(node, ProcessorNode)]
    for name, builder in topology.state_stores.items():
        users = [node for node in nodes if name in node.stores]
        _check_store(builder, config, users[0] if users else None)
    for store in topology.global_stores.values():
        _check_store(store.store_builder, config, store.processor)


def _check_store(builder: StoreBuilder, config: StreamsConfig, user: ProcessorNode | None) -> None:
    try:
        builder.resolved(config)
    except ConfigError as error:
        if user is not None:
            error.node = user.name
            if user.declared_at:
                error.message += f" The node was declared at {user.declared_at}."
        raise
