"""Optimization: one repartition topic where several operations need the same new key.

After an operation that changes keys, each aggregation or join downstream asks for a repartition
topic of its own. As long as no value has changed in between, all of them hold the same records,
so one topic right after the key-changing operation serves them all (Kafka Streams'
`merge.repartition.topics`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from millstream.serdes import Serde
from millstream.topology.logical.graph_nodes import GraphNode, RepartitionGraphNode
from millstream.topology.logical.repartition import repartition_node
from millstream.topology.naming import Names


def merge_repartition_topics(attached: Iterable[GraphNode], names: Names) -> dict[str, str]:
    """Merge repartition nodes, changing the graph.

    Args:
        attached: all nodes of the graph, in the order of first attaching.
        names: the counter for generated names.

    Returns:
        The source names that are gone, and the one that reads in each one's place.
    """
    replaced: dict[str, str] = {}
    for changer, repartitions in _mergeable(list(attached)).items():
        replaced |= _merge(changer, repartitions, names)
    return replaced


def _mergeable(attached: list[GraphNode]) -> dict[GraphNode, list[RepartitionGraphNode]]:
    """The repartition nodes that each key-changing operation, or merge of such, calls for."""
    groups: dict[GraphNode, list[RepartitionGraphNode]] = {
        node: [] for node in attached if node.changes_key
    }
    for node in attached:
        if isinstance(node, RepartitionGraphNode) and node.optimizable:
            changer = _key_changer_above(node)
            if changer is not None:
                groups[changer].append(node)
    return _moved_below_merges(groups, [node for node in attached if node.merges])


def _moved_below_merges(
    groups: dict[GraphNode, list[RepartitionGraphNode]], merges: list[GraphNode]
) -> dict[GraphNode, list[RepartitionGraphNode]]:
    """The groups with merges in the place of the key-changing operations above them.

    If all repartition nodes of a key-changing operation lie below a merge, the topic must come
    after the merge, or the records of the other input would miss it.
    """
    above = {
        merge: [
            changer
            for changer, repartitions in groups.items()
            if _lies_below(merge, changer)
            and all(_lies_below(repartition, merge) for repartition in repartitions)
        ]
        for merge in merges
    }
    moved = {
        merge: list(dict.fromkeys(node for changer in changers for node in groups[changer]))
        for merge, changers in above.items()
    }
    gone = {changer for changers in above.values() for changer in changers}
    return {changer: group for changer, group in groups.items() if changer not in gone} | moved


def _merge(
    changer: GraphNode, repartitions: list[RepartitionGraphNode], names: Names
) -> dict[str, str]:
    """Put one repartition node right below a key-changing operation, in place of several."""
    entries = {
        repartition: entry
        for repartition in repartitions
        if (entry := _only_entry(changer, repartition)) is not None
    }
    if not entries:
        return {}
    first = next(iter(entries))
    merged = repartition_node(
        names,
        first.topic.name,
        key_serde=_first(node.key_serde for node in entries),
        value_serde=_first(node.value_serde for node in entries),
        declared_at=first.declared_at,
        generated=first.topic.generated,
    )
    # It must be written before whatever else comes below the key-changing operation.
    merged.priority = changer.priority
    for repartition, entry in entries.items():
        if entry in changer.children:
            merged.add_child(entry)
            changer.remove_child(entry)
        _take_out(repartition)
    changer.add_child(merged)
    return {node.name: merged.name for node in entries}


def _only_entry(changer: GraphNode, repartition: GraphNode) -> GraphNode | None:
    """The child of a key-changing operation through which all records reach a repartition node.

    None if there are other ways: a merge may bring in records that would bypass the merged topic
    and be aggregated by the wrong task, or whose values have another type. Kafka Streams merges
    some of these topologies all the same, and fails on some that are merged here ("Found a null
    keyChangingChild node").
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
        if node is not repartition and _makes_others(node):
            return None
        for parent in node.parents:
            if parent is not changer and parent not in seen:
                seen.add(parent)
                waiting.append(parent)
    return entries.pop() if len(entries) == 1 else None


def _makes_others(node: GraphNode) -> bool:
    """Whether records leave it in another topic, or with another key or value."""
    return node.changes_key or node.changes_value or isinstance(node, RepartitionGraphNode)


def _take_out(repartition: GraphNode) -> None:
    """Let the children of a repartition node be children of its parents."""
    for parent in list(repartition.parents):
        for child in repartition.children:
            parent.add_child(child)
    for parent in list(repartition.parents):
        parent.remove_child(repartition)
    for child in list(repartition.children):
        repartition.remove_child(child)


def _key_changer_above(node: GraphNode) -> GraphNode | None:
    """The operation that changed the keys, unless one that changes values comes after it."""
    changer = _find_above(node, lambda above: above.changes_key)
    nearest = _find_above(node, lambda above: above.changes_key or above.changes_value)
    return changer if changer is nearest else None


def _lies_below(node: GraphNode, ancestor: GraphNode) -> bool:
    return _find_above(node, lambda above: ancestor in above.parents) is not None


def _find_above(start: GraphNode, matches: Callable[[GraphNode], bool]) -> GraphNode | None:
    """The node itself or the nearest one above it for which `matches` holds.

    Follows Kafka Streams: where no parent matches, only the last one's ancestors are looked at. The
    names of topics depend on it.
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


def _first(serdes: Iterable[Serde[Any] | None]) -> Serde[Any] | None:
    return next((serde for serde in serdes if serde is not None), None)
