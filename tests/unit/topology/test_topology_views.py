"""Views of a topology other than its text, and their helpers."""

from __future__ import annotations

import pickle
import re

import pytest

from millstream.errors import TopologyError
from millstream.topology.call_site import call_site
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.options.materialized import Materialized
from millstream.topology.physical.java_order import TreeSet, hash_order
from millstream.topology.physical.topology import Topology
from millstream.topology.physical.topology_description import function_name


def count_topology() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream(re.compile('in"<.*'), name="src")
    stream.group_by_key().count(store="counts", name="count").to_stream(name="s").to("o", name="k")
    return builder.build()


def test_to_dict_returns_plain_data() -> None:
    """Suitable for JSON, with all information of the text."""
    (part,) = count_topology().describe().to_dict()["subtopologies"]
    assert part["id"] == 0
    assert part["nodes"] == [
        {"kind": "source", "name": "src", "pattern": 'in"<.*', "successors": ["count"]},
        {
            "kind": "processor",
            "name": "count",
            "stores": ["counts"],
            "predecessors": ["src"],
            "successors": ["s"],
        },
        {
            "kind": "processor",
            "name": "s",
            "stores": [],
            "predecessors": ["count"],
            "successors": ["k"],
        },
        {"kind": "sink", "name": "k", "topic": "o", "predecessors": ["s"]},
    ]


def test_to_mermaid_draws_nodes_topics_and_stores() -> None:
    """Sub-topologies are boxes, and special characters of Mermaid are escaped."""
    assert count_topology().describe().to_mermaid().splitlines() == [
        "flowchart TD",
        '  subgraph sub0["Sub-topology 0"]',
        '    node0["src"]',
        '    node2["count"]',
        '    node3["s"]',
        '    node5["k"]',
        '    store4[("counts")]',
        "  end",
        '  topic1(["in#quot;#lt;.*"])',
        '  topic6(["o"])',
        "  topic1 --> node0",
        "  node0 --> node2",
        "  node2 --> node3",
        "  node2 -.- store4",
        "  node3 --> node5",
        "  node5 --> topic6",
    ]


def test_to_mermaid_contains_the_function_that_chooses_topics() -> None:
    """A dynamic sink leads to a box with the function's name."""
    builder = StreamsBuilder()
    builder.stream("in").to(lambda key, value, context: "out")
    assert "<lambda>" not in builder.build().describe().to_mermaid()
    assert "#lt;lambda>" in builder.build().describe().to_mermaid()


def test_descriptions_of_equal_structures_are_equal() -> None:
    """Regardless of functions and locations."""
    assert count_topology().describe() == count_topology().describe()
    assert count_topology().describe() != Topology().describe()


def test_function_names_contain_no_addresses() -> None:
    """Otherwise the description would differ between runs."""

    class Chooser:
        def __call__(self) -> None: ...

    assert function_name(Chooser()).endswith("Chooser")
    assert function_name(count_topology) == "count_topology"


def test_merges_of_merges_are_described_quickly() -> None:
    """There are 2 to the power of 60 paths; each node must be visited once."""
    builder = StreamsBuilder()
    stream = builder.stream("in")
    for _ in range(60):
        stream = stream.merge(stream.peek(lambda k, v: None))
    stream.group_by(lambda k, v: v).count().to_stream().to("out")
    assert str(builder.build().describe()).count("MERGE") > 60


def test_hash_order_is_that_of_java() -> None:
    """Recorded from java.util.HashSet<String> of JDK 17, filled one by one and copied at once."""
    names = [f"KSTREAM-SINK-{number:010d}" for number in range(12)]
    assert hash_order(["b", "a", "é", "語", "🎉"]) == ["a", "b", "🎉", "é", "語"]
    mixed = ["Counts", "grp-repartition-filter", "KSTREAM-MERGE-0000000010", "store-7", "a.b_1"]
    assert hash_order(mixed) == [mixed[0], mixed[2], mixed[4], mixed[3], mixed[1]]
    numbers = [int(name[-2:]) for name in hash_order(names)]
    assert numbers == [3, 2, 1, 0, 11, 7, 6, 5, 4, 9, 8, 10]
    numbers = [int(name[-2:]) for name in hash_order(names, copied=True)]
    assert numbers == [9, 8, 3, 2, 1, 0, 11, 7, 6, 5, 4, 10]
    # Equal hash codes: in the order of insertion.
    assert hash_order(["Aa", "BB"]) == ["Aa", "BB"]
    assert hash_order(["BB", "Aa", "BB"]) == ["BB", "Aa"]


def test_tree_set_sorts_if_its_order_does_not_change() -> None:
    """1,000 names in an unfavorable order are sorted, without duplicates."""
    names = [f"{number * 7919 % 1000:03d}" for number in range(1000)]
    tree = TreeSet(lambda one, other: one < other)
    for name in [*names, *names]:
        tree.add(name)
    assert list(tree) == sorted(names)


def test_call_site_is_the_line_of_the_user() -> None:
    """Not a line of Millstream, even through code that a dataclass generated."""
    assert re.fullmatch(r".*test_topology_views\.py:\d+", call_site())
    with pytest.raises(TopologyError, match=r"test_topology_views\.py:\d+\)$"):
        Materialized("a b")


def test_pickled_errors_keep_their_location() -> None:
    """They are sent from workers to the driver."""
    error = TopologyError("Broken.", node="n", topic="t", declared_at="shop.py:31")
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == "Broken. (node n, topic t, declared at shop.py:31)"
    assert copy.declared_at == "shop.py:31"
