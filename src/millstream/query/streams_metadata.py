"""Metadata about the locations of store partitions in the group, for routing."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import ClassVar

from millstream.assignment.wire_format import HostInfo
from millstream.record import TopicPartition


@dataclass(frozen=True)
class StreamsMetadata:
    """The stores and partitions of an application instance.

    Corresponds to Kafka Streams' `StreamsMetadata`.

    Args:
        host_info: the instance's `application_server`.
        state_store_names: the stores with active partitions on the instance, and global stores.
        topic_partitions: the input partitions of the instance's active tasks.
        standby_state_store_names: the stores with standby copies on the instance.
        standby_topic_partitions: the input partitions of the instance's standby tasks.

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
    """The location of a key. Kafka Streams' `KeyQueryMetadata` (KIP-535).

    Args:
        active_host: the instance with the active task; `unavailable:-1` if it is unknown.
        standby_hosts: the instances with standby copies.
        partition: the partition of the store; -1 for a global store.

    Attributes:
        NOT_AVAILABLE: returned while the assignment is unknown; try again.

    Example:
        >>> KeyQueryMetadata.NOT_AVAILABLE.partition
        -1
    """

    active_host: HostInfo
    standby_hosts: frozenset[HostInfo]
    partition: int

    NOT_AVAILABLE: ClassVar[KeyQueryMetadata]


#: Represents an unknown instance.
UNAVAILABLE = HostInfo("unavailable", -1)
KeyQueryMetadata.NOT_AVAILABLE = KeyQueryMetadata(UNAVAILABLE, frozenset(), -1)


@dataclass(frozen=True)
class LagInfo:
    """The lag of a store behind its changelog. Kafka Streams' `LagInfo` (KIP-535).

    Args:
        current_offset_position: the offset up to which the store is restored; for a running task,
            the end offset.
        end_offset_position: the end offset of the changelog.

    Example:
        >>> LagInfo(40, 42).offset_lag
        2
    """

    current_offset_position: int
    end_offset_position: int

    @property
    def offset_lag(self) -> int:
        """The maximum number of records that have not been restored yet."""
        return max(0, self.end_offset_position - self.current_offset_position)


PartitionsByHost = Mapping[HostInfo, frozenset[TopicPartition]]


@dataclass(frozen=True)
class PartitionOwners:
    """The input partitions of each instance's tasks.

    They are from the leader's latest announcement.
    """

    active: PartitionsByHost
    standby: PartitionsByHost

    @property
    def all(self) -> Set[HostInfo]:
        return self.active.keys() | self.standby.keys()
