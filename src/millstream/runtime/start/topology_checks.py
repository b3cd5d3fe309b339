"""Checks of the topology, its serdes and the settings before startup."""

from __future__ import annotations

import logging
from typing import Any, Literal

from millstream.config.streams_config import StreamsConfig
from millstream.config.validation import optimizations
from millstream.errors import ConfigError, TopologyError
from millstream.serdes import Serde
from millstream.serdes._serde import WrapperSerde
from millstream.state.builders.store_builder import StoreBuilder
from millstream.state.storage.rocksdb import rocksdb_tuning
from millstream.topology.physical.nodes import ProcessorNode, SinkNode, SourceNode
from millstream.topology.physical.topology import Topology

logger = logging.getLogger(__name__)


def check_topology(topology: Topology, config: StreamsConfig) -> None:
    """Check that a topology can run with these settings.

    Raises:
        TopologyError: the topology reads no topic, not even a global one.
        ConfigError: a serde is missing, or settings do not fit the topology.
    """
    check_build_settings(topology, config)
    rocksdb_tuning(config)
    sources = [node for node in topology.nodes.values() if isinstance(node, SourceNode)]
    if not sources and not topology.global_stores:
        raise TopologyError(
            "The topology reads no topic. Start with builder.stream(...) or topology.add_source()."
        )
    _check_dead_letters(topology, config)
    _check_histories(topology, config)
    ends = [node for node in topology.nodes.values() if not isinstance(node, ProcessorNode)]
    for node in (*ends, *(store.source for store in topology.global_stores.values())):
        required_serde(node, "key", config)
        required_serde(node, "value", config)
    _check_stores(topology, config)


def check_build_settings(topology: Topology, config: StreamsConfig) -> None:
    """Check that a topology was built with these settings.

    Raises:
        TopologyError: names were generated where explicit ones are required.
        ConfigError: the topology was built with other optimizations.
        TypeError: an argument has the wrong type.
    """
    if not isinstance(topology, Topology):
        raise TypeError(
            f"The topology must be a Topology, but got {topology!r}. A StreamsBuilder returns one "
            "from build()."
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
            "a topology is built: pass the same value to "
            f"StreamsBuilder(optimize={config.topology_optimization!r}), or remove the setting."
        )


def _check_dead_letters(topology: Topology, config: StreamsConfig) -> None:
    """Check that no source reads the dead-letter topic.

    Follows Kafka Streams (KIP-1034). A failed record would fail again, endlessly.
    """
    letters = config.errors_dead_letter_queue_topic_name
    for node in topology.nodes.values():
        if letters is not None and isinstance(node, SourceNode) and node.reads(letters):
            raise ConfigError(
                f"errors_dead_letter_queue_topic_name is '{letters}', which source '{node.name}' "
                "of the same topology reads. Use a separate topic for the queue, and read it with "
                "another application."
            )


def _check_histories(topology: Topology, config: StreamsConfig) -> None:
    for history in topology.lake_histories.values():
        if history.then is not None and config.max_task_idle_ms < 0:
            raise ConfigError(
                f"max_task_idle_ms is {config.max_task_idle_ms}, so tasks would not wait for "
                f"the history {history.name!r} before they read {history.then!r}. Set "
                "max_task_idle_ms to 0 or more.",
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


def required_serde(
    node: SourceNode | SinkNode, what: Literal["key", "value"], config: StreamsConfig
) -> Serde[Any]:
    """Return the serde of a source or sink: its own, or the configured default.

    Raises ConfigError if there is neither.
    """
    if what == "key":
        serde, default = node.key_serde, config.default_key_serde
    else:
        serde, default = node.value_serde, config.default_value_serde
    if default is not None and not isinstance(default, Serde):
        raise ConfigError(
            f"default_{what}_serde is {default!r}, but must be a Serde, such as "
            "millstream.serdes.STRING."
        )
    found = serde or default
    if isinstance(found, WrapperSerde) and found.inner is None:
        found = None if default is None else found.with_inner(default)
    if found is None:
        where = f" The node was declared at {node.declared_at}." if node.declared_at else ""
        raise ConfigError(
            f"There is no {what} serde: none was passed where the records are read, written or "
            f"repartitioned, and default_{what}_serde is not set. Pass {what}=... to that "
            f"operation (for example {what}=millstream.serdes.STRING), or set the default.{where}",
            node=node.name,
            topic=_topic(node),
        )
    return found


def _topic(node: SourceNode | SinkNode) -> str | None:
    if isinstance(node, SourceNode):
        return node.topics[0] if node.topics else None
    return node.topic if isinstance(node.topic, str) else None
