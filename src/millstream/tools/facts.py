"""What of a topology outlives the program: names, numbers and formats, as a document.

Kept by the cluster and by disks, and found again by a new version of the application under these
names only: topics, stores, the numbers of sub-topologies (which tasks and folders are named after),
and what the bytes in them are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from millstream.config import StreamsConfig
from millstream.errors import StreamsError
from millstream.serdes import Serde
from millstream.state.builders.buffers import (
    GraceBufferBuilder,
    OuterJoinStoreBuilder,
    SubscriptionStoreBuilder,
    SuppressBufferBuilder,
)
from millstream.state.builders.key_value import KeyValueStoreBuilder
from millstream.state.builders.store_builder import StoreBuilder
from millstream.state.builders.versioned import VersionedStoreBuilder
from millstream.state.builders.windows import SessionStoreBuilder, WindowStoreBuilder
from millstream.tools.origins import origin_of_store, origin_of_topic
from millstream.tools.shapes import Shape, shape_of
from millstream.topology.physical.describe import function_name
from millstream.topology.physical.nodes import SinkNode, SourceNode
from millstream.topology.physical.subtopology import SubTopology
from millstream.topology.physical.topology import Topology

#: The first that fits; a subclass stands before its base.
_KINDS: Final[tuple[tuple[type, str], ...]] = (
    (SubscriptionStoreBuilder, "foreign-key subscriptions"),
    (KeyValueStoreBuilder, "key-value"),
    (WindowStoreBuilder, "window"),
    (SessionStoreBuilder, "session"),
    (VersionedStoreBuilder, "versioned"),
    (SuppressBufferBuilder, "suppress buffer"),
    (GraceBufferBuilder, "grace buffer"),
    (OuterJoinStoreBuilder, "outer-join buffer"),
)
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")


class StoreFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """A state store.

    Args:
        name: of the store.
        kind: key-value, window, session, versioned, or what else keeps state.
        storage: rocksdb, in_memory or lru; "default" where the application's settings decide.
        changelog: the (undecorated) topic that it is restored from; None if it is not.
        source_changelog: whether that is a topic which the application reads anyway.
        key: how keys are written; "default" for the application's default serde.
        value: how values are written, likewise.
        timestamped: whether a timestamp stands before each value.
        window_size_ms: of windows.
        retention_ms: how long windows, sessions or versions are kept.
        retain_duplicates: whether a window keeps several values of a key.
        time_ordered: whether windows and sessions are sorted by time first.
        generated: whether the name was made up.
        is_global: whether every instance has all of it.
        key_shape: the fields of keys, where the serde tells.
        value_shape: the fields of values, likewise.
        origin: the steps that fill it, if the name was made up.
    """

    name: str
    kind: str
    storage: str = "default"
    changelog: str | None = None
    source_changelog: bool = False
    key: str = "default"
    value: str = "default"
    timestamped: bool = False
    window_size_ms: int | None = None
    retention_ms: int | None = None
    retain_duplicates: bool = False
    time_ordered: bool = False
    generated: bool = False
    is_global: bool = False
    key_shape: Shape | None = None
    value_shape: Shape | None = None
    origin: tuple[str, ...] = ()


class RepartitionFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """A repartition topic: its undecorated name, what the program says of its partitions (None:
    they follow from the input), how its records are written, and whether the name was made up; the
    shapes and the origin are as of `StoreFacts`."""

    name: str
    partitions: int | None = None
    key: str = "default"
    value: str = "default"
    generated: bool = False
    key_shape: Shape | None = None
    value_shape: Shape | None = None
    origin: tuple[str, ...] = ()


class SubtopologyFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """A sub-topology: its number and the (undecorated) topics and the stores of its tasks."""

    id: int
    sources: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    chosen_sinks: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()


class TopologyFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """All of a topology that outlives the program.

    Args:
        subtopologies: those with tasks, by number.
        stores: global ones included.
        repartition_topics: those that the application keeps for itself.
        global_topics: the topics of global stores.
        compacted_topics: the topics of tables, global ones included, that other programs write.
        copartitioned: topics that must have equally many partitions, as they are joined.
        application_id: if the program says it.
        processing_guarantee: likewise.
    """

    subtopologies: tuple[SubtopologyFacts, ...]
    stores: tuple[StoreFacts, ...] = ()
    repartition_topics: tuple[RepartitionFacts, ...] = ()
    global_topics: tuple[str, ...] = ()
    compacted_topics: tuple[str, ...] = ()
    copartitioned: tuple[tuple[str, ...], ...] = ()
    application_id: str | None = None
    processing_guarantee: str | None = None

    def to_json(self) -> bytes:
        """The document."""
        return msgspec.json.format(msgspec.json.encode(self))

    @staticmethod
    def from_json(document: bytes, name: str) -> TopologyFacts:
        """The facts of a document.

        Args:
            document: from `to_json`.
            name: of its file, for the error.

        Raises:
            StreamsError: it is none.
        """
        try:
            return msgspec.json.decode(document, type=TopologyFacts)
        except msgspec.DecodeError as error:
            raise StreamsError(
                f"{name} is not what `millstream describe PROGRAM --facts` writes: {error}."
            ) from error


def facts_of(topology: Topology, config: StreamsConfig | None = None) -> TopologyFacts:
    """What of a topology outlives the program.

    Args:
        topology: of the program.
        config: its settings, as far as they are known: serdes and stores that the topology leaves
            open are taken from them.
    """
    parts = topology._subtopologies()
    generated = topology.generated_names()
    changelogs = {
        store: (topic, part) for part in parts for store, topic in part.changelogs.items()
    }
    stores: list[StoreFacts] = []
    for name, builder in topology.state_stores.items():
        store = _store(builder, config, changelogs.get(name))
        if name in generated["state stores"]:
            origin = origin_of_store(topology, name)
            store = msgspec.structs.replace(store, generated=True, origin=origin)
        stores.append(store)
    stores += [
        msgspec.structs.replace(
            _store(each.store_builder, config, None), changelog=each.topic, is_global=True
        )
        for each in topology.global_stores.values()
    ]
    return TopologyFacts(
        subtopologies=tuple(map(_subtopology, parts)),
        stores=tuple(stores),
        repartition_topics=tuple(_repartition_topics(topology, config)),
        global_topics=tuple(each.topic for each in topology.global_stores.values()),
        compacted_topics=tuple(sorted(topology._compacted_topics())),
        copartitioned=tuple(tuple(sorted(each)) for each in topology._copartition_groups()),
        application_id=None if config is None else config.application_id,
        processing_guarantee=None if config is None else config.processing_guarantee,
    )


def _subtopology(part: SubTopology) -> SubtopologyFacts:
    return SubtopologyFacts(
        id=part.id,
        sources=part.source_topics,
        patterns=tuple(pattern.pattern for pattern in part.source_patterns),
        sinks=part.sink_topics,
        chosen_sinks=tuple(
            function_name(node.topic)
            for node in part.nodes
            if isinstance(node, SinkNode) and not isinstance(node.topic, str)
        ),
        stores=tuple(part.stores),
    )


def _store(
    builder: Any,
    config: StreamsConfig | None,
    changelog: tuple[str, SubTopology] | None,
) -> StoreFacts:
    topic, part = changelog or (None, None)
    key = _chosen(builder.key_serde, config and config.default_key_serde)
    value = _chosen(builder.value_serde, config and config.default_value_serde)
    return StoreFacts(
        name=builder.name,
        kind=_kind_of(builder),
        storage=_storage(builder, config),
        changelog=topic,
        source_changelog=part is not None and topic in part.source_topics,
        key=_called(key),
        value=_called(value),
        key_shape=shape_of(key),
        value_shape=shape_of(value),
        timestamped=bool(getattr(builder, "timestamped", False)),
        window_size_ms=getattr(builder, "window_size_ms", None),
        retention_ms=getattr(builder, "retention_ms", None) or getattr(builder, "history_ms", None),
        retain_duplicates=bool(getattr(builder, "retain_duplicates", False)),
        time_ordered=bool(getattr(builder, "time_ordered", False)),
    )


def _kind_of(builder: StoreBuilder) -> str:
    known = (name for kind, name in _KINDS if isinstance(builder, kind))
    return next(known, type(builder).__name__)


def _storage(builder: Any, config: StreamsConfig | None) -> str:
    kind = getattr(builder, "kind", None) or (config.default_dsl_store if config else None)
    if kind is not None:
        return str(kind)
    if hasattr(builder, "kind"):
        return "default"
    return "rocksdb" if builder.persistent else "in_memory"


def _chosen(serde: Serde[Any] | None, default: Any) -> Serde[Any] | None:
    return serde if serde is not None else default


def _called(serde: Serde[Any] | None) -> str:
    return "default" if serde is None else _ADDRESS.sub("", repr(serde))


def _repartition_topics(
    topology: Topology, config: StreamsConfig | None
) -> Iterator[RepartitionFacts]:
    sources = {
        topic: node
        for node in topology.nodes.values()
        if isinstance(node, SourceNode)
        for topic in node.topics
    }
    # What no source reads, the query of a DataFrame function reads.
    read_apart = {stage.input_topic: stage for stage in topology.dataframe_stages.values()}
    for topic in topology.internal_topics.values():
        if topic.name in sources:
            given = (sources[topic.name].key_serde, sources[topic.name].value_serde)
        elif topic.name in read_apart:
            stage = read_apart[topic.name]
            given = (stage.input_key, stage.input_value)
        else:
            continue
        key = _chosen(given[0], config and config.default_key_serde)
        value = _chosen(given[1], config and config.default_value_serde)
        yield RepartitionFacts(
            topic.name,
            topic.partitions,
            _called(key),
            _called(value),
            topic.generated,
            shape_of(key),
            shape_of(value),
            origin_of_topic(topology, topic.name) if topic.generated else (),
        )


def external_topics(facts: TopologyFacts) -> list[str]:
    """The topics that others create: those that are read and written under fixed names, global
    ones included, in the order of the sub-topologies."""
    named = [topic for part in facts.subtopologies for topic in (*part.sources, *part.sinks)]
    return outside(facts, [*named, *facts.global_topics])


def outside(facts: TopologyFacts, topics: Iterable[str]) -> list[str]:
    """Each of some topics once, without those that the application keeps for itself."""
    internal = {topic.name for topic in facts.repartition_topics}
    return [topic for topic in dict.fromkeys(topics) if topic not in internal]
