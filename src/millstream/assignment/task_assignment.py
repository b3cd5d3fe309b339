"""Decodes a member's assignment: its tasks and the time of the next rebalance.

Source of the semantics: Kafka Streams' `StreamsPartitionAssignor.onAssignment`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from millstream.assignment.wire_format import (
    LATEST_VERSION,
    NO_REBALANCE_MS,
    REBALANCE_NOW_MS,
    AssignmentInfo,
    AssignorError,
    HostInfo,
    HostPartitions,
)
from millstream.errors import MissingSourceTopicError, TaskAssignmentError
from millstream.record import TaskId, TopicPartition


@dataclass(frozen=True, slots=True)
class TaskAssignment:
    """The tasks of one stream thread."""

    active: Mapping[TaskId, frozenset[TopicPartition]] = field(default_factory=dict)
    standby: Mapping[TaskId, frozenset[TopicPartition]] = field(default_factory=dict)
    #: The source partitions of all active tasks of the application, by host.
    partitions_by_host: HostPartitions = field(default_factory=dict)
    standby_partitions_by_host: HostPartitions = field(default_factory=dict)
    #: The leader's error. Unless it is NONE, no tasks are assigned, and the standby tasks are only
    #: used by `check_same_topology`.
    error: AssignorError = AssignorError.NONE
    #: When to request another rebalance, in milliseconds since the epoch; 0 for immediately, None
    #: for never, which also cancels a previous request.
    next_rebalance_ms: int | None = None
    #: The version for the next subscriptions.
    subscription_version: int = LATEST_VERSION
    #: With SHUTDOWN_REQUESTED, the members that requested it, if the leader reports them.
    requested_by: tuple[str, ...] = ()

    @property
    def shutdown_requested(self) -> bool:
        return self.error == AssignorError.SHUTDOWN_REQUESTED

    def raise_for_error(self) -> None:
        """Raise the leader's error. A shutdown request is not an error.

        Raises MissingSourceTopicError if a source topic does not exist; TaskAssignmentError if the
        leader could not compute an assignment.
        """
        if self.error == AssignorError.INCOMPLETE_SOURCE_TOPIC_METADATA:
            raise MissingSourceTopicError(
                "A topic that the application reads does not exist; the log of the group's leader "
                "names the topic. Create source topics before the application starts."
            )
        if self.error not in (AssignorError.NONE, AssignorError.SHUTDOWN_REQUESTED):
            raise TaskAssignmentError(
                f"The group's leader could not assign the tasks ({self.error.name}). See the log "
                "of the leader for the reason."
            )


def decode_assignment(
    partitions: Iterable[TopicPartition],
    user_data: bytes,
    *,
    end_point: str = "",
    subscription_version: int = LATEST_VERSION,
) -> TaskAssignment:
    """Decode an assignment.

    `partitions` are all partitions assigned to this member, not only the new ones. `end_point` and
    `subscription_version` are those of the subscription that was sent. Raises TaskAssignmentError
    if the bytes are invalid, do not match the partitions, or have an unexpected version.
    """
    info = AssignmentInfo.decode(user_data)
    if info.error_code != AssignorError.NONE:
        return TaskAssignment(
            standby=info.standby_tasks,
            error=_error_of(info.error_code),
            subscription_version=subscription_version,
            requested_by=tuple(sorted(host.host for host in info.partitions_by_host)),
        )
    if info.version > subscription_version or info.common_version > LATEST_VERSION:
        raise TaskAssignmentError(
            f"This member sent a subscription of version {subscription_version} but got an "
            f"assignment of version {info.version} (all members support {info.common_version}; "
            f"the newest supported here is {LATEST_VERSION}). The leader runs an incompatible "
            "version."
        )
    next_version = _next_subscription_version(info, subscription_version)
    return TaskAssignment(
        active=_pair_up(sorted(partitions), info.active_tasks),
        standby=info.standby_tasks,
        partitions_by_host=info.partitions_by_host,
        standby_partitions_by_host=info.standby_partitions_by_host,
        next_rebalance_ms=_next_rebalance_ms(
            info, end_point, changes_version=next_version != subscription_version
        ),
        subscription_version=next_version,
    )


def _pair_up(
    partitions: list[TopicPartition], task_ids: tuple[TaskId, ...]
) -> dict[TaskId, frozenset[TopicPartition]]:
    """Return the partitions of each task.

    A partition belongs to the task with the same index.
    """
    if len(partitions) != len(task_ids):
        raise TaskAssignmentError(
            f"The group's leader assigned {len(partitions)} partitions but tasks for "
            f"{len(task_ids)}. The group id is probably used by another kind of application."
        )
    tasks: dict[TaskId, set[TopicPartition]] = {}
    for partition, task_id in zip(partitions, task_ids, strict=True):
        tasks.setdefault(task_id, set()).add(partition)
    return {task_id: frozenset(tps) for task_id, tps in sorted(tasks.items())}


def _next_subscription_version(info: AssignmentInfo, subscription_version: int) -> int:
    """Return the version that all members support.

    It decreases if an older member joins, and increases after all members have been upgraded.
    """
    if info.common_version > subscription_version or info.version < subscription_version:
        return info.common_version
    return subscription_version


def _next_rebalance_ms(
    info: AssignmentInfo, end_point: str, *, changes_version: bool
) -> int | None:
    host = HostInfo.parse(end_point)
    if changes_version or (host is not None and host not in info.partitions_by_host):
        # Without another rebalance, the other members would not receive the new version or address.
        return REBALANCE_NOW_MS
    return None if info.next_rebalance_ms == NO_REBALANCE_MS else info.next_rebalance_ms


def _error_of(code: int) -> AssignorError:
    try:
        return AssignorError(code)
    except ValueError:
        return AssignorError.ASSIGNMENT_ERROR
