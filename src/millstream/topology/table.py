"""A table: the latest value of each key, as it changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from millstream.operators import TableToStream
from millstream.record import K, V
from millstream.topology.call_site import call_site
from millstream.topology.graph_nodes import OperatorGraphNode
from millstream.topology.stream_part import StreamPart

if TYPE_CHECKING:
    from millstream.topology.stream import KStream

K1 = TypeVar("K1")


class KTable(Generic[K, V]):
    """A table with keys of type K and values of type V (Kafka Streams' `KTable`).

    Comes from an aggregation. A record says what a key's value is from now on; one without a value
    says that the key is gone.

    Attributes:
        queryable_store_name: the store in which the table can be queried; None if it has none, or
            one without a name of the user's.

    Example:
        >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING)
        >>> per_user = clicks.group_by_key().count()
        >>> per_user.to_stream().to("clicks-per-user")
    """

    __slots__ = ("_part", "queryable_store_name")

    def __init__(self, part: StreamPart, *, queryable_store_name: str | None) -> None:
        self._part = part
        self.queryable_store_name = queryable_store_name

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
        from millstream.topology.stream import KStream

        part = self._part
        node = OperatorGraphNode(
            name=part.graph.names.processor("KTABLE-TOSTREAM-", name),
            declared_at=call_site(),
            changes_value=True,
            supplier=TableToStream,
        )
        part.graph.attach(node, part.node)
        stream: KStream[K, V] = KStream(replace(part, node=node, repartition_required=False))
        return stream if key_selector is None else stream.select_key(key_selector)
