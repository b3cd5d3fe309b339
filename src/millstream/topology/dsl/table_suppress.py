"""`KTable.suppress`: a table whose changes are held back for some time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Generic

from millstream.errors import TopologyError
from millstream.operators.suppress import SuppressedGetter, SuppressLimits, TableSuppress
from millstream.operators.value_getter import GetterSupplier
from millstream.record import K, V
from millstream.state.buffers.builders import SuppressBufferBuilder
from millstream.topology.call_site import call_site
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.dsl.table_inner import TableInner
from millstream.topology.logical.graph_nodes import GraphNode, OperatorGraphNode
from millstream.topology.logical.table_nodes import is_versioned
from millstream.topology.naming import checked_name
from millstream.topology.options.suppressed import Suppressed

if TYPE_CHECKING:
    from millstream.topology.dsl.table import KTable


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


class TableSuppression(Generic[K, V]):
    """What a `KTable` can do about too many changes."""

    __slots__ = ()

    _part: StreamPart
    _inner: TableInner

    def suppress(self, suppressed: Suppressed, *, name: str | None = None) -> KTable[K, V]:
        """Hold changes back: until a window closes, or for some time.

        Only the latest change of a key comes out, at once when stream time (the highest time seen
        here) says so; if no records come any more, nothing comes out any more. What is held back is
        in memory, and in a changelog from which it is restored.

        Kafka Streams' `KTable.suppress`.

        Args:
            suppressed: from `Suppressed.until_window_closes` or `Suppressed.until_time_limit`.
            name: of the operation, unless `suppressed` has one; its store is called `<name>-store`.

        Raises:
            TopologyError: the table is not one of windows, but its results are to wait for the
                end of their windows; the table is versioned; the name is not legal.

        Example:
            >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING)
            >>> per_minute = clicks.group_by_key().windowed_by(TimeWindows(timedelta(minutes=1)))
            >>> final = per_minute.count().suppress(
            ...     Suppressed.until_window_closes(BufferConfig.unbounded())
            ... )
        """
        from millstream.topology.dsl.table import KTable

        if not isinstance(suppressed, Suppressed):
            raise TypeError(
                "suppress() needs Suppressed.until_window_closes(...) or "
                f"Suppressed.until_time_limit(...), but got {suppressed!r}."
            )
        part, site = self._part, call_site()
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
        self._inner.send_old_values(True)
        node = OperatorGraphNode(
            name=node_name,
            declared_at=site,
            output_versioned=False,
            supplier=partial(TableSuppress, store.name, limits),
            store_builder=store,
            store_name_generated=name is None and buffer.logging,
        )
        part.graph.attach(node, part.node)
        held = replace(part, node=node, sources=part.graph.stand_in(part.name, part.sources))
        inner = SuppressedTable(self._inner, store.name)
        return KTable(held, queryable_store_name=None, inner=inner)


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
