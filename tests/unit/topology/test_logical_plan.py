"""The logical plan of a program in its topology."""

from __future__ import annotations

from datetime import timedelta

import cloudpickle
import pytest

from millstream import Stores, StreamsBuilder, TimeWindows, Topology
from millstream.serdes import LONG, STRING
from millstream.topology.logical_plan import LogicalPlan
from millstream.topology.operations.aggregations import WindowCount
from millstream.topology.operations.streams import FlatMapValues, SelectKey
from millstream.topology.physical.nodes import ProcessorNode


def word_count(*, optimize: bool = False) -> Topology:
    builder = StreamsBuilder(optimize=optimize)
    lines = builder.stream("lines", key=STRING, value=STRING, name="lines")
    words = lines.flat_map_values(str.split, name="words")
    grouped = words.group_by(max, key=STRING, name="by-word")
    windows = TimeWindows(timedelta(minutes=1), grace=timedelta(seconds=5))
    counts = grouped.windowed_by(windows).count(store="counts", name="count")
    counts.to_stream(name="changes").to("out", name="write")
    return builder.build()


def plan_of(topology: Topology) -> LogicalPlan:
    assert topology._logical_plan is not None
    return topology._logical_plan


def test_plan_contains_the_program_in_order() -> None:
    """Names, parents, flags, stores and locations are those of the program."""
    plan = plan_of(word_count())
    assert [(node.kind, node.name) for node in plan.nodes] == [
        ("source", "lines"),
        ("operation", "words"),
        ("operation", "by-word"),
        ("repartition", "by-word-repartition-source"),
        ("operation", "count"),
        ("operation", "changes"),
        ("sink", "write"),
    ]
    assert plan["lines"].topics == ("lines",)
    assert plan["words"].changes_value
    assert plan["words"].parents == ("lines",)
    assert plan["words"].operations == (FlatMapValues(str.split),)
    assert plan["by-word"].changes_key
    assert plan["by-word"].operations == (SelectKey(max),)
    assert plan["count"].grace_ms == 5000
    assert plan["count"].stores == ("counts",)
    assert isinstance(plan["count"].operations[0], WindowCount)
    assert [node.name for node in plan.children("count")] == ["changes"]
    assert all("test_logical_plan.py:" in node.declared_at for node in plan.nodes)


def test_each_physical_node_has_one_origin() -> None:
    """Each node of the topology is contained once, and operations are those of the nodes."""
    topology = word_count()
    plan = plan_of(topology)
    assert [name for node in plan.nodes for name in node.physical] == list(topology.nodes)
    assert plan.origin("by-word-repartition-filter") is plan["by-word-repartition-source"]
    for name, node in topology.nodes.items():
        if isinstance(node, ProcessorNode):
            assert any(node.operation is each for each in plan.origin(name).operations)


def test_plan_is_the_result_of_the_optimizations() -> None:
    """Merged sources and repartition topics are one node, the parent of all nodes that use it."""
    builder = StreamsBuilder(optimize=True)
    keyed = builder.stream("in", key=STRING, value=STRING).select_key(max)
    builder.stream("in", key=STRING, value=STRING).to("copy")
    keyed.group_by_key().count(store="one")
    keyed.group_by_key().count(store="two")
    kinds = [node.kind for node in plan_of(builder.build()).nodes]
    assert kinds.count("source") == 1
    assert kinds.count("repartition") == 1


def test_stores_and_global_tables() -> None:
    """A store that is only added, a global table, and a table."""
    builder = StreamsBuilder()
    builder.add_state_store(
        Stores.key_value_builder(Stores.in_memory_key_value("own"), STRING, LONG)
    )
    builder.global_table("countries", store="by-code", name="countries")
    builder.table("towns", store="by-name", name="towns")
    plan = plan_of(builder.build())
    assert [(node.kind, node.name, node.stores, node.topics) for node in plan.nodes] == [
        ("store", "own", ("own",), ()),
        ("global_store", "countries", ("by-code",), ("countries",)),
        ("table_source", "towns", ("by-name",), ("towns",)),
    ]
    assert plan["countries"].physical == ("countries-source", "countries")
    with pytest.raises(KeyError):
        plan["own"]


def test_plan_is_not_sent_to_workers() -> None:
    """The pickled copy has no plan; the original topology keeps it."""
    topology = word_count()
    copy = cloudpickle.loads(cloudpickle.dumps(topology))
    assert copy._logical_plan is None
    assert copy.nodes == topology.nodes
    assert plan_of(topology).nodes


def test_topology_without_a_builder_has_no_plan() -> None:
    """Its nodes are the whole program."""
    assert Topology().add_source("read", "in")._logical_plan is None
