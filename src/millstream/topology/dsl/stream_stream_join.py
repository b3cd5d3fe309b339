"""Joining two streams: the nodes and stores that this takes, and their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from millstream.errors import TopologyError
from millstream.operators.joins.stream_join import JoinSide, StreamJoiner
from millstream.state.builders.buffers import OuterJoinStoreBuilder
from millstream.state.builders.windows import WindowStoreBuilder, WindowStoreSupplier
from millstream.topology.arguments import wrong_type
from millstream.topology.call_site import call_site
from millstream.topology.dsl.join_options import JoinKind
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.logical.graph_nodes import OperatorGraphNode
from millstream.topology.logical.stream_join_node import StreamStreamJoinGraphNode
from millstream.topology.naming import checked_name
from millstream.topology.operations.joins import (
    StreamJoinWindow,
    StreamSelfJoin,
    StreamStreamJoin,
)
from millstream.topology.options.join_windows import JoinWindows
from millstream.topology.options.materialized import changelog_options

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
    """Join two streams that are placed by key already.

    Args:
        this: the left stream; its key serde is that of both stores.
        other: the right stream.
        kind: which unmatched records have a result.
        joiner: the user's.
        name: of the operation; None for generated names.
        windows: how far apart in time two records may be.
        store_name: what the names of the stores begin with.
        this_store: where the records of the left stream are kept.
        other_store: where those of the right stream are kept.
        logging: whether the stores have changelogs, or the config of these.

    Raises:
        TopologyError: a name is not legal; a store that is given does not suit the join.
    """
    graph, sources = this.graph, this.sources.united(other.sources)
    graph.copartition(sources)
    names = _Names(this, kind, name, store_name)
    stores = _Stores(this, other, names, windows, (this_store, other_store), logging)
    windowed = (
        stores.keeper(0, names.this_windowed, this_store is None),
        stores.keeper(1, names.other_windowed, other_store is None),
    )
    graph.attach(windowed[0], this.node)
    graph.attach(windowed[1], other.node)
    node = StreamStreamJoinGraphNode(
        name=names.merge,
        declared_at=call_site(),
        takes_null_keys=kind != "inner",
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
        unjoined_store=stores.unjoined,
        unjoined_name_generated=store_name is None and this_store is None,
    )
    graph.attach(node, this.node, other.node)
    return StreamPart(graph, node, this.key_serde, None, sources)


class _Names:
    """The names of the nodes and stores of a join; numbers are taken in Kafka Streams' order."""

    def __init__(
        self, this: StreamPart, kind: JoinKind, name: str | None, store_name: str | None
    ) -> None:
        numbered = this.graph.names.processor
        self._store_name = None if store_name is None else checked_name(store_name)
        self.kind = kind
        # Named after what the other side may miss: follows Kafka Streams.
        self._this_suffix = "-outer-this-join" if kind == "outer" else "-this-join"
        self._other_suffix = "-other-join" if kind == "inner" else "-outer-other-join"

        def given(suffix: str) -> str | None:
            return None if name is None else name + suffix

        self.this_windowed = numbered(_WINDOWED, given("-this-windowed"))
        self.other_windowed = numbered(_WINDOWED, given("-other-windowed"))
        self._this_generated = numbered(_OUTER_THIS if kind == "outer" else _JOIN_THIS)
        self._other_generated = numbered(_JOIN_OTHER if kind == "inner" else _OUTER_OTHER)
        self.this_join = given(self._this_suffix) or self._this_generated
        self.other_join = given(self._other_suffix) or self._other_generated
        self.merge = numbered("KSTREAM-MERGE-", given("-merge"))

    @property
    def generated(self) -> bool:
        """Whether the names of the stores are generated."""
        return self._store_name is None

    def window_store(self, position: int) -> str:
        """The name of the window store of this side (0) or the other one (1)."""
        if self._store_name is not None:
            base = self._store_name + (self._other_suffix if position else self._this_suffix)
        else:
            base = self._other_generated if position else self._this_generated
        return base + _STORE

    def unjoined_store(self, supplier: WindowStoreSupplier | None) -> str:
        """The name of the store of records without a partner.

        Args:
            supplier: of the window store of this side, if the user gave one.
        """
        base = self._store_name if supplier is None else supplier.name
        if base is None:
            return f"KSTREAM-OUTERSHARED-{self._this_generated.rpartition('-')[2]}{_STORE}"
        shared = "-outer-shared-join" if self.kind == "outer" else "-left-shared-join"
        return base + shared + _STORE


class _Stores:
    """The stores of a join.

    Attributes:
        windows: the builders of the window stores of the two sides.
        unjoined: that of the store that left and outer joins have in addition.
    """

    def __init__(
        self,
        this: StreamPart,
        other: StreamPart,
        names: _Names,
        windows: JoinWindows,
        suppliers: tuple[WindowStoreSupplier | None, WindowStoreSupplier | None],
        logging: bool | Mapping[str, str],
    ) -> None:
        _check_suppliers(windows, *suppliers)
        self._join_windows = windows
        self._names = names
        key = this.key_serde
        self.windows = (
            _window_store(names.window_store(0), suppliers[0], windows, logging),
            _window_store(names.window_store(1), suppliers[1], windows, logging),
        )
        self.windows = (
            replace(self.windows[0], key_serde=key, value_serde=this.value_serde),
            replace(self.windows[1], key_serde=key, value_serde=other.value_serde),
        )
        self.unjoined: OuterJoinStoreBuilder | None = None
        if names.kind != "inner":
            logged, config = changelog_options(logging)
            self.unjoined = OuterJoinStoreBuilder(
                names.unjoined_store(suppliers[0]),
                None if suppliers[0] is None else suppliers[0].kind,
                key,
                this.value_serde,
                other.value_serde,
                logging=logged,
                topic_config=config,
            )

    def keeper(self, position: int, name: str, store_unnamed: bool) -> OperatorGraphNode:
        """The node that keeps the records of one side."""
        store = self.windows[position]
        return OperatorGraphNode(
            name=name,
            declared_at=call_site(),
            operation=StreamJoinWindow(store.name),
            store_builder=store,
            store_name_generated=store_unnamed and self._names.generated,
        )

    def side(self, *, left: bool) -> JoinSide:
        """What the node that joins the records of one side must know."""
        windows, kind = self._join_windows, self._names.kind
        return JoinSide(
            left=left,
            own_store=self.windows[0 if left else 1].name,
            other_store=self.windows[1 if left else 0].name,
            unjoined_store=None if self.unjoined is None else self.unjoined.name,
            keeps_unjoined=kind == "outer" or (left and kind == "left"),
            before_ms=windows.before_ms,
            after_ms=windows.after_ms,
            grace_ms=windows.grace_ms,
        )


def _window_store(
    name: str,
    supplier: WindowStoreSupplier | None,
    windows: JoinWindows,
    logging: bool | Mapping[str, str],
) -> WindowStoreBuilder:
    """The builder of a window store, still without serdes."""
    logged, config = changelog_options(logging)
    return WindowStoreBuilder(
        name if supplier is None else supplier.name,
        None if supplier is None else supplier.kind,
        retention_ms=windows.retention_ms,
        window_size_ms=windows.size_ms,
        retain_duplicates=True,
        timestamped=True,
        log_headers=True,
        # Unlike Kafka Streams, which loses partners at the very edge of a window.
        keeps_edge=True,
        logging=logged,
        # Records are not updated, so the log is not compacted: follows Kafka Streams.
        topic_config={**config, "cleanup.policy": "delete"},
    )


def _check_suppliers(
    windows: JoinWindows, this: WindowStoreSupplier | None, other: WindowStoreSupplier | None
) -> None:
    for parameter, supplier in (("this_store", this), ("other_store", other)):
        if supplier is not None and not isinstance(supplier, WindowStoreSupplier):
            raise wrong_type(
                f"{parameter}= takes a window store from Stores.persistent_window(...) or "
                f"in_memory_window(...), but got {supplier!r}."
            )
    if this is not None and other is not None and this.name == other.name:
        raise TopologyError(
            f"this_store and other_store are both called {this.name!r}. Each side of a join needs "
            "a store of its own.",
            declared_at=call_site(),
        )
    for parameter, supplier in (("this_store", this), ("other_store", other)):
        if supplier is None:
            continue
        problem = ""
        if not supplier.retain_duplicates:
            problem = "keeps one record for each key and time; give retain_duplicates=True"
        elif supplier.window_size_ms != windows.size_ms:
            problem = (
                f"has windows of {supplier.window_size_ms} ms; give before + after of the join, "
                f"{windows.size_ms} ms"
            )
        elif supplier.retention_ms != windows.retention_ms:
            problem = (
                f"keeps records for {supplier.retention_ms} ms; give before + after + grace of the "
                f"join, {windows.retention_ms} ms"
            )
        if problem:
            raise TopologyError(
                f"{parameter}={supplier.name!r} does not suit the join: it {problem}.",
                declared_at=call_site(),
            )
