"""Detects members that run a different topology under the same application id.

Kafka Streams requires the same topology in all instances, but does not check this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from millstream.assignment.task_assignment import TaskAssignment
from millstream.assignment.topic_metadata import TopologyTopics
from millstream.assignment.wire_format import AssignmentInfo, AssignorError
from millstream.errors import TopologyError
from millstream.record import TaskId, TopicPartition


def mismatched_members(
    topics: TopologyTopics, subscribed: Mapping[str, Collection[str]]
) -> dict[str, str]:
    """Return the members whose topics differ from the leader's, and the differences.

    If a source has a topic pattern, no member is rejected: each member resolves the pattern itself,
    and not always at the same time. `subscribed` maps the id of each member to its topics.
    """
    if any(group.source_patterns for group in topics.groups):
        return {}
    ours = {topic for group in topics.groups for topic in group.source_topics}
    return {
        name: describe_difference(theirs, ours)
        for name, theirs in subscribed.items()
        if theirs and set(theirs) != ours
    }


def encode_mismatch(topics: TopologyTopics, version: int) -> bytes:
    """Encode an assignment with an error and the leader's source topics."""
    return AssignmentInfo(
        error_code=AssignorError.ASSIGNMENT_ERROR,
        # Members that do not expect standby tasks with an error only read the error.
        standby_tasks={
            TaskId(group.subtopology_id, 0): frozenset(
                TopicPartition(topic, 0) for topic in group.source_topics
            )
            for group in topics.groups
        },
        version=version,
    ).encode()


def check_same_topology(
    topics: TopologyTopics, assignment: TaskAssignment, application_id: str
) -> None:
    """Check that an assignment matches the topology of this instance.

    Raises TopologyError if the leader has a different topology.
    """
    assigned = {**assignment.active, **assignment.standby}
    sources = {
        group.subtopology_id: (set(group.source_topics), group.source_patterns)
        for group in topics.groups
    }
    if assignment.error is AssignorError.NONE:
        unknown = sorted(
            f"{partition} as task {task_id}"
            for task_id, partitions in assigned.items()
            for partition in partitions
            if task_id.subtopology not in sources
            or not (
                partition.topic in sources[task_id.subtopology][0]
                or any(each.fullmatch(partition.topic) for each in sources[task_id.subtopology][1])
            )
        )
        if not unknown:
            return
        why = (
            f"the leader assigns {', '.join(unknown[:3])}, which the topology of this instance "
            "does not contain"
        )
    elif assignment.error is AssignorError.ASSIGNMENT_ERROR and assigned:
        theirs = {partition.topic for partitions in assigned.values() for partition in partitions}
        why = describe_difference(
            theirs, {topic for own_topics, _ in sources.values() for topic in own_topics}
        )
    else:
        return
    raise TopologyError(
        f"Other instances run a different topology under the application id {application_id!r}: "
        f"{why}. "
        "Use a separate application_id for this program; or, if this is a new version of the same "
        "application, close all instances of the old version before starting the new one."
    )


def describe_difference(theirs: Iterable[str], ours: Iterable[str]) -> str:
    only_theirs, only_ours = sorted({*theirs} - {*ours}), sorted({*ours} - {*theirs})
    parts = [
        f"{reader} {', '.join(map(repr, topics))}"
        for reader, topics in (
            ("only they read", only_theirs),
            ("only this instance reads", only_ours),
        )
        if topics
    ]
    return " and ".join(parts) or "they read the same topics in different sub-topologies"
