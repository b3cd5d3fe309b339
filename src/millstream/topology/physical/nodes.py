"""The physical nodes of a topology, from which tasks create operators.

Children are attached in the order in which the nodes were added. Topics are undecorated: the
application id is only added to internal topics when a task runs. None stands for the config's
default serde, extractor or offset reset, and for Kafka's default partitioner.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from millstream.errors import TopologyError
from millstream.serdes import Serde
from millstream.state.builders.store_builder import StoreBuilder
from millstream.topology.call_site import call_site
from millstream.topology.operations.operation import Operation

#: `extractor(record, partition_time) -> timestamp`, in milliseconds since the epoch.
TimestampExtractor = Callable[[Any, int], int]

#: Where to start without a committed offset: `"earliest"`, `"latest"`, `"none"`, or a timedelta
#: (how far back from now).
OffsetReset = str | timedelta

#: `partitioner(topic, key, value, number_of_partitions)` returns a partition, a collection of
#: partitions (each gets a copy of the record; an empty collection drops the record), or None for
#: Kafka's default.
Partitioner = Callable[[str, Any, Any, int], int | Collection[int] | None]

#: `extractor(key, value, record_context) -> topic`.
TopicExtractor = Callable[[Any, Any, Any], str]


@dataclass(frozen=True, slots=True)
class SourceNode:
    """A node that reads topics and deserializes their records."""

    name: str
    #: The topics, in the user's order; empty if there is a pattern.
    topics: tuple[str, ...]
    #: The pattern, which must match whole names of topics; None if there are topics.
    pattern: re.Pattern[str] | None = None
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    #: None for the source of a repartition topic, which uses Kafka's timestamps regardless of the
    #: config.
    timestamp_extractor: TimestampExtractor | None = None
    offset_reset: OffsetReset | None = None
    declared_at: str = field(default="", compare=False)

    def reads(self, topic: str) -> bool:
        """Return whether this source reads the (undecorated) topic."""
        if self.pattern is not None:
            return self.pattern.fullmatch(topic) is not None
        return topic in self.topics


@dataclass(frozen=True, slots=True)
class ProcessorNode:
    """A node that processes records."""

    name: str
    operation: Operation
    parents: tuple[str, ...]
    stores: tuple[str, ...] = ()
    declared_at: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class SinkNode:
    """A node that serializes records and writes them to a topic."""

    name: str
    topic: str | TopicExtractor
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    partitioner: Partitioner | None
    parents: tuple[str, ...]
    declared_at: str = field(default="", compare=False)


Node = SourceNode | ProcessorNode | SinkNode


@dataclass(frozen=True, slots=True)
class GlobalStoreNodes:
    """A global store, which every instance fills from all partitions of a topic.

    Global stores are not part of a sub-topology, but are numbered together with sub-topologies.
    """

    source: SourceNode
    processor: ProcessorNode
    #: The builder of the store, without a changelog, since the store is restored from the topic.
    store_builder: StoreBuilder
    #: The number of ordinary nodes that were added to the topology before the store.
    position: int

    @property
    def store(self) -> str:
        return self.store_builder.name

    @property
    def topic(self) -> str:
        return self.source.topics[0]


def check_offset_reset(reset: OffsetReset | None) -> None:
    """Check that an offset reset is supported.

    Raises:
        TopologyError: the offset reset is unknown, or a negative timedelta.
    """
    if isinstance(reset, timedelta):
        if reset >= timedelta(0):
            return
    elif reset is None or reset in ("earliest", "latest", "none"):
        return
    raise TopologyError(
        f"There is no offset reset {reset!r}. "
        "Choose 'earliest', 'latest', 'none', or a non-negative timedelta (how far back from now).",
        declared_at=call_site(),
    )
