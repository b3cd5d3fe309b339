"""A stream taken for the changes of a table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic

from millstream.operators.table_source import TableSource
from millstream.record import K, V
from millstream.serdes import Serde
from millstream.topology.arguments import checked_serdes
from millstream.topology.call_site import call_site
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.dsl.table_inner import SourceTable
from millstream.topology.logical.repartition import repartition_node
from millstream.topology.logical.table_nodes import LazyTableGraphNode
from millstream.topology.options.materialized import StoreChoice, key_value_builder, materialized
from millstream.topology.physical.source_names import SourceNames

if TYPE_CHECKING:
    from millstream.topology.dsl.table import KTable


class StreamToTable(Generic[K, V]):
    """`KStream.to_table`."""

    __slots__ = ()

    _part: StreamPart

    def to_table(
        self,
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        store: StoreChoice[K, V] = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Take each record for the new value of its key; one without a value deletes the key.

        Records without a key are dropped. If keys may have changed, this repartitions. The table is
        kept in a store if `store=` names one, or if an operation needs to look into it.

        Args:
            key: the serde of the keys; by default that of the stream.
            value: the serde of the values; by default that of the stream.
            store: where the table is kept.
            name: of the operation, and of the repartition topic if there must be one.

        Raises:
            TopologyError: the store cannot be had, or the name is not legal.

        Example:
            >>> moves = StreamsBuilder().stream("moves", key=STRING, value=STRING)
            >>> whereabouts = moves.to_table(store="whereabouts")
        """
        from millstream.topology.dsl.table import KTable

        checked_serdes("to_table", key=key, value=value)
        part, names = self._part, self._part.graph.names
        node_name = names.processor("KSTREAM-TOTABLE-", name)
        choice = materialized(store)
        builder = key_value_builder(
            choice,
            names,
            "KSTREAM-TOTABLE-",
            key_serde=part.key_serde if key is None else key,
            value_serde=part.value_serde if value is None else value,
        )
        placed = _placed_by_key(part, builder.key_serde, builder.value_serde, node_name, name)
        node = LazyTableGraphNode(
            name=node_name,
            declared_at=call_site(),
            supplier=TableSource,
            lazy_store=builder,
            store_name_generated=choice.store_name is None,
            materialized=choice.store_name is not None,
            output_versioned=choice.is_versioned,
        )
        part.graph.attach(node, placed.node)
        return KTable(
            replace(
                placed, node=node, key_serde=builder.key_serde, value_serde=builder.value_serde
            ),
            queryable_store_name=choice.store_name,
            inner=SourceTable(node),
        )


def _placed_by_key(
    part: StreamPart,
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
    node_name: str,
    name: str | None,
) -> StreamPart:
    """The stream after repartitioning, if keys may have changed."""
    if not part.repartition_required:
        return part
    node = repartition_node(
        part.graph.names,
        node_name,
        key_serde=key_serde,
        value_serde=value_serde,
        declared_at=call_site(),
        generated=name is None,
    )
    part.graph.attach(node, part.node)
    return replace(part, node=node, sources=SourceNames([node.name]), repartition_required=False)
