"""Where the partitions of stores are, in the whole group: for routing."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import ClassVar

from millstream.assignment.wire.assignment_info import HostInfo
from millstream.record import TopicPartition


@dataclass(frozen=True)
class StreamsMetadata:
    """What one instance of the application has. Kafka Streams' `StreamsMetadata`.

    Args:
        host_info: its `application_server`.
        state_store_names: the stores of which it has partitions, and the global ones.
        topic_partitions: what its active tasks read.
        standby_state_store_names: the stores of which it has copies.
        standby_topic_partitions: what its standby tasks would read.

    Example:
        >>> here = StreamsMetadata(HostInfo("kiosk", 8080), frozenset({"counts"}))
        >>> str(here.host_info), "counts" in here.state_store_names
        ('kiosk:8080', True)
    """

    host_info: HostInfo
    state_store_names: frozenset[str] = frozenset()
    topic_partitions: frozenset[TopicPartition] = frozenset()
    standby_state_store_names: frozenset[str] = frozenset()
    standby_topic_partitions: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True)
class KeyQueryMetadata:
    """Where a key is. Kafka Streams' `KeyQueryMetadata` (KIP-535).

    Args:
        active_host: the instance whose active task has it; `unavailable:-1` if nobody has.
        standby_hosts: those that have copies.
        partition: of the store; -1 for a global one.

    Attributes:
        NOT_AVAILABLE: given while it is not known who has what: ask again.

    Example:
        >>> KeyQueryMetadata.NOT_AVAILABLE.partition
        -1
    """

    active_host: HostInfo
    standby_hosts: frozenset[HostInfo]
    partition: int

    NOT_AVAILABLE: ClassVar[KeyQueryMetadata]


#: Stands for an instance that is not known.
UNAVAILABLE = HostInfo("unavailable", -1)
KeyQueryMetadata.NOT_AVAILABLE = KeyQueryMetadata(UNAVAILABLE, frozenset(), -1)


@dataclass(frozen=True)
class LagInfo:
    """How far a store of a task is behind its changelog. Kafka Streams' `LagInfo` (KIP-535).

    Args:
        current_offset_position: up to where it is restored; the end for a task that is running.
        end_offset_position: the end of the changelog.

    Example:
        >>> LagInfo(40, 42).offset_lag
        2
    """

    current_offset_position: int
    end_offset_position: int

    @property
    def offset_lag(self) -> int:
        """How many records it lacks, at most."""
        return max(0, self.end_offset_position - self.current_offset_position)


Owned = Mapping[HostInfo, frozenset[TopicPartition]]


@dataclass(frozen=True)
class Hosts:
    """Which instance has which partitions, as the group's leader last told.

    Args:
        active: what active tasks read.
        standby: the same of standby tasks.
    """

    active: Owned
    standby: Owned

    @property
    def all(self) -> Set[HostInfo]:
        """Those that have something."""
        return self.active.keys() | self.standby.keys()
