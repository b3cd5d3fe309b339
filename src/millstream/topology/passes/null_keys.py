"""Which repartition topics take records without a key (KIP-962).

Such a record belongs to no task, so usually none is sent. But a left or outer join of a stream has
a result for it, and whatever lies between the join and its origin must let it pass.
"""

from __future__ import annotations

from millstream.topology.logical.graph_nodes import GraphNode, RepartitionGraphNode


def let_null_keys_pass(root: GraphNode) -> None:
    """Open the repartition nodes that have such a join anywhere below them.

    Args:
        root: of the graph, after optimizing, which replaces repartition nodes.
    """
    waiting = [node for node in _below(root) if node.takes_null_keys]
    above = set(waiting)
    while waiting:
        for parent in waiting.pop().parents:
            if parent not in above:
                above.add(parent)
                waiting.append(parent)
            if isinstance(parent, RepartitionGraphNode):
                parent.keeps_null_keys = True


def _below(root: GraphNode) -> set[GraphNode]:
    found = {root}
    waiting = [root]
    while waiting:
        for child in waiting.pop().children:
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found
