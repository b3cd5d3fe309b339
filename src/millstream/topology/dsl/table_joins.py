"""What a table can be joined with: another table, by its own key or by a foreign key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from millstream.operators.table_join import Side, TableJoin, TableJoinMerge
from millstream.operators.value_getter import JoinedGetter
from millstream.record import K, V
from millstream.serdes import Serde
from millstream.topology.arguments import check_same_builder, checked_function
from millstream.topology.call_site import call_site
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.dsl.table_inner import JoinedTable, TableInner
from millstream.topology.logical.table_nodes import TableGraphNode, is_versioned
from millstream.topology.naming import suffixed_name
from millstream.topology.options.materialized import StoreChoice, key_value_builder, materialized
from millstream.topology.physical.topology import Topology

if TYPE_CHECKING:
    from millstream.topology.dsl.table import KTable

K2 = TypeVar("K2")
V2 = TypeVar("V2")
R = TypeVar("R")

#: What the two tables of a join do without a partner.
_SIDES: dict[str, tuple[Side, Side]] = {
    "join": ("inner", "inner"),
    "left_join": ("left", "right"),
    "outer_join": ("outer", "outer"),
}


class TableJoins(Generic[K, V]):
    """The joins of a `KTable`."""

    __slots__ = ()

    _part: StreamPart
    _inner: TableInner

    @overload
    def join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V, V2], R | None],
        *,
        foreign_key: None = None,
        store: StoreChoice[K, R] = None,
        name: str | None = None,
    ) -> KTable[K, R]: ...
    @overload
    def join(
        self,
        other: KTable[K2, V2],
        joiner: Callable[[V, V2], R | None],
        *,
        foreign_key: Callable[[V], K2 | None],
        with_key: Literal[False] = False,
        store: StoreChoice[K, R] = None,
        name: str | None = None,
    ) -> KTable[K, R]: ...
    @overload
    def join(
        self,
        other: KTable[K2, V2],
        joiner: Callable[[V, V2], R | None],
        *,
        foreign_key: Callable[[K, V], K2 | None],
        with_key: Literal[True],
        store: StoreChoice[K, R] = None,
        name: str | None = None,
    ) -> KTable[K, R]: ...
    def join(
        self,
        other: KTable[Any, Any],
        joiner: Callable[[Any, Any], Any],
        *,
        foreign_key: Callable[..., Any] | None = None,
        with_key: bool = False,
        store: StoreChoice = None,
        name: str | None = None,
    ) -> KTable[K, Any]:
        """The rows that both tables have, with their values joined.

        Whichever table changes, the row changes. Without a foreign key, rows of equal keys belong
        together, and the topics of both tables must have equally many partitions. With one, a row
        of this table belongs to the row of the other one whose key `foreign_key` gives, and the
        result has the keys of this table.

        Kafka Streams' `KTable.join`. Changes of a versioned table that are not the newest are
        dropped.

        Args:
            other: a table of the same builder.
            joiner: `(value, other_value) -> value`; None for no row.
            foreign_key: `value -> key of the other table`, or `(key, value) -> …` with
                `with_key=True`; None for a row that refers to nothing.
            with_key: whether `foreign_key` wants to see the key.
            store: where the result is kept, if it is to be; it should bring the serde of its
                values.
            name: of the operation.

        Raises:
            TopologyError: the tables belong to different builders, or the store cannot be had.

        Example:
            >>> builder = StreamsBuilder()
            >>> names = builder.table("names", key=STRING, value=STRING)
            >>> towns = builder.table("towns", key=STRING, value=STRING)
            >>> people = names.join(towns, lambda name, town: f"{name} of {town}")
        """
        return self._joined("join", other, joiner, foreign_key, with_key, store, name)

    @overload
    def left_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V, V2 | None], R | None],
        *,
        foreign_key: None = None,
        store: StoreChoice[K, R] = None,
        name: str | None = None,
    ) -> KTable[K, R]: ...
    @overload
    def left_join(
        self,
        other: KTable[K2, V2],
        joiner: Callable[[V, V2 | None], R | None],
        *,
        foreign_key: Callable[[V], K2 | None],
        with_key: Literal[False] = False,
        store: StoreChoice[K, R] = None,
        name: str | None = None,
    ) -> KTable[K, R]: ...
    @overload
    def left_join(
        self,
        other: KTable[K2, V2],
        joiner: Callable[[V, V2 | None], R | None],
        *,
        foreign_key: Callable[[K, V], K2 | None],
        with_key: Literal[True],
        store: StoreChoice[K, R] = None,
        name: str | None = None,
    ) -> KTable[K, R]: ...
    def left_join(
        self,
        other: KTable[Any, Any],
        joiner: Callable[[Any, Any], Any],
        *,
        foreign_key: Callable[..., Any] | None = None,
        with_key: bool = False,
        store: StoreChoice = None,
        name: str | None = None,
    ) -> KTable[K, Any]:
        """As `join`, with every row of this table: without a partner it is joined with None.

        Kafka Streams' `KTable.leftJoin`.

        Args:
            other: as for `join`.
            joiner: as for `join`; the other value may be None.
            foreign_key: as for `join`.
            with_key: as for `join`.
            store: as for `join`.
            name: as for `join`.

        Raises:
            TopologyError: as for `join`.

        Example:
            >>> builder = StreamsBuilder()
            >>> names = builder.table("names", key=STRING, value=STRING)
            >>> towns = builder.table("towns", key=STRING, value=STRING)
            >>> people = names.left_join(towns, lambda name, town: f"{name} of {town or 'nowhere'}")
        """
        return self._joined("left_join", other, joiner, foreign_key, with_key, store, name)

    def outer_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V | None, V2 | None], R | None],
        *,
        store: StoreChoice[K, R] = None,
        name: str | None = None,
    ) -> KTable[K, R]:
        """As `join`, with every row of either table: without a partner it is joined with None.

        Kafka Streams' `KTable.outerJoin`.

        Args:
            other: a table of the same builder.
            joiner: `(value, other_value) -> value`; one of the two may be None.
            store: as for `join`.
            name: of the operation.

        Raises:
            TopologyError: as for `join`.

        Example:
            >>> builder = StreamsBuilder()
            >>> web = builder.table("web-visits", key=STRING, value=LONG)
            >>> app = builder.table("app-visits", key=STRING, value=LONG)
            >>> visits = web.outer_join(app, lambda one, other: (one or 0) + (other or 0))
        """
        return self._joined("outer_join", other, joiner, None, False, store, name)

    def _joined(
        self,
        operation: str,
        other: KTable[Any, Any],
        joiner: Callable[[Any, Any], Any],
        foreign_key: Callable[..., Any] | None,
        with_key: bool,
        store: StoreChoice,
        name: str | None,
    ) -> KTable[K, Any]:
        from millstream.topology.dsl.table import KTable

        if not isinstance(other, KTable):
            raise TypeError(
                f"{operation}() of a table needs another KTable, but got {type(other).__name__}. "
                "To join the changes of a table with a stream, begin with the stream."
            )
        checked_function(operation, "joiner", joiner, "value", "other_value")
        if foreign_key is None:
            if with_key:
                raise TypeError(f"{operation}(with_key=True) needs foreign_key=... as well.")
            return _join_by_key(self, other, joiner, operation, store, name)
        from millstream.topology.dsl.foreign_key_join import foreign_key_join

        this: Any = self
        return foreign_key_join(
            this,
            other,
            joiner,
            foreign_key=foreign_key,
            with_key=with_key,
            left_join=operation == "left_join",
            store=store,
            name=name,
        )


def _join_by_key(
    this: TableJoins[Any, Any],
    other: KTable[Any, Any],
    joiner: Callable[[Any, Any], Any],
    operation: str,
    store: StoreChoice,
    name: str | None,
) -> KTable[Any, Any]:
    """The join of two tables whose rows of equal keys belong together.

    Numbers go to the store, if `store=` leaves its name open, to the node that merges, and to the
    nodes of this and the other table: in this order, which is Kafka Streams'.
    """
    part, names = this._part, this._part.graph.names
    check_same_builder(part.graph, other._part.graph, "joined")
    choice = None if store is None else materialized(store)
    key_serde, builder = part.key_serde, None
    if choice is not None:
        builder = key_value_builder(
            choice, names, "KTABLE-MERGE-", key_serde=key_serde, value_serde=None
        )
        key_serde = builder.key_serde
    kept_in = None if builder is None else builder.name
    merger = names.processor("KTABLE-MERGE-", name)
    part.graph.copartition(part.sources.united(other._part.sources))
    this_side, other_side = _SIDES[operation]
    if this_side != "inner":
        this._inner.send_old_values(True)
    if this_side == "outer":
        other._inner.send_old_values(True)
    mirrored = partial(_mirrored, joiner)
    this_getter, other_getter = this._inner.getter(), other._inner.getter()
    node = _JoinGraphNode(
        name=merger,
        declared_at=call_site(),
        supplier=partial(TableJoinMerge, store=kept_in),
        output_versioned=choice is not None and choice.is_versioned,
        store_builder=builder,
        value_serde=None if builder is None else builder.value_serde,
        store_name_generated=choice is not None and choice.store_name is None,
        this_side=TableGraphNode(
            name=suffixed_name(names, name, "-join-this", "KTABLE-JOINTHIS-"),
            declared_at=call_site(),
            supplier=partial(TableJoin, other_getter, joiner, this_side),
            store_names=other_getter.stores,
        ),
        other_side=TableGraphNode(
            name=suffixed_name(names, name, "-join-other", "KTABLE-JOINOTHER-"),
            declared_at=call_site(),
            supplier=partial(TableJoin, this_getter, mirrored, other_side),
            store_names=this_getter.stores,
        ),
    )
    part.graph.attach(node, part.node, other._part.node)
    return _joined_table(this, other, joiner, operation, node, key_serde)


def _joined_table(
    this: TableJoins[Any, Any],
    other: KTable[Any, Any],
    joiner: Callable[[Any, Any], Any],
    operation: str,
    node: _JoinGraphNode,
    key_serde: Serde[Any] | None,
) -> KTable[Any, Any]:
    """The table that comes out of a join's node."""
    from millstream.topology.dsl.table import KTable

    builder = node.store_builder
    kept_in = None if builder is None else builder.name
    computed = partial(
        JoinedGetter,
        joiner=joiner,
        needs_left=operation != "outer_join",
        needs_right=operation == "join",
    )
    return KTable(
        replace(
            this._part,
            node=node,
            key_serde=key_serde,
            value_serde=node.value_serde,
            sources=this._part.sources.united(other._part.sources),
            repartition_required=False,
        ),
        queryable_store_name=kept_in,
        inner=JoinedTable(
            node,
            (node.this_side, node.other_side),
            (this._inner, other._inner),
            computed,
            kept_in,
        ),
    )


@dataclass(eq=False, slots=True, kw_only=True)
class _JoinGraphNode(TableGraphNode):
    """A join of two tables: a node for the changes of each, and one that merges the results.

    Args:
        this_side: joins the changes of this table; not in the graph itself.
        other_side: joins the changes of the other one.
        value_serde: of the results, if they are kept.
    """

    this_side: TableGraphNode
    other_side: TableGraphNode
    value_serde: Serde[Any] | None

    def write(self, topology: Topology) -> None:
        """Three processor nodes; the last one may have a store."""
        # A table joined with itself is the only parent.
        sides = ((self.this_side, self.parents[0]), (self.other_side, self.parents[-1]))
        for side, table in sides:
            make: Callable[..., Any] = side.complete_supplier()
            supplier = partial(make, versioned=is_versioned(table))
            topology.add_processor(side.name, supplier, table.name, declared_at=side.declared_at)
        names = [side.name for side, _ in sides]
        topology.add_processor(
            self.name, self.complete_supplier(), names, declared_at=self.declared_at
        )
        for side, _ in sides:
            topology.connect_processor_and_state_stores(side.name, *side.store_names)
        if self.store_builder is not None:
            topology.add_state_store(
                self.store_builder, self.name, generated_name=self.store_name_generated
            )


def _mirrored(joiner: Callable[[Any, Any], Any], value: Any, other_value: Any) -> Any:
    """The joiner for the changes of the other table."""
    return joiner(other_value, value)
