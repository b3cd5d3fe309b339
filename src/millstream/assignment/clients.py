"""The members of a rebalance, gathered by the process that their threads belong to.

Follows Kafka Streams: a *client* is a process; its consumers are its threads.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from millstream.assignment.placing.lags import TaskLags
from millstream.assignment.task_assignor import ProcessState, process_order
from millstream.assignment.wire.assignment_info import HostInfo
from millstream.assignment.wire.protocol import LATEST_OFFSET, LATEST_VERSION, AssignorError
from millstream.assignment.wire.subscription_info import SubscriptionInfo
from millstream.errors import TaskAssignmentError
from millstream.record import TaskId, TopicPartition

log = logging.getLogger(__name__)


class ConsumerSubscription(Protocol):
    """What one member brought into the rebalance."""

    @property
    def topics(self) -> Sequence[str]: ...

    @property
    def user_data(self) -> bytes: ...

    @property
    def owned_partitions(self) -> Sequence[TopicPartition]: ...

    @property
    def rack_id(self) -> str | None: ...


@dataclass(slots=True)
class Client:
    """A process and its threads.

    Args:
        process_id: all members newer than us, of which nothing but the version can be read, count
            as one process, as in Kafka Streams.
        host: its `application.server`, if it has one.
        client_tags: its `client.tag.*` settings.
        consumers: the member ids of its threads, sorted.
        owner_of: which of its threads owns a partition.
        offset_sums: what each thread reported of its tasks.
        racks: the `client.rack` of each thread; None for one without.
    """

    process_id: uuid.UUID
    host: HostInfo | None
    client_tags: Mapping[str, str]
    consumers: list[str] = field(default_factory=list)
    owner_of: dict[TopicPartition, str] = field(default_factory=dict)
    offset_sums: dict[str, Mapping[TaskId, int]] = field(default_factory=dict)
    racks: set[str | None] = field(default_factory=set)

    @property
    def rack(self) -> str | None:
        """The rack that all its threads name."""
        return next(iter(self.racks)) if len(self.racks) == 1 else None

    def state(
        self, task_of: Mapping[TopicPartition, TaskId], ends: Mapping[TaskId, int] | None = None
    ) -> ProcessState:
        """The process as a task assignor sees it.

        Args:
            task_of: the task that reads a partition.
            ends: the sums of the changelogs' end offsets, of every stateful task.
        """
        reported: dict[TaskId, int] = {}
        for sums in self.offset_sums.values():
            for task_id, total in sums.items():
                # A thread that runs a task knows best; of the others the one that is furthest.
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
        """The tasks that each thread owned or has state of, the former first.

        What lies on the disk that the threads share, all of them report: a task that one of them
        owns is that one's alone.
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
class Group:
    """All members of the rebalance.

    Args:
        clients: the processes, in the order of their ids.
        owned: every partition that some member owns and has not given up.
        topics: every topic that some member subscribes to.
        version: the newest version of the bytes that every member reads.
        common_version: the newest version that all members understand.
        shutdown_requested: the members that ask that all of the application shuts down.
        told_bytes: how many bytes the members sent, about.
    """

    clients: tuple[Client, ...]
    owned: frozenset[TopicPartition]
    topics: frozenset[str]
    version: int
    common_version: int
    shutdown_requested: tuple[str, ...]
    told_bytes: int


def read_group(members: Mapping[str, ConsumerSubscription]) -> Group:
    """Read what the members brought.

    Raises:
        TaskAssignmentError: the bytes of a member cannot be read.
    """
    infos = {name: _read(name, members[name]) for name in sorted(members)}
    clients: dict[uuid.UUID, Client] = {}
    owned: set[TopicPartition] = set()
    for name, info in infos.items():
        client = clients.get(info.process_id)
        if client is None:
            host = HostInfo.parse(info.end_point)
            client = clients[info.process_id] = Client(info.process_id, host, info.client_tags)
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
    return Group(
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
        told_bytes=sum(
            len(member.user_data) + 4 * len(member.owned_partitions) for member in members.values()
        ),
    )


def _read(name: str, member: ConsumerSubscription) -> SubscriptionInfo:
    try:
        info = SubscriptionInfo.decode(member.user_data)
        HostInfo.parse(info.end_point)
    except TaskAssignmentError as error:
        raise TaskAssignmentError(f"{error.message} (member {name})") from error
    if info.is_future:
        log.info(
            "member %s sent a subscription of version %d; it will come back with version %d",
            name,
            info.version,
            LATEST_VERSION,
        )
    return info
