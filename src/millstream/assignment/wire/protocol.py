"""The constants of Kafka Streams' assignment protocol, and how its bytes are read."""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import Any, Final, NoReturn

from millstream.errors import TaskAssignmentError
from millstream.record import TaskId

#: The version of the bytes that we write unless the group has older members, and the newest that
#: we read in full.
LATEST_VERSION: Final = 11
#: The oldest version that we read and write: the one that brought offset sums (Kafka 2.6).
OLDEST_VERSION: Final = 7
#: Since this version a task has the name of a topology, always absent here.
TOPOLOGY_NAME_VERSION: Final = 10

#: The offset sum of a task that is running as active: nobody can be further ahead.
LATEST_OFFSET: Final = -2
#: The offset sum of a task of which nothing is known.
UNKNOWN_OFFSET_SUM: Final = -3

#: In place of the time of a follow-up rebalance: none.
NO_REBALANCE_MS: Final = 2**63 - 1
#: In place of the time of a follow-up rebalance: as soon as this one is over.
REBALANCE_NOW_MS: Final = 0


class AssignorError(enum.IntEnum):
    """What the leader tells every member instead of an assignment, or a member tells the leader."""

    NONE = 0
    #: A source topic does not exist.
    INCOMPLETE_SOURCE_TOPIC_METADATA = 1
    #: Of old versions.
    VERSION_PROBING = 2
    #: The leader failed to make an assignment.
    ASSIGNMENT_ERROR = 3
    #: A member asks that all of the application shuts down.
    SHUTDOWN_REQUESTED = 4


class Reader:
    """Reads big-endian fields one after the other.

    Args:
        data: the bytes.
        what: what they are, for errors.
    """

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self._at = 0

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise TaskAssignmentError(
                f"Cannot read the {self._what}: {size} bytes are announced at position {self._at} "
                f"of {len(self._data)}. Probably another kind of application uses the same "
                "group id; give each application an application id of its own."
            )
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def int8(self) -> int:
        return int.from_bytes(self._take(1), "big", signed=True)

    def int16(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self._take(8), "big", signed=True)

    def raw(self, size: int) -> bytes:
        return self._take(size)

    def bytes32(self) -> bytes:
        """Bytes after their size in four bytes."""
        return self._take(self.int32())

    def text16(self) -> str:
        """Text after its size in two bytes."""
        return self._text(self._take(self.int16()))

    def text32(self) -> str:
        """Text after its size in four bytes."""
        return self._text(self.bytes32())

    def table(self, row: struct.Struct, count: int) -> Iterator[tuple[Any, ...]]:
        """So many rows, all of them alike."""
        return row.iter_unpack(self._take(row.size * max(0, count)))

    def refuse_topology_name(self) -> NoReturn:
        """Stop at a task of a named topology, which only Kafka Streams has."""
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


def pair(task_id: TaskId) -> bytes:
    return struct.pack(">ii", *task_id)
