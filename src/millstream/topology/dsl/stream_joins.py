"""The options of stream joins, and repartitioning before a join."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, Generic, Literal, TypedDict, TypeVar

from millstream.serdes import Serde
from millstream.state.builders.window_builders import WindowStoreSupplier
from millstream.topology.argument_checks import check_serdes, type_error
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.logical.graph_nodes import RepartitionGraphNode
from millstream.topology.naming import checked_name
from millstream.topology.options.windows import JoinWindows

#: The kind of a join. An inner join drops records without a partner. A left join joins those of the
#: left side with None, and an outer join those of both sides.
JoinKind = Literal["inner", "left", "outer"]

K = TypeVar("K")
V = TypeVar("V")
V2 = TypeVar("V2")


class TableJoinOptions(TypedDict, Generic[K, V, V2], total=False):
    """The optional arguments of a join with a table; see `KStream.join`."""

    key: Serde[K] | None
    value: Serde[V] | None
    other_value: Serde[V2] | None
    grace: timedelta | None
    name: str | None


class StreamJoinOptions(TypedDict, Generic[K, V, V2], total=False):
    """The optional arguments of a join with a stream; see `KStream.join`."""

    key: Serde[K] | None
    value: Serde[V] | None
    other_value: Serde[V2] | None
    name: str | None
    store_name: str | None
    this_store: WindowStoreSupplier | None
    other_store: WindowStoreSupplier | None
    logging: bool | Mapping[str, str]


#: The DSL method of each kind of join.
JOIN_METHODS: Final = {"inner": "join", "left": "left_join", "outer": "outer_join"}

#: The options of each kind of join, by the class of the other side.
_OPTIONS: Final = {
    "KStream": (
        *("windows", "key", "value", "other_value"),
        *("store_name", "this_store", "other_store", "logging"),
    ),
    "KTable": ("key", "value", "other_value", "grace"),
    "GlobalKTable": ("key_selector",),
}


def check_join_options(operation: str, other: Any, kind: JoinKind, options: dict[str, Any]) -> None:
    """Check the options of a join, for users without a type checker.

    Raises:
        TypeError: the other side or an option is not supported, or a required option is missing.
    """
    type_name = type(other).__name__
    allowed = _OPTIONS.get(type_name)
    if allowed is None or (kind == "outer" and type_name != "KStream"):
        expected = "a KStream" if kind == "outer" else "a KStream, a KTable or a GlobalKTable"
        raise type_error(
            f"{operation}() joins a stream with {expected}, but got {type_name}: {other!r}."
        )
    unknown = [option for option in options if option not in allowed]
    if unknown:
        raise type_error(
            f"{operation}() with a {type_name} takes no {', '.join(unknown)}; "
            f"it takes {', '.join(allowed)}."
        )
    for required in ("windows", "key_selector"):
        if required in allowed and options.get(required) is None:
            raise type_error(f"{operation}() with a {type_name} needs {required}=...")
    windows = options.get("windows")
    if windows is not None and not isinstance(windows, JoinWindows):
        raise type_error(f"{operation}() takes JoinWindows as its windows, but got {windows!r}.")
    check_serdes(operation, **{name: options.get(name) for name in ("key", "value", "other_value")})


class JoinRepartitioning:
    """The repartition topic that all unnamed joins of a stream share."""

    __slots__ = ("_node",)

    def __init__(self) -> None:
        self._node: RepartitionGraphNode | None = None

    def repartitioned(
        self, part: StreamPart, base: str | None, key: Serde[Any] | None, value: Serde[Any] | None
    ) -> StreamPart:
        """Return the stream, repartitioned if its keys may have changed.

        To match the numbering of Kafka Streams, each join takes the numbers of a repartition node,
        even if it shares the topic of an earlier join.

        Args:
            part: the stream, which must be the same for every call.
            base: the base of the topic's name; None for the name of the preceding operation.
        """
        part = part.with_serdes(key, value)
        if not part.repartition_required:
            return part
        node = part.repartition_node(
            part.name if base is None else checked_name(base), generated=base is None
        )
        if self._node is None or base is not None:
            self._node = node
            part.graph.attach(node, part.node)
        shared = part.repartitioned(self._node)
        if self._node is node:
            return shared
        return replace(shared, sources=part.graph.alias_sources(node.name, shared.sources))
