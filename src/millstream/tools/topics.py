"""The topics of an application: what each is to it, how many partitions it is to have, and what
the cluster has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from millstream.assignment.internal_topics import changelog_counts, repartition_counts
from millstream.assignment.partitions import tasks_of
from millstream.assignment.topics import TopologyTopics
from millstream.config import StreamsConfig
from millstream.errors import TaskAssignmentError
from millstream.runtime.topology_topics import topology_topics
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
    """A topic of an application.

    Args:
        name: on the cluster.
        roles: what it is to the application: input, output, global, repartition, changelog, dead
            letters; several for a topic that is written and read, say.
        subtopologies: the numbers of those that use it.
        partitions: how many it has; None if it is not there, or nobody asked.
        needed: how many it must have; None where any number will do.
    """

    name: str
    roles: tuple[str, ...]
    subtopologies: tuple[int, ...]
    partitions: int | None = None
    needed: int | None = None

    @property
    def is_internal(self) -> bool:
        """Whether the application creates it itself."""
        return bool(INTERNAL.intersection(self.roles))

    def problem(self) -> str | None:
        """What is wrong with it on a cluster that was asked."""
        if self.partitions is None:
            return None if self.is_internal else "missing"
        if self.needed is not None and self.needed != self.partitions:
            return f"needs {self.needed} partitions"
        return None


def topics_of(
    topology: Topology, config: StreamsConfig, counts: Mapping[str, int] | None = None
) -> list[TopicUse]:
    """The topics of an application, in the order of its sub-topologies, internal ones last.

    Args:
        topology: what it computes.
        config: its settings.
        counts: the partition counts of the topics that exist; None if nobody asked.

    Raises:
        CopartitionError: topics that are joined have different partition counts.
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


def patterns_of(topology: Topology) -> list[str]:
    """The patterns by which it reads further topics."""
    return [
        pattern.pattern for part in topology._subtopologies() for pattern in part.source_patterns
    ]


def partitions_to_create(
    topology: Topology,
    config: StreamsConfig,
    missing: Iterable[TopicUse],
    counts: Mapping[str, int],
) -> dict[str, int]:
    """How many partitions each missing topic gets that nobody gave a number for.

    As many as what it is joined with, else as many as the largest input, else 1.
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
    """The partition counts of the internal topics, as far as they follow from what is there."""
    specs = topics.repartition_topics
    fixed = {name: spec.partitions for name, spec in specs.items() if spec.partitions is not None}
    if not counts or topics.external_source_topics - counts.keys():
        return fixed
    try:
        return internal_counts(topics, counts)
    except TaskAssignmentError:
        return fixed  # Patterns that match nothing yet.


def internal_counts(topics: TopologyTopics, counts: Mapping[str, int]) -> dict[str, int]:
    """How many partitions each internal topic needs by those of the inputs.

    Raises:
        CopartitionError: topics that are joined have different partition counts.
        TaskAssignmentError: an input is not there.
    """
    resolved = repartition_counts(topics, counts)
    tasks = tasks_of(topics.groups, {**counts, **resolved})
    changelogs = changelog_counts(topics.groups, tasks)
    return {**resolved, **{name: count for name, (count, _) in changelogs.items()}}


def topic_settings(topology: Topology, topic: str) -> dict[str, str]:
    """The settings with which a missing input or output is created.

    The topic of a table is compacted: under the default policy Kafka deletes rows that were not
    written for a week, and an application that starts later misses them.
    """
    return {"cleanup.policy": "compact"} if topic in topology._compacted_topics() else {}


def read_topics(
    topology: Topology,
    config: StreamsConfig,
    matching: Callable[[re.Pattern[str]], Iterable[str]],
) -> list[str]:
    """What the application's group reads: all but global topics, repartition topics included.

    Args:
        topology: what it computes.
        config: its settings.
        matching: the topics of the cluster that match a pattern.
    """
    topics = topology_topics(topology, config)
    named = {topic for group in topics.groups for topic in group.source_topics}
    patterns = [pattern for group in topics.groups for pattern in group.source_patterns]
    return sorted(named.union(*(matching(pattern) for pattern in patterns)))
