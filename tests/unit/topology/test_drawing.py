"""The SVG drawings of topologies."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import combinations
from xml.etree import ElementTree

import pytest
from support.running.topologies.scored import Scored
from support.running.topologies.shop import shop

from millstream import StreamsBuilder, Topology
from millstream.serdes import STRING
from millstream.topology.physical.drawing import drawing

SVG = "{http://www.w3.org/2000/svg}"


def cyclic() -> Topology:
    """Two sub-topologies that write each other's topics."""
    topology = Topology()
    topology.add_source("read-a", "a").add_sink("write-b", "b", "read-a")
    return topology.add_source("read-b", "b").add_sink("write-a", "a", "read-b")


def unusual_names() -> Topology:
    """Characters with a meaning in XML, a pattern, a long name, and a chosen topic."""
    topology = Topology().add_source('<read> & "rest"', re.compile("a<b|c&d"))
    topology.add_sink("long-" * 30, lambda *_: "out", '<read> & "rest"')
    return topology


def wide() -> Topology:
    """A node with many children, a store with many users, and many outputs."""
    builder = StreamsBuilder()
    words = builder.stream("in", key=STRING, value=STRING)
    for number in range(9):
        words.group_by_key().count(store=f"counts-{number}").to_stream().to(f"out-{number}")
    return builder.build()


class Drawn:
    """The boxes of a drawing by kind and full name."""

    def __init__(self, topology: Topology) -> None:
        self.root = ElementTree.fromstring(drawing(topology.describe().to_dict()))
        self.boxes: dict[tuple[str, str], tuple[float, float, float, float]] = {}
        for group in self.root.iter(f"{SVG}g"):
            name, box = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
            assert name is not None
            assert box is not None
            self.boxes[box.attrib["class"], name.text or ""] = _corners(box)
        self.parts = [
            _corners(each)
            for each in self.root.iter(f"{SVG}rect")
            if each.attrib["class"] == "part"
        ]


def _corners(box: ElementTree.Element) -> tuple[float, float, float, float]:
    x, y, width, height = (float(box.attrib[name]) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def overlap(
    one: tuple[float, float, float, float], other: tuple[float, float, float, float]
) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


@pytest.mark.parametrize(
    "build", [shop, lambda: Scored().streams._topology, cyclic, unusual_names, wide]
)
def test_everything_is_drawn_without_overlap(build: Callable[[], Topology]) -> None:
    """Every node, store and topic, within the drawing; topics outside of sub-topologies."""
    topology = build()
    drawn = Drawn(topology)
    parts = topology.describe().to_dict()
    nodes = [node for part in parts["subtopologies"] for node in part["nodes"]]
    nodes += [node for part in parts.get("global_stores", ()) for node in part["nodes"]]
    assert {node["name"] for node in nodes} <= {
        name for kind, name in drawn.boxes if kind == "node"
    }
    stores = {store for node in nodes for store in node.get("stores", ())}
    assert stores == {name for kind, name in drawn.boxes if kind == "store"}
    topics = {topic for node in nodes for topic in node.get("topics", ())}
    assert topics <= {name for kind, name in drawn.boxes if kind == "topic"}
    boxes = list(drawn.boxes.values())
    assert not [pair for pair in combinations(boxes, 2) if overlap(*pair)]
    assert not [pair for pair in combinations(drawn.parts, 2) if overlap(*pair)]
    outside = [box for (kind, _), box in drawn.boxes.items() if kind == "topic"]
    assert not [box for box in outside if any(overlap(box, part) for part in drawn.parts)]
    width, height = (float(drawn.root.attrib[name]) for name in ("width", "height"))
    for left, top, right, bottom in (*boxes, *drawn.parts):
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height


def test_records_flow_from_top_to_bottom() -> None:
    """From input topics through sub-topologies to output topics."""
    boxes = Drawn(shop()).boxes
    tops = [
        boxes["topic", "orders"][1],
        boxes["node", "KSTREAM-SOURCE-0000000004"][1],
        boxes["node", "KSTREAM-FILTER-0000000005"][1],
        boxes["node", "sold-by-hour-repartition-sink"][1],
        boxes["topic", "sold-by-hour-repartition"][1],
        boxes["node", "sold-by-hour-repartition-source"][1],
        boxes["topic", "sold-by-hour"][1],
    ]
    assert tops == sorted(set(tops))


def test_an_empty_topology_can_be_drawn() -> None:
    assert "no nodes" in "".join(Drawn(Topology()).root.itertext())
