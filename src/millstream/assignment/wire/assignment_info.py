"""What the leader tells a member about its tasks: the user data of its assignment.

The bytes are those of Kafka Streams' `AssignmentInfo`, versions 7 to 11. The partitions of the
active tasks are not among them: they travel in the consumer's own assignment, and the two are put
together by their order (`task_assignment`).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from millstream.assignment.wire.protocol import (
    LATEST_VERSION,
    NO_REBALANCE_MS,
    OLDEST_VERSION,
    TOPOLOGY_NAME_VERSION,
    AssignorError,
    Reader,
    int32,
    pair,
    text16,
)
from millstream.errors import TaskAssignmentError
from millstream.record import TaskId, TopicPartition

_END_POINT = re.compile(r"(?:[0-9a-zA-Z\-%._:]*://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)")


class HostInfo(NamedTuple):
    """Where a process can be asked for its state: its `application.server`.

    Args:
        host: a name or an address.
        port: the port.

    Example:
        >>> str(HostInfo("kiosk", 8080))
        'kiosk:8080'
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, end_point: str) -> HostInfo | None:
        """Read `host:port`, with or without a protocol in front. None if it is empty.

        Raises:
            TaskAssignmentError: the text has another form.

        Example:
            >>> HostInfo.parse("http://kiosk:8080")
            HostInfo(host='kiosk', port=8080)
        """
        if not end_point.strip():
            return None
        match = _END_POINT.fullmatch(end_point)
        if match is None or not match[1]:
            raise TaskAssignmentError(
                f"A member of the group gave {end_point!r} as its application.server, which is "
                "not of the form host:port. Correct that setting, or leave it out."
            )
        return cls(match[1], int(match[2]))


HostPartitions = Mapping[HostInfo, Set[TopicPartition]]


@dataclass(frozen=True, slots=True)
class AssignmentInfo:
    """The tasks of one member, and where everyone's are.

    Args:
        active_tasks: the task of each partition that is assigned to the member, those partitions
            being sorted. A task with two partitions is there twice.
        standby_tasks: the standby tasks and their source partitions.
        partitions_by_host: for each process with an `application.server`, the partitions that its
            active tasks read.
        standby_partitions_by_host: the same of its standby tasks.
        error_code: an `AssignorError`; any but NONE means that nothing is assigned.
        next_rebalance_ms: when the member is to ask for another rebalance, in milliseconds since
            the epoch; `REBALANCE_NOW_MS` or `NO_REBALANCE_MS`.
        version: the version of the bytes.
        common_version: the newest version that all members understand.
    """

    active_tasks: tuple[TaskId, ...] = ()
    standby_tasks: Mapping[TaskId, frozenset[TopicPartition]] = field(default_factory=dict)
    partitions_by_host: HostPartitions = field(default_factory=dict)
    standby_partitions_by_host: HostPartitions = field(default_factory=dict)
    error_code: int = AssignorError.NONE
    next_rebalance_ms: int = NO_REBALANCE_MS
    version: int = LATEST_VERSION
    common_version: int = LATEST_VERSION

    def encode(self, encoded_hosts: bytes | None = None) -> bytes:
        """The bytes of this version.

        Args:
            encoded_hosts: what `encode_hosts` gave for the two maps by host, which are the same for
                all members: with 1,000 partitions, writing them anew costs 1 ms a member.

        Raises:
            TaskAssignmentError: the version is not one that we write.
        """
        if not OLDEST_VERSION <= self.version <= LATEST_VERSION:
            raise TaskAssignmentError(
                f"Cannot write an assignment of version {self.version}, only of versions "
                f"{OLDEST_VERSION} to {LATEST_VERSION}."
            )
        # The absent name of a topology is a size of zero.
        name = int32(0) if self.version >= TOPOLOGY_NAME_VERSION else b""
        parts = [struct.pack(">iii", self.version, self.common_version, len(self.active_tasks))]
        parts += [pair(task_id) + name for task_id in self.active_tasks]
        parts.append(int32(len(self.standby_tasks)))
        for task_id, partitions in sorted(self.standby_tasks.items()):
            parts += [pair(task_id), name, int32(len(partitions))]
            parts += [text16(topic) + int32(number) for topic, number in sorted(partitions)]
        if encoded_hosts is None:
            encoded_hosts = encode_hosts(self.partitions_by_host, self.standby_partitions_by_host)
        parts.append(encoded_hosts)
        parts.append(struct.pack(">iq", self.error_code, self.next_rebalance_ms))
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> AssignmentInfo:
        """Read the bytes of any version from 7 to 11.

        Raises:
            TaskAssignmentError: these are not the bytes of an assignment, or of another version.
        """
        reader = Reader(data, "assignment from the group's leader")
        version = reader.int32()
        if not OLDEST_VERSION <= version <= LATEST_VERSION:
            raise TaskAssignmentError(
                f"The group's leader sent an assignment of version {version}, but only versions "
                f"{OLDEST_VERSION} to {LATEST_VERSION} are supported. "
                "Probably it runs another version of Kafka Streams; upgrade the older of the two."
            )
        common_version = reader.int32()
        active = tuple(_read_task(reader, version) for _ in range(reader.int32()))
        standby: dict[TaskId, frozenset[TopicPartition]] = {}
        for _ in range(reader.int32()):
            task_id = _read_task(reader, version)
            standby[task_id] = frozenset(
                TopicPartition(reader.text16(), reader.int32()) for _ in range(reader.int32())
            )
        topics: dict[int, str] = {}
        for _ in range(reader.int32()):
            index = reader.int32()
            topics[index] = reader.text16()
        return cls(
            active_tasks=active,
            standby_tasks=standby,
            partitions_by_host=_read_hosts(reader, topics),
            standby_partitions_by_host=_read_hosts(reader, topics),
            error_code=reader.int32(),
            next_rebalance_ms=reader.int64(),
            version=version,
            common_version=common_version,
        )


def encode_hosts(active: HostPartitions, standby: HostPartitions) -> bytes:
    """The part of an assignment which says where everyone's tasks are."""
    maps = (active, standby)
    topics = sorted({tp.topic for hosts in maps for tps in hosts.values() for tp in tps})
    index_of = {topic: index for index, topic in enumerate(topics)}
    parts = [int32(len(topics))]
    parts += [int32(index) + text16(topic) for topic, index in index_of.items()]
    for hosts in maps:
        parts.append(int32(len(hosts)))
        for (host, port), partitions in sorted(hosts.items()):
            parts.append(text16(host) + struct.pack(">ii", port, len(partitions)))
            pairs = sorted(partitions)
            parts += [struct.pack(">ii", index_of[topic], number) for topic, number in pairs]
    return b"".join(parts)


def _read_task(reader: Reader, version: int) -> TaskId:
    task_id = TaskId(reader.int32(), reader.int32())
    if version >= TOPOLOGY_NAME_VERSION and reader.int32():
        reader.refuse_topology_name()
    return task_id


def _read_hosts(
    reader: Reader, topics: Mapping[int, str]
) -> dict[HostInfo, frozenset[TopicPartition]]:
    hosts: dict[HostInfo, frozenset[TopicPartition]] = {}
    for _ in range(reader.int32()):
        host = HostInfo(reader.text16(), reader.int32())
        pairs = [(reader.int32(), reader.int32()) for _ in range(reader.int32())]
        if not all(index in topics for index, _ in pairs):
            raise TaskAssignmentError(
                "Cannot read the assignment from the group's leader: the partitions of host "
                f"{host} are of a topic that it does not name."
            )
        hosts[host] = frozenset(TopicPartition(topics[index], number) for index, number in pairs)
    return hosts
