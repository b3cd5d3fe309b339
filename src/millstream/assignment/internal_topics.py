"""How many partitions repartition topics and changelogs have, and which are to be created.

Source of the semantics: Kafka Streams' `RepartitionTopics`, `CopartitionedTopicsEnforcer`,
`ChangelogTopics` and `InternalTopicManager`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.assignment.topics import NewTopic, TopicGroup, TopologyTopics
from millstream.errors import CopartitionError, TaskAssignmentError, TopologyError
from millstream.record import TaskId


def missing_source_topics(topics: TopologyTopics, counts: Mapping[str, int]) -> list[str]:
    """The topics that the application reads, does not create itself, and that do not exist.

    Args:
        topics: the topology's.
        counts: partition counts of the topics that exist.
    """
    return sorted(topics.external_source_topics - counts.keys())


def repartition_counts(topics: TopologyTopics, counts: Mapping[str, int]) -> dict[str, int]:
    """The partition count that each repartition topic is to have.

    That is what the user asked for, else that of the topics it is joined with, else the largest
    count among the source topics of the sub-topologies that write to it.

    Args:
        topics: the topology's, all its external source topics existing.
        counts: partition counts of the topics that exist. Those of repartition topics are not
            looked at: whether an existing one is right is what `topics_to_create` finds out.

    Raises:
        CopartitionError: topics that are read side by side have different counts.
        TaskAssignmentError: the count of a topic follows from nothing.
    """
    specs = topics.repartition_topics
    external = {topic: count for topic, count in counts.items() if topic not in specs}
    resolved = {name: spec.partitions for name, spec in specs.items() if spec.partitions}
    writers = (*topics.groups, *topics.passages)
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
    """Give every wanted topic the largest count among its writers' sources.

    A source may itself be a repartition topic without a count yet, so this goes on in rounds, of
    which each resolves at least one topic.
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
        ready = {topic: ups for topic, ups in upstream.items() if ups and ups <= known.keys()}
        if not ready:
            # A cycle: what is known of it decides, as Kafka Streams does.
            ready = {topic: ups & known.keys() for topic, ups in upstream.items()}
            ready = {topic: ups for topic, ups in ready.items() if ups}
        if not ready:
            raise TaskAssignmentError(
                f"The number of partitions of the repartition topics {sorted(upstream)} is not "
                "set and cannot be worked out: the sub-topologies that write to them read no "
                "topic that exists. Create the input topics; where a pattern is subscribed to, at "
                "least one topic must match it."
            )
        for topic, ups in ready.items():
            resolved[topic] = max(known[source] for source in ups)


def _copartitioned_count(
    group: frozenset[str],
    topics: TopologyTopics,
    external: Mapping[str, int],
    resolved: Mapping[str, int],
) -> int:
    """The one count that the topics of a group which are read side by side are to have."""
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
        most = max(given.values())
        remedy = (
            f"Call repartition(partitions={most}) on the streams of the topics with fewer "
            "partitions, or read one side as a global table."
        )
    elif given:
        remedy = (
            "Leave the partitions= of repartition() out, then it takes the count of the topics "
            "it is joined with."
        )
    else:
        remedy = "Give the same number to each repartition(partitions=...)."
    return CopartitionError(
        f"Cannot join by key: {', '.join(listed)} partitions. A join reads the same partition "
        f"number of every topic, so their counts must be equal. {remedy}",
        declared_at=joined_at,
    )


def changelog_counts(
    groups: Iterable[TopicGroup], tasks: Iterable[TaskId]
) -> dict[str, tuple[int, Mapping[str, str]]]:
    """The partition count and the config of each changelog that is a topic of its own.

    A changelog has a partition for each task of its sub-topology. Sub-topologies without tasks
    have no changelogs yet.
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
    """The internal topics that do not exist yet.

    Args:
        expected: the partition count and the config of every internal topic, by name.
        counts: partition counts of the topics that exist.

    Raises:
        TopologyError: a topic exists with another partition count.
    """
    for name, (partitions, _) in sorted(expected.items()):
        actual = counts.get(name, partitions)
        if actual != partitions:
            raise TopologyError(
                f"Internal topic {name!r} exists with a wrong number of partitions: expected "
                f"{partitions}, actual {actual}. Probably an input topic was given more "
                "partitions, or the topology changed, after the application had run. Reset the "
                "application, or recreate the topic, whose contents are lost by that.",
                topic=name,
            )
    return [
        NewTopic(name, partitions, config)
        for name, (partitions, config) in sorted(expected.items())
        if name not in counts
    ]
