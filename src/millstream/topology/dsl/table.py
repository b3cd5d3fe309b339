"""A table: the latest value of each key, as it changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, overload

from millstream.operators import TableToStream
from millstream.operators.table_aggregate import TableSelect
from millstream.operators.table_stateless import TableFilter, TableMapValues
from millstream.operators.table_transform import (
    TRANSFORMER_METHODS,
    TableTransformValues,
    TransformedGetter,
)
from millstream.operators.value_getter import FilteredGetter, GetterSupplier, MappedGetter
from millstream.record import K, V
from millstream.serdes import Serde
from millstream.topology.arguments import (
    checked_function,
    checked_serdes,
    store_names,
    wrong_type,
)
from millstream.topology.call_site import call_site
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.dsl.table_inner import DerivedTable, TableInner
from millstream.topology.dsl.table_joins import TableJoins
from millstream.topology.dsl.table_suppress import TableSuppression
from millstream.topology.logical.graph_nodes import OperatorGraphNode
from millstream.topology.logical.table_nodes import TableGraphNode
from millstream.topology.naming import checked_name
from millstream.topology.options.materialized import StoreChoice, key_value_builder, materialized
from millstream.unawaited import asynchronous_advice, asynchronous_method

if TYPE_CHECKING:
    from millstream.topology.dsl.grouped_table import KGroupedTable
    from millstream.topology.dsl.stream import KStream

K1 = TypeVar("K1")
V1 = TypeVar("V1")
VIn = TypeVar("VIn", contravariant=True)
KIn = TypeVar("KIn", contravariant=True)
VOut = TypeVar("VOut", covariant=True)


class ValueTransformer(Protocol[KIn, VIn, VOut]):
    """What `KTable.transform_values` runs. It may also have `init(context)` and `close()`."""

    def transform(self, key: KIn, value: VIn | None) -> VOut:
        """The value for a row; also asked about rows that go, whose value is None."""
        ...


class KTable(TableJoins[K, V], TableSuppression[K, V], Generic[K, V]):
    """A table with keys of type K and values of type V (Kafka Streams' `KTable`).

    Comes from `StreamsBuilder.table`, `KStream.to_table`, an aggregation, or an operation on
    another table. A record says what a key's value is from now on; one without a value says that
    the key is gone. Functions are not asked about keys that go, unless it says so.

    The result of an operation gets a store of its own, which can be queried, if `store=` names one;
    otherwise it is computed as it is read.

    Attributes:
        queryable_store_name: the store in which the table can be queried; None if it has none, or
            one without a name of the user's.

    Example:
        >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING)
        >>> per_user = clicks.group_by_key().count()
        >>> per_user.filter(lambda user, n: n > 9).to_stream().to("busy-users")
    """

    __slots__ = ("_inner", "_part", "queryable_store_name")

    def __init__(
        self, part: StreamPart, *, queryable_store_name: str | None, inner: TableInner
    ) -> None:
        self._part = part
        self._inner = inner
        self.queryable_store_name = queryable_store_name

    def __repr__(self) -> str:
        return self._part.shown("KTable", store=self.queryable_store_name)

    def filter(
        self,
        predicate: Callable[[K, V], object],
        *,
        store: StoreChoice[K, V] = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """The rows for which the predicate holds. A row for which it no longer holds is gone.

        Args:
            predicate: `(key, value) -> bool`.
            store: where the result is kept, if it is to be.
            name: of the operation.

        Raises:
            TopologyError: the store cannot be had.

        Example:
            >>> prices = StreamsBuilder().table("prices", key=STRING, value=LONG)
            >>> cheap = prices.filter(lambda item, price: price < 10, store="cheap")
        """
        checked_function("filter", "predicate", predicate, "key", "value")
        return self._filtered(predicate, False, store, name)

    def filter_not(
        self,
        predicate: Callable[[K, V], object],
        *,
        store: StoreChoice[K, V] = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """The rows for which the predicate does not hold.

        Args:
            predicate: `(key, value) -> bool`.
            store: where the result is kept, if it is to be.
            name: of the operation.

        Raises:
            TopologyError: the store cannot be had.

        Example:
            >>> prices = StreamsBuilder().table("prices", key=STRING, value=LONG)
            >>> for_sale = prices.filter_not(lambda item, price: price == 0)
        """
        checked_function("filter_not", "predicate", predicate, "key", "value")
        return self._filtered(predicate, True, store, name)

    @overload
    def map_values(
        self,
        mapper: Callable[[V], V1 | None],
        *,
        with_key: Literal[False] = False,
        store: StoreChoice[K, V1] = None,
        name: str | None = None,
    ) -> KTable[K, V1]: ...
    @overload
    def map_values(
        self,
        mapper: Callable[[K, V], V1 | None],
        *,
        with_key: Literal[True],
        store: StoreChoice[K, V1] = None,
        name: str | None = None,
    ) -> KTable[K, V1]: ...
    def map_values(
        self,
        mapper: Callable[..., V1 | None],
        *,
        with_key: bool = False,
        store: StoreChoice[K, V1] = None,
        name: str | None = None,
    ) -> KTable[K, V1]:
        """The same rows with other values. A row for which the mapper gives None is gone.

        Args:
            mapper: `value -> value`, or `(key, value) -> value` with `with_key=True`. Without a
                store it may be called each time that a row is read.
            with_key: whether the mapper wants to see the key.
            store: where the result is kept, if it is to be; it should bring the serde of the new
                values, which is the config's default otherwise.
            name: of the operation.

        Raises:
            TopologyError: the store cannot be had.

        Example:
            >>> names = StreamsBuilder().table("names", key=STRING, value=STRING)
            >>> lengths = names.map_values(len, store=Materialized("lengths", value=LONG))
        """
        checked_function("map_values", "mapper", mapper, "value", with_key=with_key)
        return self._derived(
            "KTABLE-MAPVALUES-",
            store,
            name,
            partial(TableMapValues, mapper, with_key),
            partial(MappedGetter, mapper=mapper, with_key=with_key),
        )

    def transform_values(
        self,
        supplier: Callable[[], ValueTransformer[K, V, V1 | None]],
        *,
        stores: str | Sequence[str] = (),
        store: StoreChoice[K, V1] = None,
        name: str | None = None,
    ) -> KTable[K, V1]:
        """The same rows with values that an object with state gives (`KTable.transformValues`).

        Args:
            supplier: gives a new object for each task and each use of the table. It has
                `transform(key, value) -> value`, which is asked about rows that go as well, and may
                have `init(context)` and `close()`. From the context it gets its stores; it cannot
                forward.
            stores: the stores that it uses, added with `StreamsBuilder.add_state_store`: a name,
                or several.
            store: where the result is kept, if it is to be. Without one the object is also asked
                each time that a row is read.
            name: of the operation.

        Raises:
            TopologyError: a store cannot be had.

        Example:
            >>> class Shout:
            ...     def transform(self, key, value):
            ...         return None if value is None else value.upper()
            >>> names = StreamsBuilder().table("names", key=STRING, value=STRING)
            >>> loud = names.transform_values(Shout)
        """
        checked_function("transform_values", "supplier", supplier)
        if isinstance(supplier, type) and not hasattr(supplier, "transform"):
            raise wrong_type(
                f"transform_values() needs objects with a method transform(key, value), which "
                f"those of {supplier.__qualname__} have not."
            )
        asynchronous = asynchronous_method(supplier, TRANSFORMER_METHODS)
        if isinstance(supplier, type) and asynchronous is not None:
            raise wrong_type(asynchronous_advice(f"{supplier.__qualname__}.{asynchronous}"))
        return self._derived(
            "KTABLE-TRANSFORMVALUES-",
            store,
            name,
            partial(TableTransformValues, supplier),
            partial(TransformedGetter, supplier=supplier),
            other_stores=store_names("transform_values", stores),
        )

    @overload
    def to_stream(self, key_selector: None = None, *, name: str | None = None) -> KStream[K, V]: ...
    @overload
    def to_stream(
        self, key_selector: Callable[[K, V], K1], *, name: str | None = None
    ) -> KStream[K1, V]: ...
    def to_stream(
        self, key_selector: Callable[[K, V], Any] | None = None, *, name: str | None = None
    ) -> KStream[Any, V]:
        """The changes of the table as a stream. A key that goes is a record without a value.

        Args:
            key_selector: `(key, value) -> key` to give the records other keys, as by
                `KStream.select_key`.
            name: of the operation.

        Example:
            >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING)
            >>> changes = clicks.group_by_key().count().to_stream()
        """
        from millstream.topology.dsl.stream import KStream

        part = self._part
        node = OperatorGraphNode(
            name=part.graph.names.processor("KTABLE-TOSTREAM-", name),
            declared_at=call_site(),
            supplier=TableToStream,
        )
        part.graph.attach(node, part.node)
        stream: KStream[K, V] = KStream(replace(part, node=node, repartition_required=False))
        return stream if key_selector is None else stream.select_key(key_selector)

    def group_by(
        self,
        selector: Callable[[K, V], tuple[K1, V1]],
        *,
        key: Serde[K1] | None = None,
        value: Serde[V1] | None = None,
        name: str | None = None,
    ) -> KGroupedTable[K1, V1]:
        """Group the rows by another key, to aggregate them. This repartitions.

        Args:
            selector: `(key, value) -> (group, value in the group)`. With None for one of the two
                the row is in no group.
            key: the serde of the groups; by default the config's.
            value: the serde of the values in the groups; by default the config's.
            name: of the operation and of the repartition topic.

        Example:
            >>> cities = StreamsBuilder().table("city-of-user", key=STRING, value=STRING)
            >>> users = cities.group_by(lambda user, city: (city, user), key=STRING, value=STRING)
        """
        from millstream.topology.dsl.grouped_table import KGroupedTable

        checked_function("group_by", "selector", selector, "key", "value")
        checked_serdes("group_by", key=key, value=value)
        part = self._part
        node = TableGraphNode(
            name=part.graph.names.processor("KTABLE-SELECT-", name),
            declared_at=call_site(),
            supplier=partial(TableSelect, selector),
            heeds_versions=True,
        )
        part.graph.attach(node, part.node)
        self._inner.send_old_values(True)
        given = None if name is None else checked_name(name)
        return KGroupedTable(replace(part, node=node), key, value, given)

    # ---- inside

    def _filtered(
        self,
        predicate: Callable[[K, V], object],
        negate: bool,
        store: StoreChoice,
        name: str | None,
    ) -> KTable[K, V]:
        return self._derived(
            "KTABLE-FILTER-",
            store,
            name,
            partial(TableFilter, predicate, negate),
            partial(FilteredGetter, predicate=predicate, negate=negate),
            keeps_values=True,
        )

    def _derived(
        self,
        prefix: str,
        store: StoreChoice,
        name: str | None,
        operator: Callable[..., Any],
        getter: Callable[[GetterSupplier], GetterSupplier],
        *,
        keeps_values: bool = False,
        other_stores: tuple[str, ...] = (),
    ) -> KTable[K, Any]:
        """The table of an operation that computes rows from rows; a filter keeps their values.

        Follows Kafka Streams: it has a store only if that has a name; without one, `store=` takes a
        number all the same, except in `transform_values`.
        """
        part, names = self._part, self._part.graph.names
        value_serde = part.value_serde if keeps_values else None
        key_serde, builder, versioned = part.key_serde, None, None
        if store is not None:
            choice = materialized(store)
            versioned = choice.is_versioned
            if choice.store_name is not None:
                builder = key_value_builder(
                    choice, names, prefix, key_serde=key_serde, value_serde=value_serde
                )
            elif prefix != "KTABLE-TRANSFORMVALUES-":
                names.store(prefix)
            key_serde = key_serde if choice.key is None else choice.key
            value_serde = value_serde if choice.value is None else choice.value
        kept_in = None if builder is None else builder.name
        node = TableGraphNode(
            name=names.processor(prefix, name),
            declared_at=call_site(),
            supplier=partial(operator, store=kept_in),
            output_versioned=versioned,
            heeds_versions=keeps_values,
            store_builder=builder,
            store_names=other_stores,
        )
        part.graph.attach(node, part.node)
        if keeps_values and self._inner.send_old_values(False):
            # A filter that knows what a change replaces leaves out deletions of nothing.
            node.send_old_values = True
        return KTable(
            replace(part, node=node, key_serde=key_serde, value_serde=value_serde),
            queryable_store_name=kept_in,
            inner=DerivedTable(node, self._inner, getter, kept_in),
        )
