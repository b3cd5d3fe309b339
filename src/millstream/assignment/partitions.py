"""From source topics to tasks: which partitions each task reads.

Source of the semantics: Kafka Streams' `PartitionGrouper`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.assignment.topics import TopicGroup
from millstream.errors import TaskAssignmentError
from millstream.record import TaskId, TopicPartition


def tasks_of(
    groups: Iterable[TopicGroup], counts: Mapping[str, int]
) -> dict[TaskId, frozenset[TopicPartition]]:
    """The source partitions of every task, in the order of the task ids.

    A sub-topology has as many tasks as its source topic with most partitions. A task reads its
    partition number of every source topic that has one of that number.

    Args:
        groups: the topics of the sub-topologies.
        counts: the partition count of every source topic.

    Raises:
        TaskAssignmentError: the count of a source topic is not known, or two tasks read one
            partition.
    """
    tasks: dict[TaskId, frozenset[TopicPartition]] = {}
    reader_of: dict[str, int] = {}
    for group in sorted(groups, key=lambda group: group.subtopology_id):
        for topic in group.source_topics:
            if topic not in counts:
                raise TaskAssignmentError(
                    f"The partition count of source topic {topic!r} is not known. "
                    "Probably the topic was deleted a moment ago.",
                    topic=topic,
                )
            if reader_of.setdefault(topic, group.subtopology_id) != group.subtopology_id:
                raise TaskAssignmentError(
                    f"Topic {topic!r} is read by sub-topologies {reader_of[topic]} and "
                    f"{group.subtopology_id}, but a topic can be read by one source only.",
                    topic=topic,
                )
        most = max((counts[topic] for topic in group.source_topics), default=0)
        for partition in range(most):
            tasks[TaskId(group.subtopology_id, partition)] = frozenset(
                TopicPartition(topic, partition)
                for topic in group.source_topics
                if partition < counts[topic]
            )
    return tasks
