"""The nodes, stores and names of stream-stream joins."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from millstream.errors import TopologyError
from millstream.operators.joins.stream_join import JoinSide, StreamJoiner
from millstream.serdes import Serde
from millstream.state.builders.buffer_builders import OuterJoinStoreBuilder
from millstream.state.builders.window_builders import WindowStoreBuilder, WindowStoreSupplier
from millstream.topology.argument_checks import type_error
from millstream.topology.call_site import call_site
from millstream.topology.dsl.stream_joins import JoinKind
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.logical.graph_nodes import OperatorGraphNode, StreamStreamJoinGraphNode
from millstream.topology.naming import checked_name
from millstream.topology.operations.joins import StreamJoinWindow, StreamSelfJoin, StreamStreamJoin
from millstream.topology.options.materialized import changelog_options
from millstream.topology.options.windows import JoinWindows

_WINDOWED: Final = "KSTREAM-WINDOWED-"
_JOIN_THIS: Final = "KSTREAM-JOINTHIS-"
_JOIN_OTHER: Final = "KSTREAM-JOINOTHER-"
_OUTER_THIS: Final = "KSTREAM-OUTERTHIS-"
_OUTER_OTHER: Final = "KSTREAM-OUTEROTHER-"
_STORE: Final = "-store"


def join_streams(
    this: StreamPart,
    other: StreamPart,
    kind: JoinKind,
    joiner: StreamJoiner,
    name: str | None,
    *,
    windows: JoinWindows,
    store_name: str | None = None,
    this_store: WindowStoreSupplier | None = None,
    other_store: WindowStoreSupplier | None = None,
    logging: bool | Mapping[str, str] = True,
) -> StreamPart:
    """Join two streams that are partitioned by key.

    Raises:
        TopologyError: a name is not legal, or a window store does not fit the join.
    """
    graph, sources = this.graph, this.sources.united(other.sources)
    graph.copartition(sources)
    names = _StreamJoinNames(this, kind, name, store_name)
    stores = _StreamJoinStores(this, other, names, windows, (this_store, other_store), logging)
    windowed = (
        stores.window_node(0, names.this_windowed, this_store is None),
        stores.window_node(1, names.other_windowed, other_store is None),
    )
    graph.attach(windowed[0], this.node)
    graph.attach(windowed[1], other.node)
    node = StreamStreamJoinGraphNode(
        name=names.merge,
        declared_at=call_site(),
        accepts_null_keys=kind != "inner",
        windowed=windowed,
        joins=(names.this_join, names.other_join),
        operations=(
            StreamStreamJoin(stores.side(left=True), joiner),
            StreamStreamJoin(stores.side(left=False), joiner),
        ),
        self_join=StreamSelfJoin(
            stores.windows[0].name,
            windows.before_ms,
            windows.after_ms,
            windows.retention_ms,
            joiner,
        ),
        stores=stores.windows,
        unmatched_store=stores.unmatched,
        unmatched_name_generated=store_name is None and this_store is None,
    )
    graph.attach(node, this.node, other.node)
    return StreamPart(graph, node, this.key_serde, None, sources)


class _StreamJoinNames:
    """The names of a join's nodes and stores, numbered in the order of Kafka Streams."""

    def __init__(
        self, this: StreamPart, kind: JoinKind, name: str | None, store_name: str | None
    ) -> None:
        next_name = this.graph.names.processor
        self.store_name = None if store_name is None else checked_name(store_name)
        self.kind = kind
        # As in Kafka Streams, a side's suffix depends on whether unmatched records of the opposite
        # side are emitted.
        self._this_suffix = "-outer-this-join" if kind == "outer" else "-this-join"
        self._other_suffix = "-other-join" if kind == "inner" else "-outer-other-join"

        def suffixed(suffix: str) -> str | None:
            return None if name is None else name + suffix

        self.this_windowed = next_name(_WINDOWED, suffixed("-this-windowed"))
        self.other_windowed = next_name(_WINDOWED, suffixed("-other-windowed"))
        self._this_generated = next_name(_OUTER_THIS if kind == "outer" else _JOIN_THIS)
        self._other_generated = next_name(_JOIN_OTHER if kind == "inner" else _OUTER_OTHER)
        self.this_join = suffixed(self._this_suffix) or self._this_generated
        self.other_join = suffixed(self._other_suffix) or self._other_generated
        self.merge = next_name("KSTREAM-MERGE-", suffixed("-merge"))

    def window_store(self, position: int) -> str:
        """Return the name of the window store of this stream (0) or the other stream (1)."""
        if self.store_name is not None:
            base = self.store_name + (self._other_suffix if position else self._this_suffix)
        else:
            base = self._other_generated if position else self._this_generated
        return base + _STORE

    def unmatched_store(self, supplier: WindowStoreSupplier | None) -> str:
        """Return the name of the store of unmatched records."""
        base = self.store_name if supplier is None else supplier.name
        if base is None:
            return f"KSTREAM-OUTERSHARED-{self._this_generated.rpartition('-')[2]}{_STORE}"
        shared = "-outer-shared-join" if self.kind == "outer" else "-left-shared-join"
        return base + shared + _STORE


class _StreamJoinStores:
    """The stores of a join."""

    def __init__(
        self,
        this: StreamPart,
        other: StreamPart,
        names: _StreamJoinNames,
        windows: JoinWindows,
        suppliers: tuple[WindowStoreSupplier | None, WindowStoreSupplier | None],
        logging: bool | Mapping[str, str],
    ) -> None:
        _check_suppliers(windows, *suppliers)
        self._join_windows = windows
        self._names = names
        key = this.key_serde
        window_store = partial(_window_store, windows=windows, logging=logging, key_serde=key)
        self.windows = (
            window_store(names.window_store(0), suppliers[0], value_serde=this.value_serde),
            window_store(names.window_store(1), suppliers[1], value_serde=other.value_serde),
        )
        self.unmatched: OuterJoinStoreBuilder | None = None
        if names.kind != "inner":
            logged, config = changelog_options(logging)
            self.unmatched = OuterJoinStoreBuilder(
                names.unmatched_store(suppliers[0]),
                None if suppliers[0] is None else suppliers[0].kind,
                key,
                this.value_serde,
                other.value_serde,
                logging=logged,
                topic_config=config,
            )

    def window_node(
        self, position: int, name: str, store_name_generated: bool
    ) -> OperatorGraphNode:
        """Return the node that stores the records of one side."""
        store = self.windows[position]
        return OperatorGraphNode(
            name=name,
            declared_at=call_site(),
            operation=StreamJoinWindow(store.name),
            store_builder=store,
            store_name_generated=store_name_generated and self._names.store_name is None,
        )

    def side(self, *, left: bool) -> JoinSide:
        """Return the parameters of the node that joins the records of one side."""
        windows, kind = self._join_windows, self._names.kind
        return JoinSide(
            left=left,
            own_store=self.windows[0 if left else 1].name,
            other_store=self.windows[1 if left else 0].name,
            unmatched_store=None if self.unmatched is None else self.unmatched.name,
            keeps_unmatched=kind == "outer" or (left and kind == "left"),
            before_ms=windows.before_ms,
            after_ms=windows.after_ms,
            grace_ms=windows.grace_ms,
        )


def _window_store(
    name: str,
    supplier: WindowStoreSupplier | None,
    *,
    windows: JoinWindows,
    logging: bool | Mapping[str, str],
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
) -> WindowStoreBuilder:
    logged, config = changelog_options(logging)
    return WindowStoreBuilder(
        name if supplier is None else supplier.name,
        None if supplier is None else supplier.kind,
        key_serde=key_serde,
        value_serde=value_serde,
        retention_ms=windows.retention_ms,
        window_size_ms=windows.size_ms,
        retain_duplicates=True,
        timestamped=True,
        log_headers=True,
        # Kafka Streams' retention is exclusive, so it misses matches at the bounds of a window.
        retention_inclusive=True,
        logging=logged,
        # As in Kafka Streams, records are never updated, so the changelog is not compacted.
        topic_config={**config, "cleanup.policy": "delete"},
    )


def _check_suppliers(
    windows: JoinWindows, this: WindowStoreSupplier | None, other: WindowStoreSupplier | None
) -> None:
    for parameter, supplier in (("this_store", this), ("other_store", other)):
        if supplier is not None and not isinstance(supplier, WindowStoreSupplier):
            raise type_error(
                f"{parameter}= must be a window store from Stores.persistent_window(...) or "
                f"Stores.in_memory_window(...), but got {supplier!r}."
            )
    if this is not None and other is not None and this.name == other.name:
        raise TopologyError(
            f"this_store and other_store are both named {this.name!r}. Each side of a join needs "
            "its own store.",
            declared_at=call_site(),
        )
    for parameter, supplier in (("this_store", this), ("other_store", other)):
        if supplier is None:
            continue
        problem = ""
        if not supplier.retain_duplicates:
            problem = "keeps only one record per key and timestamp; set retain_duplicates=True"
        elif supplier.window_size_ms != windows.size_ms:
            problem = (
                f"has windows of {supplier.window_size_ms} ms; set window_size to before + after "
                f"of the join, {windows.size_ms} ms"
            )
        elif supplier.retention_ms != windows.retention_ms:
            problem = (
                f"keeps records for {supplier.retention_ms} ms; set retention to before + after + "
                f"grace of the join, {windows.retention_ms} ms"
            )
        if problem:
            raise TopologyError(
                f"{parameter}={supplier.name!r} does not fit the join: the store {problem}.",
                declared_at=call_site(),
            )
