"""Optimization: one repartition topic for operations that need the same new keys.

After an operation that changes keys, each aggregation or join downstream requires its own
repartition topic. If values do not change in between, all these topics contain the same records, so
they can be replaced with one topic right after the key-changing operation (Kafka Streams'
`merge.repartition.topics`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from millstream.topology.logical.graph_nodes import (
    GraphNode,
    RepartitionGraphNode,
    repartition_node,
)
from millstream.topology.naming import NameGenerator


def merge_repartition_topics(attached: Iterable[GraphNode], names: NameGenerator) -> dict[str, str]:
    """Merge repartition nodes; return the replacement of each removed source.

    Args:
        attached: all nodes of the graph, in the order in which they were first attached.
    """
    replaced: dict[str, str] = {}
    for changer, repartitions in _merge_candidates(list(attached)).items():
        replaced |= _merge(changer, repartitions, names)
    return replaced


def _merge_candidates(attached: list[GraphNode]) -> dict[GraphNode, list[RepartitionGraphNode]]:
    """Return the repartition nodes below each key-changing operation or merge."""
    groups: dict[GraphNode, list[RepartitionGraphNode]] = {
        node: [] for node in attached if node.changes_key
    }
    for node in attached:
        if isinstance(node, RepartitionGraphNode) and node.optimizable:
            changer = _key_changer_above(node)
            if changer is not None:
                groups[changer].append(node)
    return _moved_below_merges(groups, [node for node in attached if node.is_merge])


def _moved_below_merges(
    groups: dict[GraphNode, list[RepartitionGraphNode]], merges: list[GraphNode]
) -> dict[GraphNode, list[RepartitionGraphNode]]:
    """Replace key-changing operations in the groups with the merges below them.

    If all repartition nodes of a key-changing operation are below a merge, the topic must come
    after the merge. Otherwise it would miss the records of the other input.
    """
    above = {
        merge: [
            changer
            for changer, repartitions in groups.items()
            if _is_below(merge, changer)
            and all(_is_below(repartition, merge) for repartition in repartitions)
        ]
        for merge in merges
    }
    moved = {
        merge: list(dict.fromkeys(node for changer in changers for node in groups[changer]))
        for merge, changers in above.items()
    }
    replaced = {changer for changers in above.values() for changer in changers}
    return {changer: group for changer, group in groups.items() if changer not in replaced} | moved


def _merge(
    changer: GraphNode, repartitions: list[RepartitionGraphNode], names: NameGenerator
) -> dict[str, str]:
    """Replace repartition nodes with one right below the key-changing operation."""
    entries = {
        repartition: entry
        for repartition in repartitions
        if (entry := _single_entry(changer, repartition)) is not None
    }
    if not entries:
        return {}
    first = next(iter(entries))
    merged = repartition_node(
        names,
        first.topic.name,
        key_serde=next((node.key_serde for node in entries if node.key_serde), None),
        value_serde=next((node.value_serde for node in entries if node.value_serde), None),
        declared_at=first.declared_at,
        generated=first.topic.generated,
    )
    # The merged node must be written before the other children of the key-changing operation.
    merged.priority = changer.priority
    for repartition, entry in entries.items():
        if entry in changer.children:
            merged.add_child(entry)
            changer.remove_child(entry)
        _bypass(repartition)
    changer.add_child(merged)
    return {node.name: merged.name for node in entries}


def _single_entry(changer: GraphNode, repartition: GraphNode) -> GraphNode | None:
    """Return the changer's only child on the paths to a repartition node.

    The changer is a key-changing operation. The result is None if there are other paths: a merge
    may add records that would bypass the merged topic and be aggregated by the wrong task, or that
    have values of another type. Kafka Streams merges some of these topologies anyway, and fails for
    some that are merged here ("Found a null keyChangingChild node").
    """
    entries: set[GraphNode] = set()
    seen: set[GraphNode] = {repartition}
    waiting: list[GraphNode] = [repartition]
    while waiting:
        node = waiting.pop()
        if changer in node.parents:
            entries.add(node)
        elif not node.parents:
            return None
        if node is not repartition and _changes_records(node):
            return None
        for parent in node.parents:
            if parent is not changer and parent not in seen:
                seen.add(parent)
                waiting.append(parent)
    return entries.pop() if len(entries) == 1 else None


def _changes_records(node: GraphNode) -> bool:
    """Return whether a node changes the topic, key or value of records."""
    return node.changes_key or node.changes_value or isinstance(node, RepartitionGraphNode)


def _bypass(repartition: GraphNode) -> None:
    """Attach the children of a repartition node to its parents, and detach the node."""
    for parent in list(repartition.parents):
        for child in repartition.children:
            parent.add_child(child)
    for parent in list(repartition.parents):
        parent.remove_child(repartition)
    for child in list(repartition.children):
        repartition.remove_child(child)


def _key_changer_above(node: GraphNode) -> GraphNode | None:
    """Return the operation that changed the keys.

    Returns None if a value-changing operation follows it.
    """
    changer = _find_above(node, lambda above: above.changes_key)
    nearest = _find_above(node, lambda above: above.changes_key or above.changes_value)
    return changer if changer is nearest else None


def _is_below(node: GraphNode, ancestor: GraphNode) -> bool:
    return _find_above(node, lambda above: ancestor in above.parents) is not None


def _find_above(start: GraphNode, matches: Callable[[GraphNode], bool]) -> GraphNode | None:
    """Return the node itself or its nearest ancestor for which `matches` holds.

    As in Kafka Streams, if no parent matches, only the ancestors of the last parent are searched.
    The names of topics depend on this.
    """
    if matches(start):
        return start
    node = start
    while node.parents:
        for parent in node.parents:
            if matches(parent):
                return parent
        node = node.parents[-1]
    return None
