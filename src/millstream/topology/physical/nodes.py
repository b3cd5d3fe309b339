"""The physical nodes of a topology: what a task instantiates.

Source nodes read topics, processor nodes work, sink nodes write a topic. A node names its parents;
children are attached in the order in which the nodes were added. Topics are undecorated here: an
internal topic goes without the application id until a task runs.
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

#: Where to start reading without a committed offset: `"earliest"`, `"latest"`, `"none"`, or that
#: long before now.
OffsetReset = str | timedelta

#: `partitioner(topic, key, value, number_of_partitions) -> partition`: a partition, several in a
#: collection (each gets a copy of the record; an empty one drops it), or None for Kafka's default.
Partitioner = Callable[[str, Any, Any, int], int | Collection[int] | None]

#: `extractor(key, value, record_context) -> topic`.
TopicExtractor = Callable[[Any, Any, Any], str]


@dataclass(frozen=True, slots=True)
class SourceNode:
    """Reads topics and decodes their records.

    Args:
        name: unique in the topology.
        topics: the topics, in the order given; empty if there is a pattern.
        pattern: matches the whole name of each topic to read; None if there are topics.
        key_serde: None for the config's default.
        value_serde: None for the config's default.
        timestamp_extractor: None for the config's default. The source of a repartition topic has
            none, and takes Kafka's timestamps whatever the config says.
        offset_reset: None for the config's.
        declared_at: file and line of the user's program.
    """

    name: str
    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None = None
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    timestamp_extractor: TimestampExtractor | None = None
    offset_reset: OffsetReset | None = None
    declared_at: str = field(default="", compare=False)

    def reads(self, topic: str) -> bool:
        """Whether this source reads the topic of that (undecorated) name."""
        if self.pattern is not None:
            return self.pattern.fullmatch(topic) is not None
        return topic in self.topics


@dataclass(frozen=True, slots=True)
class ProcessorNode:
    """Works on records.

    Args:
        name: unique in the topology.
        operation: what it does.
        parents: the nodes whose output it takes.
        stores: the names of the stores connected to it, in the order of connecting.
        declared_at: file and line of the user's program.
    """

    name: str
    operation: Operation
    parents: tuple[str, ...]
    stores: tuple[str, ...] = ()
    declared_at: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class SinkNode:
    """Encodes records and writes them to a topic.

    Args:
        name: unique in the topology.
        topic: the topic's name, or a function that names it for each record.
        key_serde: None for the config's default.
        value_serde: None for the config's default.
        partitioner: None for Kafka's default.
        parents: the nodes whose output it takes.
        declared_at: file and line of the user's program.
    """

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
    """A store that every instance fills from all partitions of one topic, and what fills it.

    It is no part of a sub-topology, although it takes a number among them.

    Args:
        source: reads the topic.
        processor: writes what was read to the store.
        store_builder: the store's, without changelog: the topic is its log.
        position: how many ordinary nodes were added to the topology before it.
    """

    source: SourceNode
    processor: ProcessorNode
    store_builder: StoreBuilder
    position: int

    @property
    def store(self) -> str:
        """The store's name."""
        return self.store_builder.name

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self.source.topics[0]


def check_offset_reset(reset: OffsetReset | None) -> None:
    """Refuse what is no offset reset.

    Raises:
        TopologyError: it is none, or a negative timedelta.
    """
    if isinstance(reset, timedelta):
        if reset >= timedelta(0):
            return
    elif reset is None or reset in ("earliest", "latest", "none"):
        return
    raise TopologyError(
        f"There is no offset reset {reset!r}. "
        "Choose 'earliest', 'latest', 'none', or a timedelta before now, not a negative one.",
        declared_at=call_site(),
    )
