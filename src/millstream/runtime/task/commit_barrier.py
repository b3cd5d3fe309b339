"""Conditions on records in flight at a commit.

At-least-once allows outputs of uncommitted records. However, no record may be in flight downstream
of a cache: the commit flushes the cache, which contains results of records that finished long ago.

Exactly-once allows no results of records at or after the committed offset. If records go directly
to the only concurrent operator, and no results are written before that operator, it is enough to
emit the operator's results in offset order. Otherwise, nothing may be in flight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from millstream.runtime.task.steps import children_of, parents_of
from millstream.topology.operations import streams
from millstream.topology.operations.operation import ConcurrentOperation, Operation
from millstream.topology.physical.nodes import Node, ProcessorNode, SinkNode, SourceNode

#: Operations that immediately emit at most one record per input record and write nothing in the
#: transaction themselves.
_AT_MOST_ONE_RESULT: Final[tuple[type[Operation], ...]] = (
    streams.PassThrough,
    streams.NullKeyFilter,
    streams.Filter,
    streams.Map,
    streams.MapValues,
    streams.MapBatches,
    streams.SelectKey,
    streams.Peek,
)
#: Operations without output.
_TERMINAL: Final[tuple[type[Operation], ...]] = (streams.ForEach, streams.Print)


def concurrent_nodes(nodes: Sequence[Node]) -> list[str]:
    return [
        node.name
        for node in nodes
        if isinstance(node, ProcessorNode) and isinstance(node.operation, ConcurrentOperation)
    ]


def downstream_of(nodes: Sequence[Node], names: Sequence[str]) -> frozenset[str]:
    children = children_of(nodes)
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        for child in children[waiting.pop()]:
            if child not in found:
                found.add(child)
                waiting.append(child)
    return frozenset(found)


def must_drain(nodes: Sequence[Node], *, exactly_once: bool, writes_letters: bool = False) -> bool:
    """Return whether nothing may be in flight at a commit.

    With `writes_letters`, failed records of any node may be written to a dead-letter topic.
    """
    concurrent = concurrent_nodes(nodes)
    if not concurrent:
        return False
    with_stores = {n.name for n in nodes if isinstance(n, ProcessorNode) and n.stores}
    if not downstream_of(nodes, list(with_stores)).isdisjoint(concurrent):
        return True
    return exactly_once and (writes_letters or not _keeps_offset_order(nodes, concurrent))


def _keeps_offset_order(nodes: Sequence[Node], concurrent: Sequence[str]) -> bool:
    if len(concurrent) > 1:
        return False
    (name,) = concurrent
    downstream = downstream_of(nodes, concurrent)
    if name in downstream or max(_paths(nodes, name).values(), default=0) > 1:
        return False
    children = children_of(nodes)
    for node in nodes:
        if node.name == name:
            assert isinstance(node, ProcessorNode)
            if not isinstance(node.operation, streams.MapAsync | streams.MapBatchesAsync):
                # A subscription writes in the order in which its tasks complete, not in offset
                # order.
                return not downstream
            continue
        if node.name in downstream:
            if any(parent != name and parent not in downstream for parent in parents_of(node)):
                return False
        elif isinstance(node, SinkNode):
            return False
        elif isinstance(node, ProcessorNode):
            is_terminal = isinstance(node.operation, _TERMINAL) and not children[node.name]
            if not is_terminal and not isinstance(node.operation, _AT_MOST_ONE_RESULT):
                return False
    return True


def _paths(nodes: Sequence[Node], target: str) -> Mapping[str, int]:
    """Count the paths from each source to a node."""
    children = children_of(nodes)
    counts: Counter[str] = Counter()

    def count_paths(name: str) -> int:
        return 1 if name == target else sum(count_paths(child) for child in children[name])

    for node in nodes:
        if isinstance(node, SourceNode):
            counts[node.name] = count_paths(node.name)
    return counts
