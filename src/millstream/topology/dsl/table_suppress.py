"""`KTable.suppress`: tables with suppressed changes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from millstream.errors import TopologyError
from millstream.operators.tables.suppress import SuppressedGetterSupplier, SuppressLimits
from millstream.operators.tables.value_getter import GetterSupplier
from millstream.state.builders.buffer_builders import SuppressBufferBuilder
from millstream.topology.call_site import call_site
from millstream.topology.dsl.table_access import TableAccess, TablePart
from millstream.topology.logical.graph_nodes import GraphNode, OperatorGraphNode, is_versioned
from millstream.topology.naming import checked_name
from millstream.topology.operations.tables import TableSuppress
from millstream.topology.options.suppressed import Suppressed


@dataclass(frozen=True, slots=True, eq=False)
class SuppressedTable(TableAccess):
    """A table whose suppressed changes are in a buffer."""

    parent: TableAccess
    store: str

    def getter(self) -> GetterSupplier:
        """Return a getter for the values that have been emitted downstream."""
        return SuppressedGetterSupplier(self.store, self.parent.getter())

    def send_old_values(self, force: bool) -> bool:
        """Enable old values in the parent.

        The buffer stores the old value of each change.
        """
        return self.parent.send_old_values(force)


def suppress(table: TablePart, suppressed: Suppressed, name: str | None) -> TablePart:
    """Return the table with its changes suppressed.

    Raises:
        TopologyError: the changes should be suppressed until their windows close, but the table is
            not windowed; the table is versioned; or the name is not legal.
    """
    part, site = table.part, call_site()
    if is_versioned(part.node):
        raise TopologyError(
            "The changes of a versioned table cannot be suppressed, since they may be out of "
            "order. Use another kind of store for the table.",
            node=part.name,
            declared_at=site,
        )
    names, buffer = part.graph.names, suppressed.buffer
    if suppressed.name is not None:
        name = suppressed.name
    # As in Kafka Streams, an explicit name takes no numbers.
    node_name = names.processor("KTABLE-SUPPRESS-") if name is None else checked_name(name)
    limits = SuppressLimits(
        _grace_above(part.node) if suppressed.limit_ms is None else suppressed.limit_ms,
        suppressed.limit_ms is None,
        buffer.record_limit,
        buffer.byte_limit,
        buffer.emits_early,
    )
    store = SuppressBufferBuilder(
        names.store("KTABLE-SUPPRESS-") if name is None else f"{name}-store",
        part.key_serde,
        part.value_serde,
        buffer.logging,
        buffer.topic_config,
    )
    table.access.send_old_values(True)
    node = OperatorGraphNode(
        name=node_name,
        declared_at=site,
        output_versioned=False,
        operation=TableSuppress(store.name, limits),
        store_builder=store,
        store_name_generated=name is None and buffer.logging,
    )
    part.graph.attach(node, part.node)
    suppressed_part = replace(
        part, node=node, sources=part.graph.alias_sources(part.name, part.sources)
    )
    return TablePart(suppressed_part, SuppressedTable(table.access, store.name), None)


def _grace_above(node: GraphNode) -> int:
    """Return how long after its end a window may still change, in milliseconds.

    Raises:
        TopologyError: a path to this node contains no windowed aggregation.
    """
    longest = -1
    waiting, seen = [node], {node}
    while waiting:
        above = waiting.pop()
        if above.grace_ms is not None:
            longest = max(longest, above.grace_ms)
            continue
        if not above.parents:
            raise TopologyError(
                "Only windowed results can be suppressed until their windows close, but this table "
                "does not come from windowed_by(...). Use Suppressed.until_time_limit.",
                node=node.name,
                declared_at=call_site(),
            )
        for parent in above.parents:
            if parent not in seen:
                seen.add(parent)
                waiting.append(parent)
    return longest
