"""Random DSL programs, and the invariants of their topologies."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.dsl.streams_and_tables import KStream
from millstream.topology.operations.streams import FlatMap, Map, SelectKey
from millstream.topology.physical.nodes import ProcessorNode, SinkNode, SourceNode
from millstream.topology.physical.topology import Topology

Stream = KStream[Any, Any]

#: One step of a program: an operation, and the indexes of its input streams.
Step = tuple[str, int, int]
OPERATIONS: dict[str, Callable[[Stream, Stream], list[Stream]]] = {
    "filter": lambda one, other: [one.filter(max)],
    "map": lambda one, other: [one.map(max)],
    "map_values": lambda one, other: [one.map_values(max)],
    "select_key": lambda one, other: [one.select_key(max)],
    "merge": lambda one, other: [one.merge(other)],
    "branch": lambda one, other: one.branch(max, min),
    "repartition": lambda one, other: [one.repartition()],
    "count": lambda one, other: [one.group_by_key().count().to_stream()],
    "count twice": lambda one, other: count_twice(one),
    "group_by": lambda one, other: [one.group_by(max).reduce(max).to_stream()],
}
PROGRAMS = st.lists(
    st.tuples(st.sampled_from(sorted(OPERATIONS)), st.integers(0, 30), st.integers(0, 30)),
    max_size=14,
)


def count_twice(stream: Stream) -> list[Stream]:
    grouped = stream.group_by_key()
    return [grouped.count().to_stream(), grouped.count().to_stream()]


def build(program: list[Step], *, optimize: bool) -> Topology:
    builder = StreamsBuilder(optimize=optimize)
    streams: list[Stream] = [builder.stream("a"), builder.stream("b"), builder.stream("a")]
    for operation, one, other in program:
        streams += OPERATIONS[operation](
            streams[-1 - one % len(streams)], streams[-1 - other % len(streams)]
        )
    streams[-1].to("out")
    return builder.build()


@settings(max_examples=200, deadline=None)
@given(PROGRAMS, st.booleans())
def test_equal_programs_have_equal_topologies(program: list[Step], optimize: bool) -> None:
    """Names and numbers only depend on the program, since they identify state."""
    topologies = [build(program, optimize=optimize) for _ in range(2)]
    assert str(topologies[0].describe()) == str(topologies[1].describe())
    assert topologies[0].internal_topics == topologies[1].internal_topics


@settings(max_examples=200, deadline=None)
@given(PROGRAMS, st.booleans())
def test_subtopologies_are_closed(program: list[Step], optimize: bool) -> None:
    """A sub-topology contains all parents and stores of its nodes; only internal topics connect
    sub-topologies."""
    topology = build(program, optimize=optimize)
    parts = topology._subtopologies()
    assert sorted(node.name for part in parts for node in part.nodes) == sorted(topology.nodes)
    for part in parts:
        seen: set[str] = set()
        for node in part.nodes:
            assert isinstance(node, SourceNode) or seen.issuperset(node.parents)
            seen.add(node.name)
    stores = [name for part in parts for name in part.stores]
    assert sorted(stores) == sorted(topology.state_stores)
    written = [topic for part in parts for topic in part.sink_topics if topic != "out"]
    read = [topic for part in parts for topic in part.repartition_topics]
    assert sorted(written) == sorted(read) == sorted(topology.internal_topics)


@settings(max_examples=200, deadline=None)
@given(PROGRAMS, st.booleans())
def test_repartition_topics_precede_aggregations_after_key_changes(
    program: list[Step], optimize: bool
) -> None:
    """Every path from a key change to an aggregation contains a topic, even if paths merge."""
    topology = build(program, optimize=optimize)
    for node in topology.nodes.values():
        if isinstance(node, ProcessorNode) and node.stores:
            assert upstream_key_changes(topology, node.name) == set()


@settings(max_examples=200, deadline=None)
@given(PROGRAMS, st.booleans())
def test_the_logical_plan_matches_the_physical_topology(
    program: list[Step], optimize: bool
) -> None:
    """Each physical node has a logical node, which follows its parents; plans are reproducible."""
    topology = build(program, optimize=optimize)
    plan = topology._logical_plan
    assert plan is not None
    assert [name for node in plan.nodes for name in node.physical] == list(topology.nodes)
    seen: set[str] = set()
    for node in plan.nodes:
        assert seen.issuperset(node.parents)
        seen.add(node.name)
        upstream = {plan.origin(name).name for name in physical_parents(topology, node.physical)}
        assert upstream == set(node.parents)
    assert plan == build(program, optimize=optimize)._logical_plan


def physical_parents(topology: Topology, names: Collection[str]) -> set[str]:
    """The parents of some nodes, without these nodes themselves."""
    found: set[str] = set()
    for name in names:
        node = topology.nodes[name]
        if not isinstance(node, SourceNode):
            found.update(node.parents)
    return found - set(names)


def upstream_key_changes(topology: Topology, name: str) -> set[str]:
    """The key-changing operations upstream of a node in its sub-topology."""
    found = set()
    waiting = [name]
    while waiting:
        node = topology.nodes[waiting.pop()]
        if isinstance(node, SourceNode):
            continue
        assert not isinstance(node, SinkNode)
        waiting += node.parents
        if isinstance(node.operation, Map | FlatMap | SelectKey):
            found.add(node.name)
    return found
