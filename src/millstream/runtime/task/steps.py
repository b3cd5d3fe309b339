"""The order in which the nodes of a sub-topology process a batch.

A **step** is a group of nodes that run together. Most steps are single nodes, which process the
whole batch. Nodes that share a store must read each other's writes record by record, as must all
nodes on a path between them. They form one step, through which records pass one by one,
depth-first, except at nodes that may process several records together (`independent_nodes`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from millstream.topology.physical.nodes import Node, ProcessorNode, SinkNode, SourceNode


def parents_of(node: Node) -> Sequence[str]:
    """Return the names of a node's parents; none for a source."""
    return () if isinstance(node, SourceNode) else node.parents


def children_of(nodes: Sequence[Node]) -> dict[str, list[str]]:
    """Return the children of each node, in the order in which they were attached."""
    children: dict[str, list[str]] = {node.name: [] for node in nodes}
    for node in nodes:
        for parent in parents_of(node):
            children[parent].append(node.name)
    return children


def plan_steps(nodes: Sequence[Node]) -> list[list[str]]:
    """Return the steps in topological order.

    Two nodes belong to one step if each can be reached from the other, where sharing a store counts
    as an edge in both directions. A step is therefore a strongly connected component of that graph.
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
    """Return the nodes that may process many records before their descendants run.

    A node is independent if it and its descendants in the step share no store with each other:
    then the next record reads the same state even if the results of the previous record have not
    been forwarded yet. The descendants must also receive their records in the same order, so only
    one path may lead to each descendant.
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
    """Return whether records must carry their depth-first position.

    This is the case if paths merge.
    """
    if any(len(step) > 1 for step in plan_steps(nodes)):
        return True
    if any(len(parents_of(node)) > 1 for node in nodes):
        return True
    return bool(sinks_sharing_topics(nodes))


def sinks_sharing_topics(nodes: Sequence[Node]) -> frozenset[str]:
    """Return the sinks that may write to the same topic as another sink."""
    sinks = [node for node in nodes if isinstance(node, SinkNode)]
    if len(sinks) > 1 and any(not isinstance(sink.topic, str) for sink in sinks):
        return frozenset(sink.name for sink in sinks)
    writers = Counter(sink.topic for sink in sinks)
    return frozenset(sink.name for sink in sinks if writers[sink.topic] > 1)


def _components(names: Sequence[str], edges: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Return the strongly connected components in reverse topological order (Tarjan)."""
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
                    component = stack[stack.index(name) :]
                    del stack[-len(component) :]
                    on_stack.difference_update(component)
                    components.append(component)
    return components
