"""The facts about a topology that outlive a program: names, numbers and formats.

The cluster and the disks keep topics, stores, the numbers of sub-topologies (which appear in the
names of tasks and folders), and serialized data. A new version of the application finds them only
by these names.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any, Final

import msgspec

from millstream.config.streams_config import StreamsConfig
from millstream.errors import StreamsError
from millstream.serdes import Serde
from millstream.state.builders.buffer_builders import (
    GraceBufferBuilder,
    OuterJoinStoreBuilder,
    SubscriptionStoreBuilder,
    SuppressBufferBuilder,
)
from millstream.state.builders.store_builder import KeyValueStoreBuilder
from millstream.state.builders.versioned_builders import VersionedStoreBuilder
from millstream.state.builders.window_builders import SessionStoreBuilder, WindowStoreBuilder
from millstream.tools.serde_shapes import Shape, shape_of
from millstream.topology.physical.nodes import Node, ProcessorNode, SinkNode, SourceNode
from millstream.topology.physical.subtopology import SubTopology
from millstream.topology.physical.topology import Topology
from millstream.topology.physical.topology_description import function_name

#: The kinds of stores by builder class. The first match counts, so a subclass is listed before its
#: base class.
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
    name: str
    #: key-value, window, session, versioned, or a kind of buffer.
    kind: str
    #: rocksdb, in_memory or lru; "default" if the settings decide.
    storage: str = "default"
    #: The undecorated topic that the store is restored from.
    changelog: str | None = None
    #: Whether the changelog is a source topic of the application.
    source_changelog: bool = False
    #: The serde; "default" for the default serde of the settings.
    key: str = "default"
    value: str = "default"
    timestamped: bool = False
    window_size_ms: int | None = None
    retention_ms: int | None = None
    #: Whether a window store keeps several values of a key.
    retain_duplicates: bool = False
    #: Whether windows and sessions are sorted by time first.
    time_ordered: bool = False
    #: Whether the name was generated.
    generated: bool = False
    #: Whether every instance has a complete copy of the store.
    is_global: bool = False
    #: The fields, if the serde has a schema.
    key_shape: Shape | None = None
    value_shape: Shape | None = None
    #: The steps that fill the store, if its name was generated.
    origin: tuple[str, ...] = ()


class RepartitionFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """A repartition topic, by its undecorated name.

    For most fields, see `StoreFacts`.
    """

    name: str
    #: The number in the program; None if it follows from the input.
    partitions: int | None = None
    key: str = "default"
    value: str = "default"
    generated: bool = False
    key_shape: Shape | None = None
    value_shape: Shape | None = None
    origin: tuple[str, ...] = ()


class SubtopologyFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """A sub-topology: its number, its undecorated topics, and its stores."""

    id: int
    sources: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    chosen_sinks: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()


class TopologyFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    #: The sub-topologies with tasks, ordered by number.
    subtopologies: tuple[SubtopologyFacts, ...]
    stores: tuple[StoreFacts, ...] = ()
    repartition_topics: tuple[RepartitionFacts, ...] = ()
    global_topics: tuple[str, ...] = ()
    #: The topics of tables, including global ones, that other programs write.
    compacted_topics: tuple[str, ...] = ()
    #: Joined topics, which must have the same number of partitions.
    copartitioned: tuple[tuple[str, ...], ...] = ()
    #: The application id and the guarantee are None if the program has no settings.
    application_id: str | None = None
    processing_guarantee: str | None = None

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self))

    @staticmethod
    def from_json(document: bytes, name: str) -> TopologyFacts:
        """Parse a JSON document. Raises StreamsError if the document is invalid."""
        try:
            return msgspec.json.decode(document, type=TopologyFacts)
        except msgspec.DecodeError as error:
            raise StreamsError(
                f"{name} was not written by `millstream describe PROGRAM --facts`: {error}."
            ) from error


def facts_of(topology: Topology, config: StreamsConfig | None = None) -> TopologyFacts:
    """Return the facts of a topology. The settings supply default serdes and stores."""
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
        copartitioned=tuple(tuple(sorted(each)) for each in topology._copartitioned.groups()),
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
    builder: Any, config: StreamsConfig | None, changelog: tuple[str, SubTopology] | None
) -> StoreFacts:
    topic, part = changelog or (None, None)
    kinds = (name for kind, name in _KINDS if isinstance(builder, kind))
    key = _serde_or_default(builder.key_serde, config and config.default_key_serde)
    value = _serde_or_default(builder.value_serde, config and config.default_value_serde)
    return StoreFacts(
        name=builder.name,
        kind=next(kinds, type(builder).__name__),
        storage=_storage(builder, config),
        changelog=topic,
        source_changelog=part is not None and topic in part.source_topics,
        key=_serde_name(key),
        value=_serde_name(value),
        key_shape=shape_of(key),
        value_shape=shape_of(value),
        timestamped=bool(getattr(builder, "timestamped", False)),
        window_size_ms=getattr(builder, "window_size_ms", None),
        retention_ms=getattr(builder, "retention_ms", None) or getattr(builder, "history_ms", None),
        retain_duplicates=bool(getattr(builder, "retain_duplicates", False)),
        time_ordered=bool(getattr(builder, "time_ordered", False)),
    )


def _storage(builder: Any, config: StreamsConfig | None) -> str:
    kind = getattr(builder, "kind", None) or (config.default_dsl_store if config else None)
    if kind is not None:
        return str(kind)
    if hasattr(builder, "kind"):
        return "default"
    return "rocksdb" if builder.persistent else "in_memory"


def _serde_or_default(serde: Serde[Any] | None, default: Any) -> Serde[Any] | None:
    return serde if serde is not None else default


def _serde_name(serde: Serde[Any] | None) -> str:
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
    # Internal topics without a source are read by the queries of DataFrame functions.
    stage_inputs = {stage.input_topic: stage for stage in topology.dataframe_stages.values()}
    for topic in topology.internal_topics.values():
        if topic.name in sources:
            given = (sources[topic.name].key_serde, sources[topic.name].value_serde)
        elif topic.name in stage_inputs:
            stage = stage_inputs[topic.name]
            given = (stage.input_key, stage.input_value)
        else:
            continue
        key = _serde_or_default(given[0], config and config.default_key_serde)
        value = _serde_or_default(given[1], config and config.default_value_serde)
        yield RepartitionFacts(
            topic.name,
            topic.partitions,
            _serde_name(key),
            _serde_name(value),
            topic.generated,
            shape_of(key),
            shape_of(value),
            origin_of_topic(topology, topic.name) if topic.generated else (),
        )


def external_topics(facts: TopologyFacts) -> list[str]:
    """Return the topics that other programs create, ordered by sub-topology.

    They are the sources, sinks and global topics with fixed names.
    """
    named = [topic for part in facts.subtopologies for topic in (*part.sources, *part.sinks)]
    return external_only(facts, [*named, *facts.global_topics])


def external_only(facts: TopologyFacts, topics: Iterable[str]) -> list[str]:
    """Return unique topics without repartition topics, in the same order."""
    internal = {topic.name for topic in facts.repartition_topics}
    return [topic for topic in dict.fromkeys(topics) if topic not in internal]


_SIMPLE: Final = (str, int, float, bytes, bool, type(None))


def origin_of_store(topology: Topology, store: str) -> tuple[str, ...]:
    """Return the steps from all inputs to a store.

    A generated name contains the number of preceding operators, so another store may get it in the
    next version. The steps distinguish the two, as far as code can be compared.
    """
    users = [
        node
        for node in topology.nodes.values()
        if isinstance(node, ProcessorNode) and store in node.stores
    ]
    return _steps(topology, users)


def origin_of_topic(topology: Topology, topic: str) -> tuple[str, ...]:
    """Return the steps from all inputs to a repartition topic."""
    return _steps(topology, _writers(topology, topic))


def _steps(topology: Topology, ends: Iterable[Node]) -> tuple[str, ...]:
    """Return each step once, sources first.

    Node names are omitted, because they are also generated.
    """
    found: dict[str, Node] = {}
    pending = list(ends)
    while pending:
        node = pending.pop()
        if node.name in found:
            continue
        found[node.name] = node
        if isinstance(node, SourceNode):
            for topic in node.topics:
                pending += _writers(topology, topic) if topic in topology.internal_topics else ()
        else:
            pending += (topology.nodes[parent] for parent in node.parents)
    ordered = (node for name, node in topology.nodes.items() if name in found)
    return tuple(step for node in ordered for step in _step(topology, node))


def _writers(topology: Topology, topic: str) -> list[Node]:
    return [
        node
        for node in topology.nodes.values()
        if isinstance(node, SinkNode) and node.topic == topic
    ]


def _step(topology: Topology, node: Node) -> Iterator[str]:
    if isinstance(node, SourceNode):
        outside = [topic for topic in node.topics if topic not in topology.internal_topics]
        if outside or node.pattern is not None:
            yield ", ".join([*outside, *([node.pattern.pattern] if node.pattern else [])])
    elif isinstance(node, ProcessorNode):
        functions = ", ".join(_functions(node.operation))
        yield f"{type(node.operation).__name__}({functions})"


def _functions(value: Any) -> Iterator[str]:
    """Yield the functions in an operation with their names and fingerprints."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _functions(getattr(value, field.name))
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _functions(each)
    elif isinstance(value, functools.partial):
        yield from _functions(value.func)
    elif callable(value):
        code = getattr(value, "__code__", None)
        fingerprint = (
            "" if code is None else f" {_fingerprint(code, getattr(value, '__closure__', None))}"
        )
        yield f"{function_name(value).rpartition('.')[2]}{fingerprint}"


def _fingerprint(code: CodeType, closure: tuple[Any, ...] | None) -> str:
    """Return a short hash of a function's code, regardless of its line numbers."""
    digest = hashlib.sha256()
    _hash_code(code, digest)
    for cell in closure or ():
        value = cell.cell_contents if _is_filled(cell) else None
        if isinstance(value, _SIMPLE):
            digest.update(repr(value).encode())
    return digest.hexdigest()[:8]


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _hash_code(code: CodeType, digest: Any) -> None:
    digest.update(code.co_code)
    digest.update(repr(code.co_names).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _hash_code(constant, digest)
        elif isinstance(constant, frozenset):
            digest.update(repr(sorted(map(repr, constant))).encode())
        else:
            digest.update(repr(constant).encode())
