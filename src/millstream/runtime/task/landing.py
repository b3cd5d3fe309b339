"""Where operators work beside the loop: what must be so at a commit?

At-least-once allows outputs of records that are not committed, but nothing behind a cache may be in
flight: the cache is flushed for the commit, of records whose offsets are long done.

Exactly-once allows no effect of a record behind the committed offset. Where a record goes straight
to the one operator, and has no effect before that, results that go on in the order of the offsets
are enough. Elsewhere nothing may be in flight at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from millstream.runtime.task.steps import children_of
from millstream.topology.operations import streams
from millstream.topology.operations.operation import ApartOperation, Operation
from millstream.topology.physical.nodes import Node, ProcessorNode, SinkNode, SourceNode

#: They make of a record at most one, at once, and touch nothing that a transaction holds.
_STRAIGHT: Final[tuple[type[Operation], ...]] = (
    streams.PassThrough,
    streams.NullKeyFilter,
    streams.Filter,
    streams.Map,
    streams.MapValues,
    streams.MapBatches,
    streams.SelectKey,
    streams.Peek,
)
#: They end there.
_ENDS: Final[tuple[type[Operation], ...]] = (streams.ForEach, streams.Print)


def apart_nodes(nodes: Sequence[Node]) -> list[str]:
    """The nodes whose work goes on beside the loop."""
    return [
        node.name
        for node in nodes
        if isinstance(node, ProcessorNode) and isinstance(node.operation, ApartOperation)
    ]


def behind(nodes: Sequence[Node], names: Sequence[str]) -> frozenset[str]:
    """The nodes that records come to by way of one of these."""
    children = children_of(nodes)
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        for child in children[waiting.pop()]:
            if child not in found:
                found.add(child)
                waiting.append(child)
    return frozenset(found)


def must_land(nodes: Sequence[Node], *, exactly_once: bool, writes_letters: bool = False) -> bool:
    """Whether nothing may be in flight at a commit.

    Args:
        nodes: of the sub-topology.
        exactly_once: whether the commit is a transaction.
        writes_letters: whether the records that fail may be written somewhere, wherever they do.
    """
    apart = apart_nodes(nodes)
    if not apart:
        return False
    with_stores = {n.name for n in nodes if isinstance(n, ProcessorNode) and n.stores}
    if not behind(nodes, list(with_stores)).isdisjoint(apart):
        return True
    return exactly_once and (writes_letters or not _goes_straight(nodes, apart))


def _goes_straight(nodes: Sequence[Node], apart: Sequence[str]) -> bool:
    if len(apart) > 1:
        return False
    (name,) = apart
    later = behind(nodes, apart)
    if name in later or max(_paths(nodes, name).values(), default=0) > 1:
        return False
    children = children_of(nodes)
    for node in nodes:
        if node.name == name:
            assert isinstance(node, ProcessorNode)
            if not isinstance(node.operation, streams.MapAsync | streams.MapBatchesAsync):
                # A subscription writes as its tasks end, not in the order of their offsets.
                return not later
            continue
        if node.name in later:
            if any(parent != name and parent not in later for parent in _parents(node)):
                return False
        elif isinstance(node, SinkNode):
            return False
        elif isinstance(node, ProcessorNode):
            ends = isinstance(node.operation, _ENDS) and not children[node.name]
            if not ends and not isinstance(node.operation, _STRAIGHT):
                return False
    return True


def _parents(node: Node) -> Sequence[str]:
    return () if isinstance(node, SourceNode) else node.parents


def _paths(nodes: Sequence[Node], to: str) -> Mapping[str, int]:
    """By source, on how many ways its records come to a node."""
    children = children_of(nodes)
    counts: Counter[str] = Counter()

    def ways(name: str) -> int:
        return 1 if name == to else sum(ways(child) for child in children[name])

    for node in nodes:
        if isinstance(node, SourceNode):
            counts[node.name] = ways(node.name)
    return counts
