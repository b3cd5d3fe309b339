"""The topics of a topology under their real names.

The assignor and the clients use them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from millstream.assignment.topic_metadata import (
    ChangelogSpec,
    RepartitionSpec,
    TopicGroup,
    TopologyTopics,
)
from millstream.config.streams_config import StreamsConfig
from millstream.config.validation import default_offset_reset
from millstream.runtime.task_management.start_offsets import ResetPolicy
from millstream.state.builders.store_builder import StoreBuilder
from millstream.state.builders.window_builders import changelog_retention
from millstream.topology.options.lake import LakeHistory
from millstream.topology.physical.dataframe_stage import DataFrameStage
from millstream.topology.physical.internal_topic_configs import RepartitionTopic, decorated
from millstream.topology.physical.nodes import SourceNode
from millstream.topology.physical.subtopology import SubTopology
from millstream.topology.physical.topology import Topology


def topology_topics(topology: Topology, config: StreamsConfig) -> TopologyTopics:
    """Return the assignor's topics by sub-topology, with co-partitioned groups."""
    parts = topology._subtopologies()
    names = {
        topic: part.decorate(topic, config.application_id)
        for part in parts
        for topic in (*part.source_topics, *part.sink_topics)
    }
    joined = {
        frozenset(names[topic] for topic in group): topology._copartitioned.joined_at(group)
        for group in topology._copartitioned.groups()
    }
    return TopologyTopics(
        groups=tuple(_group(part, config) for part in parts),
        copartition_groups=tuple(joined),
        joined_at=joined,
        pattern_joins=tuple(
            join._replace(topics=frozenset(names[topic] for topic in join.topics))
            for join in topology._copartitioned.pattern_joins()
        ),
        stage_groups=(
            *(_stage_group(stage, config) for stage in topology.dataframe_stages.values()),
            *(_history_group(history, config) for history in topology.lake_histories.values()),
        ),
    )


def has_tasks(topology: Topology) -> bool:
    """Return whether the topology has tasks, that is, reads non-global topics."""
    return bool(topology._subtopologies())


def repartition_topics(topology: Topology, config: StreamsConfig) -> frozenset[str]:
    return frozenset(
        part.decorate(topic, config.application_id)
        for part in topology._subtopologies()
        for topic in part.repartition_topics
    )


def changelog_settings(builder: StoreBuilder, config: StreamsConfig) -> dict[str, str]:
    """Return the topic settings for the changelog of a store, by Kafka's names."""
    kept = changelog_retention(builder, config.windowstore_changelog_additional_retention_ms)
    defaults = _topic_settings(config)
    return {**builder.changelog_config(), **defaults, **kept, **builder.topic_config}


def subscription(
    topology: Topology, config: StreamsConfig
) -> tuple[list[str] | None, re.Pattern[str] | None]:
    """Return the group member's subscription: topics, or one pattern for all."""
    parts = topology._subtopologies()
    topics = sorted(
        {
            part.decorate(topic, config.application_id)
            for part in parts
            for topic in part.source_topics
        }
    )
    patterns = [pattern for part in parts for pattern in part.source_patterns]
    if not patterns:
        return topics, None
    alternatives = [re.escape(topic) for topic in topics]
    alternatives += [f"(?:{pattern.pattern})" for pattern in patterns]
    return None, re.compile("|".join(alternatives))


def reset_policy(topology: Topology, config: StreamsConfig) -> Callable[[str], ResetPolicy]:
    """Return a function from topics to their offset reset policies.

    Repartition topics are read from their beginning, because none of their records has been
    processed if no offset is committed.
    """
    chosen = "auto.offset.reset" in config.client_settings("main_consumer")
    default = ResetPolicy(default_offset_reset(config), chosen)
    by_name = dict.fromkeys(
        repartition_topics(topology, config), ResetPolicy("earliest", explicit=False)
    )
    by_pattern: list[tuple[re.Pattern[str], ResetPolicy]] = []
    for part in topology._subtopologies():
        for node in part.nodes:
            if not isinstance(node, SourceNode) or node.offset_reset is None:
                continue
            policy = ResetPolicy(node.offset_reset, explicit=True)
            if node.pattern is not None:
                by_pattern.append((node.pattern, policy))
            for topic in node.topics:
                by_name[part.decorate(topic, config.application_id)] = policy

    def policy_of(topic: str) -> ResetPolicy:
        if topic in by_name:
            return by_name[topic]
        matching = (policy for pattern, policy in by_pattern if pattern.fullmatch(topic))
        return next(matching, default)

    return policy_of


def _group(part: SubTopology, config: StreamsConfig) -> TopicGroup:
    def real(topic: str) -> str:
        return part.decorate(topic, config.application_id)

    defaults = _topic_settings(config)
    repartition = {
        real(name): RepartitionSpec(topic.partitions, {**topic.config(), **defaults})
        for name, topic in part.repartition_topics.items()
    }
    changelogs = {}
    for store, topic in part.changelogs.items():
        builder = part.stores[store]
        is_source_topic = topic in part.source_topics
        changelogs[real(topic)] = ChangelogSpec(
            changelog_settings(builder, config), is_source_topic
        )
    return TopicGroup(
        subtopology_id=part.id,
        source_topics=tuple(map(real, part.source_topics)),
        sink_topics=tuple(map(real, part.sink_topics)),
        repartition_source_topics=repartition,
        changelog_topics=changelogs,
        source_patterns=part.source_patterns,
    )


def _stage_group(stage: DataFrameStage, config: StreamsConfig) -> TopicGroup:
    """Return the topics of a DataFrame function.

    Outputs are partitioned like the input.
    """
    source, *sinks = (
        decorated(topic, config.application_id)
        for topic in (stage.input_topic, stage.output_topic)
        if topic is not None
    )
    settings = RepartitionTopic(stage.input_topic).config(_topic_settings(config))
    return TopicGroup(
        subtopology_id=-1,
        source_topics=(source,),
        sink_topics=tuple(sinks),
        repartition_source_topics={source: RepartitionSpec(None, settings)},
    )


def _history_group(history: LakeHistory, config: StreamsConfig) -> TopicGroup:
    """Return the topics of a history.

    The history's own topic is partitioned like the topic that is read after it.
    """
    return TopicGroup(
        subtopology_id=-1,
        source_topics=() if history.then is None else (history.then,),
        sink_topics=(decorated(history.topic, config.application_id),),
    )


def _topic_settings(config: StreamsConfig) -> dict[str, str]:
    return {name: str(value) for name, value in config.topic.items()}
