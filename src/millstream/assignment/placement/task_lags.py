"""The lags of processes behind the changelogs of tasks.

Source of the semantics: Kafka Streams' `ClientState.computeTaskLags` (KIP-441).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from millstream.assignment.topic_metadata import Cluster, TopicGroup
from millstream.assignment.wire_format import LATEST_OFFSET, UNKNOWN_OFFSET_SUM
from millstream.record import TaskId, TopicPartition

#: The largest sum that a subscription can encode.
_MAX_OFFSET_SUM = 2**63 - 1


def end_offset_sums(
    groups: Iterable[TopicGroup],
    tasks: Iterable[TaskId],
    new_topics: Collection[str],
    cluster: Cluster,
) -> dict[TaskId, int]:
    """Return the sum of the end offsets of each stateful task's changelogs.

    If a source topic serves as a changelog, only its committed records are part of the state.
    `new_topics` are changelogs that were just created and are empty. Raises BrokerUnavailableError
    if the cluster did not respond in time; UnknownTopicError if a changelog was just deleted.
    """
    stateful = {group.subtopology_id: group for group in groups if group.is_stateful}
    changelogs: dict[TaskId, list[TopicPartition]] = {
        task_id: [
            TopicPartition(name, task_id.partition)
            for name in stateful[task_id.subtopology].changelog_topics
            if name not in new_topics
        ]
        for task_id in tasks
        if task_id.subtopology in stateful
    }
    reused = {
        name
        for group in stateful.values()
        for name, spec in group.changelog_topics.items()
        if spec.is_source_topic
    }
    every = {partition for partitions in changelogs.values() for partition in partitions}
    sources = {partition for partition in every if partition.topic in reused}
    ends = {**cluster.end_offsets(every - sources), **cluster.committed_offsets(sources)}
    return {
        task_id: min(_MAX_OFFSET_SUM, sum(ends.get(partition, 0) for partition in partitions))
        for task_id, partitions in changelogs.items()
    }


class TaskLags(Mapping[TaskId, int]):
    """The number of records that a process must restore for each stateful task.

    These are records of the task's changelogs. Only the lags of the tasks that the process reported
    are stored, in `reported`; the process lacks the entire state of all others. Storing a number
    for each of 10,000 tasks and 500 processes would take seconds. `ends` contains the sum of the
    end offsets of every stateful task.
    """

    __slots__ = ("ends", "reported")

    def __init__(self, reported: Mapping[TaskId, int], ends: Mapping[TaskId, int]) -> None:
        self.ends = ends
        self.reported = {
            task_id: _lag(total, ends[task_id])
            for task_id, total in reported.items()
            if task_id in ends
        }

    def __getitem__(self, task_id: TaskId) -> int:
        lag = self.reported.get(task_id)
        return self.ends[task_id] if lag is None else lag

    # Called a million times in a rebalance of 10,000 tasks; Mapping's implementation takes three
    # calls.
    def get(self, task_id: TaskId, default: Any = None) -> Any:
        lag = self.reported.get(task_id)
        return self.ends.get(task_id, default) if lag is None else lag

    def __iter__(self) -> Iterator[TaskId]:
        return iter(self.ends)

    def __len__(self) -> int:
        return len(self.ends)

    def __repr__(self) -> str:
        return f"TaskLags({dict(self)!r})"


def _lag(reported: int, end: int) -> int:
    if reported == LATEST_OFFSET:
        return LATEST_OFFSET
    if reported == UNKNOWN_OFFSET_SUM or not 0 <= reported <= end:
        # A position beyond the end belongs to a changelog that was deleted: the state is invalid.
        return end
    return end - reported
