"""The order in which the nodes of a sub-topology work on a batch.

A **step** is what runs at once. Usually it is one node, which takes its whole batch. Nodes that
share a store must see each other's writes record by record, and so must whatever lies on a path
between them: together they form one step, through which records go one by one, depth-first, but
for those that a node may take together (`independent_nodes`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from millstream.topology.physical.nodes import Node, ProcessorNode, SinkNode, SourceNode


def children_of(nodes: Sequence[Node]) -> dict[str, list[str]]:
    """The children of each node, in the order in which they were attached."""
    children: dict[str, list[str]] = {node.name: [] for node in nodes}
    for node in nodes:
        if not isinstance(node, SourceNode):
            for parent in node.parents:
                children[parent].append(node.name)
    return children


def plan_steps(nodes: Sequence[Node]) -> list[list[str]]:
    """The steps in an order in which each comes after all that feed it.

    Two nodes belong to one step if each can be reached from the other, where sharing a store
    counts as an edge in both directions. So a step is a strongly connected component of that graph.
    """
    edges = children_of(nodes)
    sharers: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        if isinstance(node, ProcessorNode):
            for store in node.stores:
                sharers[store].append(node.name)
    for names in sharers.values():
        for one, other in pairwise(names):
            edges[one] = [*edges[one], other]
            edges[other] = [*edges[other], one]
    position = {node.name: index for index, node in enumerate(nodes)}
    return [
        sorted(step, key=position.__getitem__)
        for step in reversed(_components([node.name for node in nodes], edges))
    ]


def independent_nodes(nodes: Sequence[Node], steps: Sequence[Sequence[str]]) -> frozenset[str]:
    """The nodes that may take many records before those of their step that follow them take any.

    That is where the next record at such a node finds the same, whether or not what came of the one
    before has gone on: no two of the node and those that follow it in its step share a store. What
    follows must get its records in the same order, too, so that only one way leads to each.
    """
    children = children_of(nodes)
    stores = {node.name: node.stores for node in nodes if isinstance(node, ProcessorNode)}
    return frozenset(
        name for step in steps for name in step if _is_independent(name, step, children, stores)
    )


def _is_independent(
    name: str,
    step: Sequence[str],
    children: Mapping[str, Sequence[str]],
    stores: Mapping[str, Sequence[str]],
) -> bool:
    reached = [name]
    for one in reached:
        reached += [child for child in children[one] if child in step]
        if len(set(reached)) < len(reached):
            return False
    used = [store for one in reached for store in stores.get(one, ())]
    return len(set(used)) == len(used)


def needs_order(nodes: Sequence[Node]) -> bool:
    """Whether records must carry their place in depth-first order: do paths meet again anywhere?"""
    if any(len(step) > 1 for step in plan_steps(nodes)):
        return True
    if any(not isinstance(node, SourceNode) and len(node.parents) > 1 for node in nodes):
        return True
    return bool(meeting_sinks(nodes))


def meeting_sinks(nodes: Sequence[Node]) -> frozenset[str]:
    """The sinks which write a topic that another sink may write too."""
    sinks = [node for node in nodes if isinstance(node, SinkNode)]
    if len(sinks) > 1 and any(not isinstance(sink.topic, str) for sink in sinks):
        return frozenset(sink.name for sink in sinks)
    writers = Counter(sink.topic for sink in sinks)
    return frozenset(sink.name for sink in sinks if writers[sink.topic] > 1)


def _components(names: Sequence[str], edges: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Tarjan's strongly connected components, each before those that lead to it."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    components: list[list[str]] = []
    for root in reversed(names):
        if root in index:
            continue
        work = [(root, iter(edges[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            name, rest = work[-1]
            for child in rest:
                if child not in index:
                    index[child] = low[child] = len(index)
                    stack.append(child)
                    on_stack.add(child)
                    work.append((child, iter(edges[child])))
                    break
                if child in on_stack:
                    low[name] = min(low[name], index[child])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[name])
                if low[name] == index[name]:
                    components.append(_unwind(stack, on_stack, name))
    return components


def _unwind(stack: list[str], on_stack: set[str], root: str) -> list[str]:
    component: list[str] = []
    while True:
        name = stack.pop()
        on_stack.discard(name)
        component.append(name)
        if name == root:
            return component
