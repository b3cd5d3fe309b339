"""Members of the group that run another topology under the same application id.

Kafka Streams asks that all instances run the same one, and does not check it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from millstream.assignment.task_assignment import TaskAssignment
from millstream.assignment.topics import TopologyTopics
from millstream.assignment.wire.assignment_info import AssignmentInfo
from millstream.assignment.wire.protocol import AssignorError
from millstream.errors import TopologyError
from millstream.record import TaskId, TopicPartition


def strangers_among(
    topics: TopologyTopics, subscribed: Mapping[str, Collection[str]]
) -> dict[str, str]:
    """The members that subscribe to other topics than the leader, each with how they differ.

    What a pattern matches is found out by each member for itself, and not always at the same time:
    with patterns nobody is a stranger.

    Args:
        topics: of the leader's topology.
        subscribed: what each member subscribes to, by member id.
    """
    if any(group.source_patterns for group in topics.groups):
        return {}
    ours = {topic for group in topics.groups for topic in group.source_topics}
    return {
        name: difference(theirs, ours)
        for name, theirs in subscribed.items()
        if theirs and set(theirs) != ours
    }


def refusal(topics: TopologyTopics, version: int) -> bytes:
    """What the leader tells a stranger: an error, and with it what is read here."""
    return AssignmentInfo(
        error_code=AssignorError.ASSIGNMENT_ERROR,
        # Members that do not expect it look at the error alone.
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
    """See that what the leader says fits the topology that runs here.

    Raises:
        TopologyError: the leader runs another one.
    """
    told = {**assignment.active, **assignment.standby}
    read = {
        group.subtopology_id: (set(group.source_topics), group.source_patterns)
        for group in topics.groups
    }
    if assignment.error is AssignorError.NONE:
        unknown = sorted(
            f"{place} as task {task_id}"
            for task_id, places in told.items()
            for place in places
            if task_id.subtopology not in read
            or not (
                place.topic in read[task_id.subtopology][0]
                or any(each.fullmatch(place.topic) for each in read[task_id.subtopology][1])
            )
        )
        if not unknown:
            return
        why = f"it hands out {', '.join(unknown[:3])}, which does not exist here"
    elif assignment.error is AssignorError.ASSIGNMENT_ERROR and told:
        theirs = {place.topic for places in told.values() for place in places}
        why = difference(theirs, {topic for sources, _ in read.values() for topic in sources})
    else:
        return
    raise TopologyError(
        f"Other instances run another topology under the application id {application_id!r}: {why}. "
        "Give this program an application_id of its own; or, if it is a new version of the same "
        "application, close all instances of the old one before the first of the new one starts."
    )


def difference(theirs: Iterable[str], ours: Iterable[str]) -> str:
    """In which topics two topologies differ, in words."""
    only_theirs, only_ours = sorted({*theirs} - {*ours}), sorted({*ours} - {*theirs})
    parts = [
        f"{who} read {', '.join(map(repr, topics))}"
        for who, topics in (("they alone", only_theirs), ("this one alone", only_ours))
        if topics
    ]
    return " and ".join(parts).replace("this one alone read", "this one alone reads") or (
        "they read the same topics in other sub-topologies"
    )
