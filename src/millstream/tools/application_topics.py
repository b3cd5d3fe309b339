"""The topics of an application: roles, partition counts, cluster state."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from millstream.assignment.internal_topics import changelog_counts, repartition_counts, tasks_of
from millstream.assignment.topic_metadata import TopologyTopics
from millstream.config.streams_config import StreamsConfig
from millstream.errors import TaskAssignmentError
from millstream.record import TopicPartition
from millstream.runtime.start.topology_topics import topology_topics
from millstream.topology.physical.topology import Topology

INPUT: Final = "input"
OUTPUT: Final = "output"
GLOBAL: Final = "global"
DEAD_LETTERS: Final = "dead letters"
REPARTITION: Final = "repartition"
CHANGELOG: Final = "changelog"

#: The roles of topics that the application creates itself.
INTERNAL: Final = frozenset({REPARTITION, CHANGELOG})


class TopicUse(NamedTuple):
    name: str
    #: More than one, for example, for a topic that is both written and read.
    roles: tuple[str, ...]
    subtopologies: tuple[int, ...]
    #: None if the topic does not exist or was not looked up.
    partitions: int | None = None
    #: The required number of partitions; None if any number will do.
    needed: int | None = None

    @property
    def is_internal(self) -> bool:
        """Whether the application creates the topic."""
        return bool(INTERNAL.intersection(self.roles))

    def problem(self) -> str | None:
        """Return the problem with the topic on the cluster, or None."""
        if self.partitions is None:
            return None if self.is_internal else "missing"
        if self.needed is not None and self.needed != self.partitions:
            return f"needs {self.needed} partitions"
        return None


def topics_of(
    topology: Topology, config: StreamsConfig, counts: Mapping[str, int] | None = None
) -> list[TopicUse]:
    """Return the topics of an application by sub-topology, internal topics last.

    `counts` is None if the cluster was not queried. Raises CopartitionError if joined topics have
    different partition counts.
    """
    topics = topology_topics(topology, config)
    roles: dict[str, dict[str, None]] = {}
    users: dict[str, dict[int, None]] = {}

    def use(name: str, role: str, subtopology: int | None) -> None:
        roles.setdefault(name, {})[role] = None
        numbers = users.setdefault(name, {})
        if subtopology is not None:
            numbers[subtopology] = None

    internal = topics.repartition_topics
    for group in topics.groups:
        for topic in group.source_topics:
            use(topic, REPARTITION if topic in internal else INPUT, group.subtopology_id)
        for topic in group.sink_topics:
            use(topic, REPARTITION if topic in internal else OUTPUT, group.subtopology_id)
        for topic, spec in group.changelog_topics.items():
            if not spec.is_source_topic:
                use(topic, CHANGELOG, group.subtopology_id)
    for store in topology.global_stores.values():
        use(store.topic, GLOBAL, None)
    if config.errors_dead_letter_queue_topic_name is not None:
        use(config.errors_dead_letter_queue_topic_name, DEAD_LETTERS, None)
    needed = _needed(topics, counts or {})
    uses = [
        TopicUse(name, tuple(roles[name]), tuple(users[name]), (counts or {}).get(name), number)
        for name, number in ((name, needed.get(name)) for name in roles)
    ]
    return sorted(uses, key=lambda each: each.is_internal)


def all_partitions(counts: Mapping[str, int]) -> list[TopicPartition]:
    """Return the partitions of topics, by their partition counts."""
    return [TopicPartition(topic, n) for topic, count in counts.items() for n in range(count)]


def patterns_of(topology: Topology) -> list[str]:
    return [
        pattern.pattern for part in topology._subtopologies() for pattern in part.source_patterns
    ]


def partitions_to_create(
    topology: Topology,
    config: StreamsConfig,
    missing: Iterable[TopicUse],
    counts: Mapping[str, int],
) -> dict[str, int]:
    """Return the partition counts for missing topics without a specified number.

    Each is the count of the co-partitioned topics, or else of the largest input, or else 1.
    """
    topics = topology_topics(topology, config)
    inputs = [counts[topic] for topic in topics.external_source_topics if topic in counts]
    largest = max(inputs, default=1)
    chosen: dict[str, int] = {}
    for use in missing:
        group = next((each for each in topics.copartition_groups if use.name in each), frozenset())
        beside = [counts[topic] for topic in group if topic in counts]
        beside += [
            spec.partitions
            for topic, spec in topics.repartition_topics.items()
            if topic in group and spec.partitions is not None
        ]
        chosen[use.name] = max(beside, default=largest)
    return chosen


def _needed(topics: TopologyTopics, counts: Mapping[str, int]) -> dict[str, int]:
    """Return the partition counts of internal topics, as far as they can be computed."""
    specs = topics.repartition_topics
    fixed = {name: spec.partitions for name, spec in specs.items() if spec.partitions is not None}
    if not counts or topics.external_source_topics - counts.keys():
        return fixed
    try:
        return internal_counts(topics, counts)
    except TaskAssignmentError:
        return fixed  # patterns that match nothing yet


def internal_counts(topics: TopologyTopics, counts: Mapping[str, int]) -> dict[str, int]:
    """Compute the partition counts of the internal topics from those of the inputs.

    Raises CopartitionError if joined topics have different partition counts; TaskAssignmentError if
    an input does not exist.
    """
    resolved = repartition_counts(topics, counts)
    tasks = tasks_of(topics.groups, {**counts, **resolved})
    changelogs = changelog_counts(topics.groups, tasks)
    return {**resolved, **{name: count for name, (count, _) in changelogs.items()}}


def topic_settings(topology: Topology, topic: str) -> dict[str, str]:
    """Return the settings for creating a missing input or output.

    Topics of tables are compacted: with the default policy, Kafka deletes rows that have
    not been written for a week, and an application that starts later would miss them.
    """
    return {"cleanup.policy": "compact"} if topic in topology._compacted_topics() else {}


def read_topics(
    topology: Topology, config: StreamsConfig, matching: Callable[[re.Pattern[str]], Iterable[str]]
) -> list[str]:
    """Return the topics that the group reads, including repartition topics.

    Global topics are excluded.
    """
    topics = topology_topics(topology, config)
    named = {topic for group in topics.groups for topic in group.source_topics}
    patterns = [pattern for group in topics.groups for pattern in group.source_patterns]
    return sorted(named.union(*(matching(pattern) for pattern in patterns)))
