"""`KTable.suppress`: a table whose changes are held back for some time."""

from __future__ import annotations

from dataclasses import replace

from millstream.errors import TopologyError
from millstream.operators.tables.suppress import SuppressedGetter, SuppressLimits
from millstream.operators.tables.value_getter import GetterSupplier
from millstream.state.builders.buffers import SuppressBufferBuilder
from millstream.topology.call_site import call_site
from millstream.topology.dsl.table_part import TableInner, TablePart
from millstream.topology.logical.graph_nodes import GraphNode, OperatorGraphNode, is_versioned
from millstream.topology.naming import checked_name
from millstream.topology.operations.tables import TableSuppress
from millstream.topology.options.suppressed import Suppressed


class SuppressedTable(TableInner):
    """A table with changes held back.

    Args:
        parent: the table as it is.
        store: the name of the buffer.
    """

    def __init__(self, parent: TableInner, store: str) -> None:
        self._parent = parent
        self._store = store

    def getter(self) -> GetterSupplier:
        """Reads the table as downstream knows it."""
        return SuppressedGetter(self._store, self._parent.getter())

    def send_old_values(self, force: bool) -> bool:
        """The buffer keeps what each change replaces."""
        return self._parent.send_old_values(force)


def suppress(table: TablePart, suppressed: Suppressed, name: str | None) -> TablePart:
    """The table with its changes held back.

    Args:
        table: the table.
        suppressed: what is held back, and for how long.
        name: of the operation, unless `suppressed` has one.

    Raises:
        TopologyError: the table is not one of windows, but its results are to wait for the end of
            their windows; the table is versioned; the name is not legal.
    """
    part, site = table.part, call_site()
    if is_versioned(part.node):
        raise TopologyError(
            "The changes of a versioned table cannot be held back, as they may come out of "
            "order. Keep the table in a store of another kind.",
            node=part.name,
            declared_at=site,
        )
    names, buffer = part.graph.names, suppressed.buffer
    if suppressed.name is not None:
        name = suppressed.name
    # A given name takes no numbers: follows Kafka Streams.
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
    table.inner.send_old_values(True)
    node = OperatorGraphNode(
        name=node_name,
        declared_at=site,
        output_versioned=False,
        operation=TableSuppress(store.name, limits),
        store_builder=store,
        store_name_generated=name is None and buffer.logging,
    )
    part.graph.attach(node, part.node)
    held = replace(part, node=node, sources=part.graph.stand_in(part.name, part.sources))
    return TablePart(held, SuppressedTable(table.inner, store.name), None)


def _grace_above(node: GraphNode) -> int:
    """For how long after its end a window may still change, in milliseconds.

    Raises:
        TopologyError: there are no windows on some way to this node.
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
                "Only the results of windows can be held back until their window closes, but this "
                "table does not come from windowed_by(...). Use Suppressed.until_time_limit.",
                node=node.name,
                declared_at=call_site(),
            )
        for parent in above.parents:
            if parent not in seen:
                seen.add(parent)
                waiting.append(parent)
    return longest
