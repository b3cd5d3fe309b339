"""What can be known to go wrong before anything is started."""

from __future__ import annotations

import logging

from millstream.config import StreamsConfig
from millstream.errors import ConfigError, TopologyError
from millstream.runtime.build_task import required_serde
from millstream.topology.nodes import ProcessorNode, SinkNode, SourceNode
from millstream.topology.topology import Topology

logger = logging.getLogger(__name__)

#: Settings that are known but not acted upon yet, where acting otherwise than asked would be wrong.
_REFUSED = (
    "production_exception_handler",
    "errors_dead_letter_queue_topic_name",
    "processor_wrapper_class",
    "rocksdb_config_setter",
    "task_assignor_class",
)
#: The same, where an application is still right, only less available or less measured.
_IGNORED = (
    "num_standby_replicas",
    "acceptable_recovery_lag",
    "max_warmup_replicas",
    "probing_rebalance_interval_ms",
    "rack_aware_assignment_strategy",
    "rack_aware_assignment_tags",
    "metrics_recording_level",
    "topology_optimization",
)


def check_topology(topology: Topology, config: StreamsConfig) -> None:
    """See that a topology can be run with these settings.

    Raises:
        TopologyError: it reads nothing.
        ConfigError: a serde is missing, or a setting is not supported yet.
    """
    _check_supported(config)
    if config.ensure_explicit_internal_resource_naming:
        topology.check_explicit_names()
    sources = [node for node in topology.nodes.values() if isinstance(node, SourceNode)]
    if not sources:
        raise TopologyError(
            "The topology reads no topic. Begin with builder.stream(...) or topology.add_source()."
        )
    for node in topology.nodes.values():
        if not isinstance(node, ProcessorNode):
            _check_serdes(node, config)
    for builder in topology.state_stores.values():
        builder.resolved(config)


def _check_supported(config: StreamsConfig) -> None:
    if config.exactly_once:
        raise ConfigError(
            "processing_guarantee='exactly_once_v2' is not supported yet. Use 'at_least_once', "
            "the default, with consumers of the results that tolerate repeated records."
        )
    for name in _REFUSED:
        if name in config.given:
            raise ConfigError(
                f"The setting {name} is not supported yet. Remove it; docs/differences.md tells "
                "what takes its place."
            )
    ignored = [name for name in _IGNORED if name in config.given]
    if ignored:
        logger.warning("these settings have no effect yet: %s", ", ".join(ignored))


def _check_serdes(node: SourceNode | SinkNode, config: StreamsConfig) -> None:
    try:
        required_serde(node.key_serde, config.default_key_serde, "key", node.name)
        required_serde(node.value_serde, config.default_value_serde, "value", node.name)
    except ConfigError as error:
        if node.declared_at:
            error.message = f"{error.message} The node was declared at {node.declared_at}."
        raise
