"""The members of a rebalance, grouped by process.

Follows Kafka Streams: a *client* is a process; its consumers are its threads.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.assignment.placement.task_lags import TaskLags
from millstream.assignment.task_assignor import ProcessState, process_order
from millstream.assignment.wire_format import (
    LATEST_OFFSET,
    LATEST_VERSION,
    AssignorError,
    HostInfo,
    SubscriptionInfo,
)
from millstream.errors import TaskAssignmentError
from millstream.kafka.membership.member_assignor import MemberSubscription
from millstream.record import TaskId, TopicPartition

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ClientMetadata:
    """A process and its threads."""

    #: Only the version numbers can be read for members with a newer wire format. As in Kafka
    #: Streams, all such members count as one process.
    process_id: uuid.UUID
    host: HostInfo | None
    client_tags: Mapping[str, str]
    #: The member ids of the threads, sorted.
    consumers: list[str] = field(default_factory=list)
    owner_of: dict[TopicPartition, str] = field(default_factory=dict)
    offset_sums: dict[str, Mapping[TaskId, int]] = field(default_factory=dict)
    #: The `client.rack` of each thread; None for a thread without one.
    racks: set[str | None] = field(default_factory=set)

    @property
    def rack(self) -> str | None:
        """The common rack of all threads; None if they differ."""
        return next(iter(self.racks)) if len(self.racks) == 1 else None

    def state(
        self, task_of: Mapping[TopicPartition, TaskId], ends: Mapping[TaskId, int] | None = None
    ) -> ProcessState:
        """Return the state of the process for a task assignor.

        `ends` contains the sum of the changelogs' end offsets of every stateful task.
        """
        reported: dict[TaskId, int] = {}
        for sums in self.offset_sums.values():
            for task_id, total in sums.items():
                # The value for a running task takes precedence, or else the largest sum.
                known = reported.get(task_id, 0)
                if total == LATEST_OFFSET or known == LATEST_OFFSET:
                    reported[task_id] = LATEST_OFFSET
                else:
                    reported[task_id] = total if total > known else known
        active = {task_of[tp] for tp in self.owner_of if tp in task_of}
        active.update(task_id for task_id, total in reported.items() if total == LATEST_OFFSET)
        return ProcessState(
            threads=len(self.consumers),
            previous_active=frozenset(active),
            previous_standby=frozenset(reported.keys() - active),
            client_tags=self.client_tags,
            lags=TaskLags(reported, ends or {}),
            rack=self.rack,
        )

    def previous_tasks(self, task_of: Mapping[TopicPartition, TaskId]) -> dict[str, list[TaskId]]:
        """Return the tasks that each thread owned or has state for, the owned ones first.

        All threads report the state on their shared disk, but a task owned by one of them is only
        returned for that thread.
        """
        ranks: dict[str, dict[TaskId, int]] = {
            name: {task_id: int(total != LATEST_OFFSET) for task_id, total in sums.items()}
            for name, sums in self.offset_sums.items()
        }
        for partition, name in self.owner_of.items():
            if partition in task_of:
                ranks[name][task_of[partition]] = 0
        owned = {tid for rank_of in ranks.values() for tid, rank in rank_of.items() if rank == 0}
        return {
            name: [
                task_id
                for rank, task_id in sorted((rank, tid) for tid, rank in rank_of.items())
                if rank == 0 or task_id not in owned
            ]
            for name, rank_of in ranks.items()
        }


@dataclass(frozen=True, slots=True)
class GroupMembers:
    #: Ordered by process id.
    clients: tuple[ClientMetadata, ...]
    #: Every partition that a member owns and has not released.
    owned: frozenset[TopicPartition]
    topics: frozenset[str]
    #: The newest version of the wire format that every member can read.
    version: int
    #: The newest version that all members support.
    common_version: int
    #: The members that requested a shutdown of all instances.
    shutdown_requested: tuple[str, ...]
    #: The approximate size of all subscriptions.
    subscription_bytes: int


def decode_members(members: Mapping[str, MemberSubscription]) -> GroupMembers:
    """Decode the subscriptions of the members.

    Raises TaskAssignmentError if the bytes of a member cannot be read.
    """
    infos = {name: _read(name, members[name]) for name in sorted(members)}
    clients: dict[uuid.UUID, ClientMetadata] = {}
    owned: set[TopicPartition] = set()
    for name, info in infos.items():
        client = clients.get(info.process_id)
        if client is None:
            host = HostInfo.parse(info.end_point)
            client = clients[info.process_id] = ClientMetadata(
                info.process_id, host, info.client_tags
            )
        client.consumers.append(name)
        client.offset_sums[name] = info.task_offset_sums
        client.racks.add(members[name].rack_id or None)
        for partition in members[name].owned_partitions:
            if partition in owned:
                log.warning(
                    "%s is owned by two members of the group, one of them %s", partition, name
                )
            client.owner_of[partition] = name
            owned.add(partition)
    return GroupMembers(
        clients=tuple(clients[process_id] for process_id in sorted(clients, key=process_order)),
        owned=frozenset(owned),
        topics=frozenset(topic for member in members.values() for topic in member.topics),
        version=min((info.version for info in infos.values()), default=LATEST_VERSION),
        common_version=min(
            (info.latest_version for info in infos.values()), default=LATEST_VERSION
        ),
        shutdown_requested=tuple(
            name
            for name, info in sorted(infos.items())
            if info.error_code == AssignorError.SHUTDOWN_REQUESTED
        ),
        subscription_bytes=sum(
            len(member.user_data) + 4 * len(member.owned_partitions) for member in members.values()
        ),
    )


def _read(name: str, member: MemberSubscription) -> SubscriptionInfo:
    try:
        info = SubscriptionInfo.decode(member.user_data)
        HostInfo.parse(info.end_point)
    except TaskAssignmentError as error:
        raise TaskAssignmentError(f"{error.message} (member {name})") from error
    if info.is_future:
        log.info(
            "member %s sent a subscription of version %d; it will rejoin with version %d",
            name,
            info.version,
            LATEST_VERSION,
        )
    return info
