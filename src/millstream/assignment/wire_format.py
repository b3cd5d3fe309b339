"""The user data of subscriptions and assignments, in Kafka Streams' wire format.

Supports the versions 7 to 11 of the format. The classes correspond to Kafka Streams'
`SubscriptionInfo` (KIP-441, KIP-662, KIP-671, KIP-708) and `AssignmentInfo`. An assignment does not
contain the partitions of active tasks: these are in the consumer's assignment, and the order of the
partitions maps them to tasks (`task_assignment`).
"""

from __future__ import annotations

import enum
import re
import struct
import uuid
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, NoReturn

from millstream.errors import TaskAssignmentError
from millstream.record import TaskId, TopicPartition

#: The version that is written unless the group has older members, and the newest that can be read
#: in full.
LATEST_VERSION: Final = 11
#: The oldest version that can be read and written: the first with offset sums (Kafka 2.6).
OLDEST_VERSION: Final = 7
#: Since this version, a task has a topology name, which is always absent in Millstream.
TOPOLOGY_NAME_VERSION: Final = 10

#: The offset sum of a running active task, which ranks above the sums of all other members.
LATEST_OFFSET: Final = -2
#: The offset sum of a task without a known position.
UNKNOWN_OFFSET_SUM: Final = -3

#: The time of the next rebalance if none is required.
NO_REBALANCE_MS: Final = 2**63 - 1
#: The time of the next rebalance if it must follow immediately.
REBALANCE_NOW_MS: Final = 0


class AssignorError(enum.IntEnum):
    """An error in an assignment, or a member's shutdown request."""

    NONE = 0
    #: A source topic does not exist.
    INCOMPLETE_SOURCE_TOPIC_METADATA = 1
    #: Only used by old versions.
    VERSION_PROBING = 2
    #: The leader could not compute an assignment.
    ASSIGNMENT_ERROR = 3
    #: A member requests a shutdown of all instances.
    SHUTDOWN_REQUESTED = 4


class WireReader:
    """Reads consecutive big-endian fields. `what` is the kind of message, for errors."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self._at = 0

    def raw(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise TaskAssignmentError(
                f"Cannot read the {self._what}: a field at position {self._at} of "
                f"{len(self._data)} has size {size}. The group id is probably used by another "
                "kind of application; use a separate application id for each application."
            )
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def int8(self) -> int:
        return int.from_bytes(self.raw(1), "big", signed=True)

    def int16(self) -> int:
        return int.from_bytes(self.raw(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self.raw(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self.raw(8), "big", signed=True)

    def bytes32(self) -> bytes:
        return self.raw(self.int32())

    def text16(self) -> str:
        return self._text(self.raw(self.int16()))

    def text32(self) -> str:
        return self._text(self.bytes32())

    def table(self, row: struct.Struct, count: int) -> Iterator[tuple[Any, ...]]:
        return row.iter_unpack(self.raw(row.size * max(0, count)))

    def reject_topology_name(self) -> NoReturn:
        """Raise an error for a task of a named topology, which only Kafka Streams has."""
        raise TaskAssignmentError(
            f"Cannot read the {self._what}: it has tasks of a named topology. A Java member of "
            "this group uses named topologies, which are not supported; use another "
            "application id."
        )

    def _text(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise TaskAssignmentError(
                f"Cannot read the {self._what}: {data[:80]!r} is not text."
            ) from error


def int32(value: int) -> bytes:
    return struct.pack(">i", value)


def text16(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def text32(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">i", len(data)) + data


def encode_task_id(task_id: TaskId) -> bytes:
    return struct.pack(">ii", *task_id)


_UNIQUE_FIELD_VERSION = 8
_ERROR_VERSION = 9
_TAGS_VERSION = 11
_UNKNOWN_PROCESS = uuid.UUID(int=0)
#: A task, its offset sum, and the size of its topology name: -1 for none.
_NAMED_SUM = struct.Struct(">iiqh")


@dataclass(frozen=True, slots=True)
class SubscriptionInfo:
    """The state of a member, which the leader needs to assign tasks."""

    #: Threads of one process share its state directory.
    process_id: uuid.UUID
    #: The process' `application.server` as `host:port`, or empty.
    end_point: str = ""
    #: The position of each task's state: the sum of the offsets after the last applied records of
    #: its changelog partitions; `LATEST_OFFSET` for a running active task.
    task_offset_sums: Mapping[TaskId, int] = field(default_factory=dict)
    #: Changes with each join, because the broker would not start a rebalance for a member that
    #: rejoins with the same bytes. Only its lowest eight bits are sent.
    unique_field: int = 0
    #: `AssignorError.SHUTDOWN_REQUESTED` to request a shutdown of all instances.
    error_code: int = AssignorError.NONE
    client_tags: Mapping[str, str] = field(default_factory=dict)
    version: int = LATEST_VERSION
    #: The newest version that the member supports.
    latest_version: int = LATEST_VERSION

    @property
    def is_future(self) -> bool:
        """Whether the member's version is newer than `LATEST_VERSION`.

        Only the version numbers of such a member are known.
        """
        return self.version > LATEST_VERSION

    def encode(self) -> bytes:
        """Encode the subscription in its version, without fields that the version lacks.

        Raises TaskAssignmentError if the version cannot be written.
        """
        if not OLDEST_VERSION <= self.version <= LATEST_VERSION:
            raise TaskAssignmentError(
                f"Cannot write a subscription of version {self.version}, only of versions "
                f"{OLDEST_VERSION} to {LATEST_VERSION}."
            )
        parts = [
            struct.pack(">ii", self.version, self.latest_version),
            self.process_id.bytes,
            text32(self.end_point),
            self._encoded_offset_sums(),
        ]
        if self.version >= _UNIQUE_FIELD_VERSION:
            parts.append(bytes((self.unique_field & 0xFF,)))
        if self.version >= _ERROR_VERSION:
            parts.append(int32(self.error_code))
        if self.version >= _TAGS_VERSION:
            parts.append(int32(len(self.client_tags)))
            for key, value in sorted(self.client_tags.items()):
                parts += [text32(key), text32(value)]
        return b"".join(parts)

    def _encoded_offset_sums(self) -> bytes:
        sums = sorted(self.task_offset_sums.items())
        if self.version >= TOPOLOGY_NAME_VERSION:
            parts = [_NAMED_SUM.pack(*task_id, total, -1) for task_id, total in sums]
            return int32(len(parts)) + b"".join(parts)
        groups: dict[int, list[bytes]] = {}
        for task_id, total in sums:
            encoded = struct.pack(">iq", task_id.partition, total)
            groups.setdefault(task_id.subtopology, []).append(encoded)
        return int32(len(groups)) + b"".join(
            struct.pack(">ii", number, len(parts)) + b"".join(parts)
            for number, parts in groups.items()
        )

    @classmethod
    def decode(cls, data: bytes) -> SubscriptionInfo:
        """Decode a subscription of version 7 or later.

        For future versions, only the version numbers are decoded. Raises TaskAssignmentError if the
        bytes are not a subscription, or the version is too old.
        """
        reader = WireReader(data, "subscription of a group member")
        version = reader.int32()
        if version < OLDEST_VERSION:
            raise TaskAssignmentError(
                f"A member of the group sent a subscription of version {version}, but the oldest "
                f"supported is {OLDEST_VERSION} (Kafka 2.6). Upgrade that member first."
            )
        latest_version = reader.int32()
        if version > LATEST_VERSION:
            return cls(_UNKNOWN_PROCESS, version=version, latest_version=latest_version)
        # In the order of the fields.
        return cls(
            process_id=uuid.UUID(bytes=reader.raw(16)),
            end_point=reader.text32(),
            task_offset_sums=_read_offset_sums(reader, version),
            unique_field=reader.int8() if version >= _UNIQUE_FIELD_VERSION else 0,
            error_code=reader.int32() if version >= _ERROR_VERSION else AssignorError.NONE,
            client_tags=_read_tags(reader) if version >= _TAGS_VERSION else {},
            version=version,
            latest_version=latest_version,
        )


def _read_offset_sums(reader: WireReader, version: int) -> dict[TaskId, int]:
    sums: dict[TaskId, int] = {}
    count = reader.int32()
    if version >= TOPOLOGY_NAME_VERSION:
        # The leader reads a sum for each member and task. Reading all sums as a table takes a
        # quarter of the time.
        for subtopology, partition, total, name_size in reader.table(_NAMED_SUM, count):
            if name_size > 0:
                reader.reject_topology_name()
            sums[TaskId(subtopology, partition)] = total
        return sums
    for _ in range(count):
        subtopology = reader.int32()
        for _ in range(reader.int32()):
            task_id = TaskId(subtopology, reader.int32())
            sums[task_id] = reader.int64()
    return sums


def _read_tags(reader: WireReader) -> dict[str, str]:
    tags: dict[str, str] = {}
    for _ in range(reader.int32()):
        key = reader.text32()
        tags[key] = reader.text32()
    return tags


_END_POINT = re.compile(r"(?:[0-9a-zA-Z\-%._:]*://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)")


class HostInfo(NamedTuple):
    """The address at which a process serves queries: its `application.server`.

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
        """Parse `host:port`, with or without a protocol prefix.

        Returns None for empty text.

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
                f"The application.server of a group member is {end_point!r}, which does not have "
                "the form host:port. Correct the setting, or leave it out."
            )
        return cls(match[1], int(match[2]))


HostPartitions = Mapping[HostInfo, Set[TopicPartition]]


@dataclass(frozen=True, slots=True)
class AssignmentInfo:
    """The tasks of one member, and the locations of all tasks."""

    #: The task of each assigned partition, ordered by partition. A task with two partitions occurs
    #: twice.
    active_tasks: tuple[TaskId, ...] = ()
    standby_tasks: Mapping[TaskId, frozenset[TopicPartition]] = field(default_factory=dict)
    #: For each process with an `application.server`, the source partitions of its active tasks.
    partitions_by_host: HostPartitions = field(default_factory=dict)
    standby_partitions_by_host: HostPartitions = field(default_factory=dict)
    #: An `AssignorError`; unless it is NONE, nothing is assigned.
    error_code: int = AssignorError.NONE
    #: When the member must request another rebalance, in milliseconds since the epoch;
    #: `REBALANCE_NOW_MS` or `NO_REBALANCE_MS`.
    next_rebalance_ms: int = NO_REBALANCE_MS
    version: int = LATEST_VERSION
    #: The newest version that all members support.
    common_version: int = LATEST_VERSION

    def encode(self, encoded_hosts: bytes | None = None) -> bytes:
        """Encode the assignment in its version.

        `encoded_hosts` is the result of `encode_hosts` for the two maps by host, which are the same
        for all members: with 1,000 partitions, encoding them takes 1 ms per member. Raises
        TaskAssignmentError if the version cannot be written.
        """
        if not OLDEST_VERSION <= self.version <= LATEST_VERSION:
            raise TaskAssignmentError(
                f"Cannot write an assignment of version {self.version}, only of versions "
                f"{OLDEST_VERSION} to {LATEST_VERSION}."
            )
        # The absent topology name is encoded as a size of zero.
        name = int32(0) if self.version >= TOPOLOGY_NAME_VERSION else b""
        parts = [struct.pack(">iii", self.version, self.common_version, len(self.active_tasks))]
        parts += [encode_task_id(task_id) + name for task_id in self.active_tasks]
        parts.append(int32(len(self.standby_tasks)))
        for task_id, partitions in sorted(self.standby_tasks.items()):
            parts += [encode_task_id(task_id), name, int32(len(partitions))]
            parts += [text16(topic) + int32(number) for topic, number in sorted(partitions)]
        if encoded_hosts is None:
            encoded_hosts = encode_hosts(self.partitions_by_host, self.standby_partitions_by_host)
        parts.append(encoded_hosts)
        parts.append(struct.pack(">iq", self.error_code, self.next_rebalance_ms))
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> AssignmentInfo:
        """Decode an assignment of version 7 to 11.

        Raises TaskAssignmentError if the bytes are not an assignment, or have another version.
        """
        reader = WireReader(data, "assignment from the group's leader")
        version = reader.int32()
        if not OLDEST_VERSION <= version <= LATEST_VERSION:
            raise TaskAssignmentError(
                f"The group's leader sent an assignment of version {version}, but only versions "
                f"{OLDEST_VERSION} to {LATEST_VERSION} are supported. "
                "The leader probably runs another version of Kafka Streams; upgrade the older of "
                "the two members."
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
    """Encode the part of an assignment with the locations of all tasks."""
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


def _read_task(reader: WireReader, version: int) -> TaskId:
    task_id = TaskId(reader.int32(), reader.int32())
    if version >= TOPOLOGY_NAME_VERSION and reader.int32():
        reader.reject_topology_name()
    return task_id


def _read_hosts(
    reader: WireReader, topics: Mapping[int, str]
) -> dict[HostInfo, frozenset[TopicPartition]]:
    hosts: dict[HostInfo, frozenset[TopicPartition]] = {}
    for _ in range(reader.int32()):
        host = HostInfo(reader.text16(), reader.int32())
        pairs = [(reader.int32(), reader.int32()) for _ in range(reader.int32())]
        if not all(index in topics for index, _ in pairs):
            raise TaskAssignmentError(
                "Cannot read the assignment from the group's leader: the partitions of host "
                f"{host} belong to an undefined topic."
            )
        hosts[host] = frozenset(TopicPartition(topics[index], number) for index, number in pairs)
    return hosts
