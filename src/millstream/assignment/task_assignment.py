"""A member's part of a rebalance: reading which tasks it owns, and when to rebalance again.

Source of the semantics: Kafka Streams' `StreamsPartitionAssignor.onAssignment`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from millstream.assignment.wire.assignment_info import AssignmentInfo, HostInfo, HostPartitions
from millstream.assignment.wire.protocol import (
    LATEST_VERSION,
    NO_REBALANCE_MS,
    REBALANCE_NOW_MS,
    AssignorError,
)
from millstream.errors import MissingSourceTopicError, TaskAssignmentError
from millstream.record import TaskId, TopicPartition


@dataclass(frozen=True, slots=True)
class TaskAssignment:
    """The tasks of one stream thread.

    Args:
        active: the tasks it works on, and the source partitions of each.
        standby: the tasks it keeps a copy of the state of, and the source partitions of each.
        partitions_by_host: where the active tasks of the whole application are, by the partitions
            they read.
        standby_partitions_by_host: the same of the standby tasks.
        error: what the leader reports; with any but NONE nothing is assigned, and what stands
            among the standby tasks is for `check_same_topology`.
        next_rebalance_ms: when to ask for another rebalance, in milliseconds since the epoch; 0 for
            at once, None for not at all, which also cancels what was asked for before.
        subscription_version: the version of the subscription to send from now on.
        asked_by: with SHUTDOWN_REQUESTED, the members that asked, if the leader tells.
    """

    active: Mapping[TaskId, frozenset[TopicPartition]] = field(default_factory=dict)
    standby: Mapping[TaskId, frozenset[TopicPartition]] = field(default_factory=dict)
    partitions_by_host: HostPartitions = field(default_factory=dict)
    standby_partitions_by_host: HostPartitions = field(default_factory=dict)
    error: AssignorError = AssignorError.NONE
    next_rebalance_ms: int | None = None
    subscription_version: int = LATEST_VERSION
    asked_by: tuple[str, ...] = ()

    @property
    def shutdown_requested(self) -> bool:
        """Whether a member asked that every process of the application shuts down."""
        return self.error == AssignorError.SHUTDOWN_REQUESTED

    def raise_for_error(self) -> None:
        """Raise what the leader reports. A request to shut down is not an error.

        Raises:
            MissingSourceTopicError: a topic that the application reads does not exist.
            TaskAssignmentError: the leader could not make an assignment.
        """
        if self.error == AssignorError.INCOMPLETE_SOURCE_TOPIC_METADATA:
            raise MissingSourceTopicError(
                "A topic that the application reads does not exist; the log of the thread that "
                "leads the group names it. Create source topics before the application is started."
            )
        if self.error not in (AssignorError.NONE, AssignorError.SHUTDOWN_REQUESTED):
            raise TaskAssignmentError(
                "The thread that leads the group could not assign the tasks "
                f"({self.error.name}); its log tells why."
            )


def decode_assignment(
    partitions: Iterable[TopicPartition],
    user_data: bytes,
    *,
    end_point: str = "",
    subscription_version: int = LATEST_VERSION,
) -> TaskAssignment:
    """Read an assignment.

    Args:
        partitions: the partitions assigned to this member: all of them, not the new ones only.
        user_data: the leader's bytes.
        end_point: this process' `application.server`, as sent in the subscription.
        subscription_version: the version of the subscription that was sent.

    Raises:
        TaskAssignmentError: the bytes cannot be read, do not fit the partitions, or are of a
            version that was not asked for.
    """
    info = AssignmentInfo.decode(user_data)
    if info.error_code != AssignorError.NONE:
        return TaskAssignment(
            standby=info.standby_tasks,
            error=_error_of(info.error_code),
            subscription_version=subscription_version,
            asked_by=tuple(sorted(host.host for host in info.partitions_by_host)),
        )
    _check_versions(info, subscription_version)
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
    """The partitions of each task: the first partition is the first task's, and so on."""
    if len(partitions) != len(task_ids):
        raise TaskAssignmentError(
            f"The group's leader assigned {len(partitions)} partitions but tasks for "
            f"{len(task_ids)}. Probably another kind of application uses the same group id."
        )
    tasks: dict[TaskId, set[TopicPartition]] = {}
    for partition, task_id in zip(partitions, task_ids, strict=True):
        tasks.setdefault(task_id, set()).add(partition)
    return {task_id: frozenset(tps) for task_id, tps in sorted(tasks.items())}


def _check_versions(info: AssignmentInfo, subscription_version: int) -> None:
    if info.version > subscription_version or info.common_version > LATEST_VERSION:
        raise TaskAssignmentError(
            f"This member sent a subscription of version {subscription_version} but got an "
            f"assignment of version {info.version} (all understand {info.common_version}; the "
            f"newest known here is {LATEST_VERSION}). The leader runs an incompatible version."
        )


def _next_subscription_version(info: AssignmentInfo, subscription_version: int) -> int:
    """Down to what an older member understands, or up again once the last one is upgraded."""
    if info.common_version > subscription_version or info.version < subscription_version:
        return info.common_version
    return subscription_version


def _next_rebalance_ms(
    info: AssignmentInfo, end_point: str, *, changes_version: bool
) -> int | None:
    if changes_version or not _is_announced(end_point, info):
        return REBALANCE_NOW_MS
    return None if info.next_rebalance_ms == NO_REBALANCE_MS else info.next_rebalance_ms


def _is_announced(end_point: str, info: AssignmentInfo) -> bool:
    """Whether the others were told of this process' address, if it has one."""
    host = HostInfo.parse(end_point)
    return host is None or host in info.partitions_by_host


def _error_of(code: int) -> AssignorError:
    try:
        return AssignorError(code)
    except ValueError:
        return AssignorError.ASSIGNMENT_ERROR
