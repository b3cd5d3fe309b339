"""Partition counts of internal topics, topics to create, and partitions of tasks.

Source of the semantics: Kafka Streams' `RepartitionTopics`, `CopartitionedTopicsEnforcer`,
`ChangelogTopics`, `InternalTopicManager` and `PartitionGrouper`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.assignment.topic_metadata import NewTopic, TopicGroup, TopologyTopics
from millstream.errors import CopartitionError, TaskAssignmentError, TopologyError
from millstream.record import TaskId, TopicPartition


def missing_source_topics(topics: TopologyTopics, counts: Mapping[str, int]) -> list[str]:
    return sorted(topics.external_source_topics - counts.keys())


def repartition_counts(topics: TopologyTopics, counts: Mapping[str, int]) -> dict[str, int]:
    """Return the required partition count of each repartition topic.

    The count is the user's setting, or else the count of the topics with which the topic is joined,
    or else the largest count among the source topics of the sub-topologies that write to the topic.
    All external source topics must exist. The existing counts of repartition topics are ignored
    here: `topics_to_create` checks them. Raises CopartitionError if co-partitioned topics have
    different counts; TaskAssignmentError if the count of a topic cannot be determined.
    """
    specs = topics.repartition_topics
    external = {topic: count for topic, count in counts.items() if topic not in specs}
    resolved = {name: spec.partitions for name, spec in specs.items() if spec.partitions}
    writers = (*topics.groups, *topics.stage_groups)
    _resolve_from_writers(writers, external, resolved, wanted=set(specs))
    for group in sorted(topics.copartition_groups, key=sorted):
        count = _copartitioned_count(group, topics, external, resolved)
        for topic in group & specs.keys():
            resolved[topic] = count
    return dict(sorted(resolved.items()))


def _resolve_from_writers(
    groups: Iterable[TopicGroup],
    external: Mapping[str, int],
    resolved: dict[str, int],
    wanted: set[str],
) -> None:
    """Set every wanted topic's count to the largest count among its writers' sources.

    A source may itself be a repartition topic without a count yet, so the counts are determined in
    rounds, each of which resolves at least one topic.
    """
    writers: dict[str, list[TopicGroup]] = {topic: [] for topic in wanted}
    for group in groups:
        for topic in group.sink_topics:
            if topic in writers:
                writers[topic].append(group)
    while wanted - resolved.keys():
        known = {**external, **resolved}
        upstream = {
            topic: {source for writer in writers[topic] for source in writer.source_topics}
            for topic in sorted(wanted - resolved.keys())
        }
        ready = {
            topic: sources
            for topic, sources in upstream.items()
            if sources and sources <= known.keys()
        }
        if not ready:
            # There is a cycle. As in Kafka Streams, sources without a known count are ignored.
            ready = {topic: sources & known.keys() for topic, sources in upstream.items()}
            ready = {topic: sources for topic, sources in ready.items() if sources}
        if not ready:
            raise TaskAssignmentError(
                f"The number of partitions of the repartition topics {sorted(upstream)} is not "
                "set and cannot be determined: the sub-topologies that write to them read no "
                "existing topic. Create the input topics; a subscribed pattern must match at "
                "least one topic."
            )
        for topic, sources in ready.items():
            resolved[topic] = max(known[source] for source in sources)


def _copartitioned_count(
    group: frozenset[str],
    topics: TopologyTopics,
    external: Mapping[str, int],
    resolved: Mapping[str, int],
) -> int:
    specs = topics.repartition_topics
    given = {topic: external[topic] for topic in group if topic not in specs and topic in external}
    enforced = {
        topic: spec.partitions
        for topic, spec in specs.items()
        if topic in group and spec.partitions is not None
    }
    fixed = given | enforced
    if len(set(fixed.values())) > 1:
        raise _not_copartitioned(given, enforced, topics.joined_at.get(group))
    if fixed:
        return next(iter(fixed.values()))
    return max((resolved[topic] for topic in group if topic in resolved), default=0)


def _not_copartitioned(
    given: Mapping[str, int], enforced: Mapping[str, int], joined_at: str | None
) -> CopartitionError:
    listed = [f"{topic!r} has {count}" for topic, count in sorted(given.items())]
    listed += [f"repartition topic {topic!r} {count}" for topic, count in sorted(enforced.items())]
    if len(set(given.values())) > 1:
        max_count = max(given.values())
        remedy = (
            f"Call repartition(partitions={max_count}) on the streams of the topics with fewer "
            "partitions, or read one side as a global table."
        )
    elif given:
        remedy = (
            "Omit partitions= in repartition(): the repartition topic then gets the count of the "
            "topics that it is joined with."
        )
    else:
        remedy = "Pass the same number to each repartition(partitions=...)."
    return CopartitionError(
        f"Cannot join by key: {', '.join(listed)} partitions. A join reads the same partition "
        f"number of every topic, so their counts must be equal. {remedy}",
        declared_at=joined_at,
    )


def changelog_counts(
    groups: Iterable[TopicGroup], tasks: Iterable[TaskId]
) -> dict[str, tuple[int, Mapping[str, str]]]:
    """Return the partition count and config of each changelog.

    Changelogs that are source topics are excluded. A changelog has a partition for each task of its
    sub-topology. Sub-topologies without tasks have no changelogs yet.
    """
    counts: dict[int, int] = {}
    for subtopology, partition in tasks:
        counts[subtopology] = max(counts.get(subtopology, 0), partition + 1)
    return {
        name: (counts[group.subtopology_id], spec.config)
        for group in groups
        if group.subtopology_id in counts
        for name, spec in sorted(group.changelog_topics.items())
        if not spec.is_source_topic
    }


def topics_to_create(
    expected: Mapping[str, tuple[int, Mapping[str, str]]], counts: Mapping[str, int]
) -> list[NewTopic]:
    """Return the internal topics that do not exist yet.

    Raises TopologyError if a topic exists with another partition count.
    """
    for name, (partitions, _) in sorted(expected.items()):
        actual = counts.get(name, partitions)
        if actual != partitions:
            raise TopologyError(
                f"Internal topic {name!r} exists with a wrong number of partitions: expected "
                f"{partitions}, actual {actual}. Partitions were probably added to an input "
                "topic, or the topology changed, after the application had run. Reset the "
                "application, or recreate the topic, which deletes its contents.",
                topic=name,
            )
    return [
        NewTopic(name, partitions, config)
        for name, (partitions, config) in sorted(expected.items())
        if name not in counts
    ]


def tasks_of(
    groups: Iterable[TopicGroup], counts: Mapping[str, int]
) -> dict[TaskId, frozenset[TopicPartition]]:
    """Return the source partitions of every task, ordered by task id.

    A sub-topology has as many tasks as its largest source topic has partitions. A task reads the
    partition with its own number from each source topic that has this partition.

    Raises TaskAssignmentError if the count of a source topic is unknown, or if two sub-topologies
    read the same topic.
    """
    tasks: dict[TaskId, frozenset[TopicPartition]] = {}
    reader_of: dict[str, int] = {}
    for group in sorted(groups, key=lambda group: group.subtopology_id):
        for topic in group.source_topics:
            if topic not in counts:
                raise TaskAssignmentError(
                    f"The partition count of source topic {topic!r} is not known. "
                    "The topic was probably just deleted.",
                    topic=topic,
                )
            if reader_of.setdefault(topic, group.subtopology_id) != group.subtopology_id:
                raise TaskAssignmentError(
                    f"Topic {topic!r} is read by sub-topologies {reader_of[topic]} and "
                    f"{group.subtopology_id}, but a topic can be read by only one source.",
                    topic=topic,
                )
        max_count = max((counts[topic] for topic in group.source_topics), default=0)
        for partition in range(max_count):
            tasks[TaskId(group.subtopology_id, partition)] = frozenset(
                TopicPartition(topic, partition)
                for topic in group.source_topics
                if partition < counts[topic]
            )
    return tasks
