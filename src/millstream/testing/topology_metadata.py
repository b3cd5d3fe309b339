"""Views of a test driver's topology."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from millstream.assignment.topic_metadata import TopicGroup, TopologyTopics
from millstream.config.streams_config import StreamsConfig
from millstream.runtime.start.topology_topics import topology_topics
from millstream.topology.physical.copartition import kafka_streams_groups
from millstream.topology.physical.internal_topic_configs import decorated
from millstream.topology.physical.java_order import hash_order
from millstream.topology.physical.nodes import ProcessorNode
from millstream.topology.physical.subtopology import SubTopology
from millstream.topology.physical.topology import Topology


def as_one_subtopology(topology: Topology) -> SubTopology:
    """Merge all sub-topologies into one task, as in Kafka Streams' test driver."""
    parts: Sequence[SubTopology] = topology._subtopologies()
    stores = {name: store for part in parts for name, store in part.stores.items()}
    # Caches are flushed in the order of the stores, which is the order of their nodes.
    in_order = dict.fromkeys(
        store
        for node in topology.nodes.values()
        if isinstance(node, ProcessorNode)
        for store in hash_order(node.stores)
    )
    return SubTopology(
        id=0,
        nodes=tuple(topology.nodes.values()),
        source_topics=tuple(topic for part in parts for topic in part.source_topics),
        source_patterns=tuple(pattern for part in parts for pattern in part.source_patterns),
        sink_topics=tuple(topic for part in parts for topic in part.sink_topics),
        repartition_topics={k: v for part in parts for k, v in part.repartition_topics.items()},
        stores={name: stores[name] for name in in_order},
        changelogs={k: v for part in parts for k, v in part.changelogs.items()},
        internal_topics=frozenset(t for part in parts for t in part.internal_topics),
    )


def topology_metadata(
    topology: Topology, config: StreamsConfig, matched: Collection[str] = ()
) -> dict[str, Any]:
    """Return the topics of a topology under the names on the cluster.

    Args:
        matched: the topics that match the patterns of sources.

    Returns:
        `topics`: each internal topic with its `kind` (repartition or changelog), its `config`, and
        its `partitions` if the topology fixes them. `subtopologies`: `id`, `sources`, `sinks` and
        `changelogs` of each sub-topology that reads topics. `copartition`: the groups of topics
        that must have equal partition counts.
    """
    found = topology_topics(topology, config).with_matches(matched)
    return {
        "topics": _internal_topics(found),
        "subtopologies": [_listed(group) for group in found.groups if group.source_topics],
        "copartition": sorted(
            map(sorted, kafka_streams_groups(_copartitioned_topics(topology, config, matched)))
        ),
    }


def _copartitioned_topics(
    topology: Topology, config: StreamsConfig, matched: Collection[str]
) -> list[list[str]]:
    """Return the co-partitioned topics of each join, by their names on the cluster."""
    internal, application_id = topology.internal_topics, config.application_id
    return [
        [
            decorated(topic, application_id) if topic in internal else topic
            for source in sources
            for topic in (source.topics or sorted(filter(source.reads, matched)))
        ]
        for sources in topology._copartitioned.listed_sources()
    ]


def _internal_topics(found: TopologyTopics) -> dict[str, dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {}
    for group in (*found.groups, *found.stage_groups):
        for name, repartition in group.repartition_source_topics.items():
            topics[name] = {"kind": "repartition", "config": dict(repartition.config)}
            if repartition.partitions is not None:
                topics[name]["partitions"] = repartition.partitions
        for name, changelog in group.changelog_topics.items():
            if not changelog.is_source_topic:
                topics[name] = {"kind": "changelog", "config": dict(changelog.config)}
    return topics


def _listed(group: TopicGroup) -> dict[str, Any]:
    return {
        "id": group.subtopology_id,
        "sources": sorted(group.source_topics),
        "sinks": sorted(group.sink_topics),
        "changelogs": sorted(group.changelog_topics),
    }
