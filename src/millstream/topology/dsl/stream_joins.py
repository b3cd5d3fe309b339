"""What a stream can be joined with: another stream, a table, a global table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, overload

from millstream.record import K, V
from millstream.serdes import Serde
from millstream.state.windows.builders import WindowStoreSupplier
from millstream.topology.arguments import (
    check_same_builder,
    checked_function,
    checked_serdes,
    wrong_type,
)
from millstream.topology.dsl.join_placement import JoinPlacement
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.naming import checked_name
from millstream.topology.options.join_windows import JoinWindows

if TYPE_CHECKING:
    from millstream.topology.dsl.global_table import GlobalKTable
    from millstream.topology.dsl.stream import KStream
    from millstream.topology.dsl.table import KTable

GK = TypeVar("GK")
R = TypeVar("R")
V2 = TypeVar("V2")

_OPERATION: Final = {"inner": "join", "left": "left_join", "outer": "outer_join"}

JoinKind = Literal["inner", "left", "outer"]

#: Which options belong to which kind of join, to tell the user where they went wrong.
_OPTIONS: Final = {
    "KStream": (
        "windows",
        "key",
        "value",
        "other_value",
        "store_name",
        "this_store",
        "other_store",
        "logging",
    ),
    "KTable": ("key", "value", "other_value", "grace"),
    "GlobalKTable": ("key_selector",),
}


class StreamJoins(Generic[K, V]):
    """The joins of a `KStream`; docs/joins.md compares them."""

    __slots__ = ("_part", "_placement")

    def __init__(self, part: StreamPart) -> None:
        self._part = part
        self._placement = JoinPlacement()

    @overload
    def join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[V, V2], R],
        windows: JoinWindows,
        *,
        with_key: Literal[False] = False,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[V2] | None = None,
        name: str | None = None,
        store_name: str | None = None,
        this_store: WindowStoreSupplier | None = None,
        other_store: WindowStoreSupplier | None = None,
        logging: bool | Mapping[str, str] = True,
    ) -> KStream[K, R]: ...
    @overload
    def join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[K, V, V2], R],
        windows: JoinWindows,
        *,
        with_key: Literal[True],
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[V2] | None = None,
        name: str | None = None,
        store_name: str | None = None,
        this_store: WindowStoreSupplier | None = None,
        other_store: WindowStoreSupplier | None = None,
        logging: bool | Mapping[str, str] = True,
    ) -> KStream[K, R]: ...
    @overload
    def join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V, V2], R],
        *,
        with_key: Literal[False] = False,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[V2] | None = None,
        grace: timedelta | None = None,
        name: str | None = None,
    ) -> KStream[K, R]: ...
    @overload
    def join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[K, V, V2], R],
        *,
        with_key: Literal[True],
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[V2] | None = None,
        grace: timedelta | None = None,
        name: str | None = None,
    ) -> KStream[K, R]: ...
    @overload
    def join(
        self,
        other: GlobalKTable[GK, V2],
        joiner: Callable[[V, V2], R],
        *,
        key_selector: Callable[[K, V], GK | None],
        with_key: Literal[False] = False,
        name: str | None = None,
    ) -> KStream[K, R]: ...
    @overload
    def join(
        self,
        other: GlobalKTable[GK, V2],
        joiner: Callable[[K, V, V2], R],
        *,
        key_selector: Callable[[K, V], GK | None],
        with_key: Literal[True],
        name: str | None = None,
    ) -> KStream[K, R]: ...
    def join(
        self,
        other: Any,
        joiner: Callable[..., Any],
        windows: JoinWindows | None = None,
        *,
        with_key: bool = False,
        name: str | None = None,
        **options: Any,
    ) -> KStream[K, Any]:
        """Bring each record together with what the other side has for its key.

        With a stream: with each record of it whose time is near enough (`windows`). With a table:
        with the value that its key has there now. With a global table: with the value there of the
        key that `key_selector` gives. A record without a partner is left out, and so is one
        without key or value. Keys that may have changed are repartitioned first, except for a
        global table.

        Kafka Streams' `KStream.join`; docs/joins.md has tables of nulls and timestamps.

        Args:
            other: a stream, a table or a global table of the same builder.
            joiner: `(value, other_value) -> value`, or `(key, value, other_value) -> value` with
                `with_key=True`.
            windows: streams only: how far apart in time two records may be.
            with_key: whether the joiner wants to see the key.
            name: of the operation, its nodes, and the topics it repartitions through.
            options: serdes `key`, `value` and `other_value`, by default those of the streams and
                tables. For a stream also `store_name`, which begins the names of its stores;
                `this_store` and `other_store`, window stores from `Stores` in their place;
                `logging`, False or the config of their changelogs. For a versioned table `grace`,
                a timedelta that records wait for its updates. For a global table `key_selector`,
                `(key, value) -> key of the table`.

        Raises:
            TopologyError: the two belong to different builders; an option does not go with what is
                joined; a store cannot be had.

        Example:
            >>> builder = StreamsBuilder()
            >>> shown = builder.stream("shown", key=STRING, value=STRING)
            >>> clicked = builder.stream("clicked", key=STRING, value=STRING)
            >>> matched = shown.join(
            ...     clicked, lambda ad, button: f"{ad}: {button}", JoinWindows(timedelta(minutes=5))
            ... )
        """
        return self._join("inner", other, joiner, windows, with_key, name, options)

    @overload
    def left_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[V, V2 | None], R],
        windows: JoinWindows,
        *,
        with_key: Literal[False] = False,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[V2] | None = None,
        name: str | None = None,
        store_name: str | None = None,
        this_store: WindowStoreSupplier | None = None,
        other_store: WindowStoreSupplier | None = None,
        logging: bool | Mapping[str, str] = True,
    ) -> KStream[K, R]: ...
    @overload
    def left_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[K, V, V2 | None], R],
        windows: JoinWindows,
        *,
        with_key: Literal[True],
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[V2] | None = None,
        name: str | None = None,
        store_name: str | None = None,
        this_store: WindowStoreSupplier | None = None,
        other_store: WindowStoreSupplier | None = None,
        logging: bool | Mapping[str, str] = True,
    ) -> KStream[K, R]: ...
    @overload
    def left_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V, V2 | None], R],
        *,
        with_key: Literal[False] = False,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[V2] | None = None,
        grace: timedelta | None = None,
        name: str | None = None,
    ) -> KStream[K, R]: ...
    @overload
    def left_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[K, V, V2 | None], R],
        *,
        with_key: Literal[True],
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[V2] | None = None,
        grace: timedelta | None = None,
        name: str | None = None,
    ) -> KStream[K, R]: ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[GK, V2],
        joiner: Callable[[V, V2 | None], R],
        *,
        key_selector: Callable[[K, V], GK | None],
        with_key: Literal[False] = False,
        name: str | None = None,
    ) -> KStream[K, R]: ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[GK, V2],
        joiner: Callable[[K, V, V2 | None], R],
        *,
        key_selector: Callable[[K, V], GK | None],
        with_key: Literal[True],
        name: str | None = None,
    ) -> KStream[K, R]: ...
    def left_join(
        self,
        other: Any,
        joiner: Callable[..., Any],
        windows: JoinWindows | None = None,
        *,
        with_key: bool = False,
        name: str | None = None,
        **options: Any,
    ) -> KStream[K, Any]:
        """As `join`, but a record without a partner is joined with None.

        With a stream that happens once no partner can come any more: when stream time has passed
        the end of its window and the grace period. With a table it happens at once. A record
        without a key never has a partner; one without a value is left out all the same.

        Kafka Streams' `KStream.leftJoin`; docs/joins.md has tables of nulls and timestamps.

        Args:
            other: as for `join`.
            joiner: as for `join`; the other value may be None.
            windows: as for `join`.
            with_key: as for `join`.
            name: as for `join`.
            options: as for `join`.

        Raises:
            TopologyError: as for `join`.

        Example:
            >>> builder = StreamsBuilder()
            >>> shown = builder.stream("shown", key=STRING, value=STRING)
            >>> clicked = builder.stream("clicked", key=STRING, value=STRING)
            >>> outcomes = shown.left_join(
            ...     clicked,
            ...     lambda ad, button: f"{ad}: {button or 'ignored'}",
            ...     JoinWindows(timedelta(minutes=5), before=timedelta(0), grace=timedelta(1)),
            ... )
        """
        return self._join("left", other, joiner, windows, with_key, name, options)

    @overload
    def outer_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[V | None, V2 | None], R],
        windows: JoinWindows,
        *,
        with_key: Literal[False] = False,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[V2] | None = None,
        name: str | None = None,
        store_name: str | None = None,
        this_store: WindowStoreSupplier | None = None,
        other_store: WindowStoreSupplier | None = None,
        logging: bool | Mapping[str, str] = True,
    ) -> KStream[K, R]: ...
    @overload
    def outer_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[K, V | None, V2 | None], R],
        windows: JoinWindows,
        *,
        with_key: Literal[True],
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[V2] | None = None,
        name: str | None = None,
        store_name: str | None = None,
        this_store: WindowStoreSupplier | None = None,
        other_store: WindowStoreSupplier | None = None,
        logging: bool | Mapping[str, str] = True,
    ) -> KStream[K, R]: ...
    def outer_join(
        self,
        other: Any,
        joiner: Callable[..., Any],
        windows: JoinWindows | None = None,
        *,
        with_key: bool = False,
        name: str | None = None,
        **options: Any,
    ) -> KStream[K, Any]:
        """As `left_join` with a stream, but neither side loses a record for want of a partner.

        Kafka Streams' `KStream.outerJoin`; docs/joins.md has tables of nulls and timestamps.

        Args:
            other: a stream of the same builder.
            joiner: as for `join`; one of the two values may be None.
            windows: as for `join`.
            with_key: as for `join`.
            name: as for `join`.
            options: as for `join`.

        Raises:
            TopologyError: as for `join`.

        Example:
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=STRING, value=LONG)
            >>> payments = builder.stream("payments", key=STRING, value=LONG)
            >>> booked = orders.outer_join(
            ...     payments,
            ...     lambda ordered, paid: (paid or 0) - (ordered or 0),
            ...     JoinWindows(timedelta(hours=1)),
            ... )
        """
        return self._join("outer", other, joiner, windows, with_key, name, options)

    def _join(
        self,
        kind: JoinKind,
        other: Any,
        joiner: Callable[..., Any],
        windows: JoinWindows | None,
        with_key: bool,
        name: str | None,
        options: dict[str, Any],
    ) -> KStream[K, Any]:
        from millstream.topology.dsl.stream import KStream
        from millstream.topology.dsl.table import KTable

        operation = _OPERATION[kind]
        checked_function(operation, "joiner", joiner, "value", "other_value", with_key=with_key)
        if windows is not None:
            options["windows"] = windows
        _check_options(operation, other, kind, options)
        part = self._part
        check_same_builder(part.graph, other._part.graph, "joined")
        if isinstance(other, KStream):
            return KStream(self._join_stream(kind, other, joiner, with_key, name, **options))
        how: dict[str, Any] = {"left": kind == "left", "with_key": with_key, "name": name}
        if isinstance(other, KTable):
            from millstream.topology.dsl.stream_table_join import join_table

            part = self._placement.placed(part, name, options.get("key"), options.get("value"))
            return KStream(join_table(part, other, joiner, **how, **options))
        from millstream.topology.dsl.global_table import join_global_table

        return KStream(join_global_table(part, other, joiner, **how, **options))

    def _join_stream(
        self,
        kind: JoinKind,
        other: StreamJoins[K, Any],
        joiner: Callable[..., Any],
        with_key: bool,
        name: str | None,
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[Any] | None = None,
        **options: Any,
    ) -> StreamPart:
        from millstream.operators.stream_join import StreamJoiner
        from millstream.topology.dsl.stream_stream_join import join_streams

        left, right = None, None
        if name is not None:
            left, right = f"{checked_name(name)}-left", f"{name}-right"
        part = self._placement.placed(self._part, left, key, value)
        other_part = other._placement.placed(other._part, right, key, other_value)
        return join_streams(
            replace(part, key_serde=key or part.key_serde or other_part.key_serde),
            replace(other_part, value_serde=other_value or other_part.value_serde),
            kind,
            StreamJoiner(joiner, with_key),
            name,
            **options,
        )


def _check_options(operation: str, other: Any, kind: JoinKind, options: dict[str, Any]) -> None:
    """Refuse what the overloads of a join do not know, for those who use no type checker."""
    what = type(other).__name__
    known = _OPTIONS.get(what)
    if known is None or (kind == "outer" and what != "KStream"):
        takes = "a KStream" if kind == "outer" else "a KStream, a KTable or a GlobalKTable"
        raise wrong_type(f"{operation}() joins a stream with {takes}, but got {what}: {other!r}.")
    unknown = [option for option in options if option not in known]
    if unknown:
        raise wrong_type(
            f"{operation}() with a {what} takes no {', '.join(unknown)}; "
            f"it takes {', '.join(known)}."
        )
    for needed in ("windows", "key_selector"):
        if needed in known and options.get(needed) is None:
            raise wrong_type(f"{operation}() with a {what} needs {needed}=...")
    windows = options.get("windows")
    if windows is not None and not isinstance(windows, JoinWindows):
        raise wrong_type(f"{operation}() takes JoinWindows as its windows, but got {windows!r}.")
    serdes = ("key", "value", "other_value")
    checked_serdes(operation, **{name: options.get(name) for name in serdes})
