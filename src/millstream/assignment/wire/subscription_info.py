"""What a member tells the group's leader about itself: the user data of its subscription.

The bytes are those of Kafka Streams' `SubscriptionInfo` (KIP-441, KIP-662, KIP-671, KIP-708),
versions 7 to 11.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.assignment.wire.protocol import (
    LATEST_VERSION,
    OLDEST_VERSION,
    TOPOLOGY_NAME_VERSION,
    AssignorError,
    Reader,
    int32,
    text32,
)
from millstream.errors import TaskAssignmentError
from millstream.record import TaskId

_UNIQUE_FIELD_VERSION = 8
_ERROR_VERSION = 9
_TAGS_VERSION = 11
_UNKNOWN_PROCESS = uuid.UUID(int=0)
#: A task, its offset sum, and the size of its topology's name: -1 for none.
_NAMED_SUM = struct.Struct(">iiqh")


@dataclass(frozen=True, slots=True)
class SubscriptionInfo:
    """A member's state, as far as the leader needs it.

    Args:
        process_id: the process that the member's thread belongs to. Threads of one process share
            its state directory.
        end_point: the process' `application.server` as `host:port`, or empty.
        task_offset_sums: for each task that the member has state of, how far that state is: the sum
            over the changelog's partitions of the offset after the last one applied;
            `LATEST_OFFSET` for a running active task.
        unique_field: differs from one join to the next, because the broker would not rebalance for
            a member that rejoins with the same bytes. Only its lowest eight bits are sent.
        error_code: `AssignorError.SHUTDOWN_REQUESTED` if the whole application shall stop.
        client_tags: the process' `client.tag.*` settings.
        version: the version of the bytes.
        latest_version: the newest version that the member understands.
    """

    process_id: uuid.UUID
    end_point: str = ""
    task_offset_sums: Mapping[TaskId, int] = field(default_factory=dict)
    unique_field: int = 0
    error_code: int = AssignorError.NONE
    client_tags: Mapping[str, str] = field(default_factory=dict)
    version: int = LATEST_VERSION
    latest_version: int = LATEST_VERSION

    @property
    def is_future(self) -> bool:
        """Whether the member is newer than we: then only the two versions are known."""
        return self.version > LATEST_VERSION

    def encode(self) -> bytes:
        """The bytes of this version; what an older version does not have is left out.

        Raises:
            TaskAssignmentError: the version is not one that we write.
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
        """Read the bytes of any version since 7; of future versions only the version numbers.

        Raises:
            TaskAssignmentError: these are not the bytes of a subscription, or too old ones.
        """
        reader = Reader(data, "subscription of a group member")
        version = reader.int32()
        if version < OLDEST_VERSION:
            raise TaskAssignmentError(
                f"A member of the group sent a subscription of version {version}, but the oldest "
                f"supported is {OLDEST_VERSION} (Kafka 2.6). Upgrade that member first."
            )
        latest_version = reader.int32()
        if version > LATEST_VERSION:
            return cls(_UNKNOWN_PROCESS, version=version, latest_version=latest_version)
        # The order of these is the order of the fields.
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


def _read_offset_sums(reader: Reader, version: int) -> dict[TaskId, int]:
    sums: dict[TaskId, int] = {}
    count = reader.int32()
    if version >= TOPOLOGY_NAME_VERSION:
        # A leader reads this of each member and task: as a table, in a fourth of the time.
        for subtopology, partition, total, name_size in reader.table(_NAMED_SUM, count):
            if name_size > 0:
                reader.refuse_topology_name()
            sums[TaskId(subtopology, partition)] = total
        return sums
    for _ in range(count):
        subtopology = reader.int32()
        for _ in range(reader.int32()):
            task_id = TaskId(subtopology, reader.int32())
            sums[task_id] = reader.int64()
    return sums


def _read_tags(reader: Reader) -> dict[str, str]:
    tags: dict[str, str] = {}
    for _ in range(reader.int32()):
        key = reader.text32()
        tags[key] = reader.text32()
    return tags
