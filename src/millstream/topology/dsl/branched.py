"""A stream on its way into branches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic

from millstream.operators import PassThrough
from millstream.record import K, V
from millstream.topology.arguments import checked_function
from millstream.topology.call_site import call_site
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.logical.graph_nodes import BranchGraphNode, OperatorGraphNode

if TYPE_CHECKING:
    from millstream.topology.dsl.stream import KStream

_DEFAULT_POSITION = 0


class BranchedKStream(Generic[K, V]):
    """What `KStream.split` gives: branches are added one by one (Kafka Streams' KIP-418).

    A record goes to the first branch whose predicate holds, else to the default branch; without
    one it is dropped silently. A branch is called after the split: its name or else its position,
    counted from 1, is appended; the default branch is at position 0.

    Example:
        >>> orders = StreamsBuilder().stream("orders", key=STRING, value=LONG)
        >>> split = orders.split(name="size-")
        >>> streams = split.branch(lambda _, n: n > 99, "big").branch(lambda _, n: n > 9)
        >>> list(streams.default_branch())
        ['size-big', 'size-2', 'size-0']
    """

    __slots__ = ("_node", "_part", "_streams")

    def __init__(self, part: StreamPart, name: str | None) -> None:
        self._part = part
        self._node = BranchGraphNode(
            name=part.graph.names.processor("KSTREAM-BRANCH-", name), declared_at=call_site()
        )
        part.graph.attach(self._node, part.node)
        self._streams: dict[str, KStream[K, V]] = {}

    def branch(
        self,
        predicate: Callable[[K, V], object],
        name: str | None = None,
        chain: Callable[[KStream[K, V]], KStream[K, V] | None] | None = None,
    ) -> BranchedKStream[K, V]:
        """Add a branch.

        Args:
            predicate: `(key, value) -> bool`.
            name: appended to the name of the split.
            chain: gets the branch's stream. The stream it returns is what the result holds for
                this branch; if it returns None, the result does not hold the branch.

        Example:
            >>> orders = StreamsBuilder().stream("orders", key=STRING, value=LONG)
            >>> split = orders.split().branch(lambda _, n: n > 99, chain=lambda big: big.to("big"))
            >>> split.no_default_branch()
            {}
        """
        checked_function("branch", "predicate", predicate, "key", "value")
        _check_chain("branch", chain)
        self._node.predicates.append(predicate)
        stream = self._child(name, len(self._node.predicates))
        self._node.branches.append(stream.name)
        self._keep(stream, chain)
        return self

    def default_branch(
        self,
        name: str | None = None,
        chain: Callable[[KStream[K, V]], KStream[K, V] | None] | None = None,
    ) -> dict[str, KStream[K, V]]:
        """The branches by their names, and one more for records that no other branch takes.

        Args:
            name: appended to the name of the split.
            chain: as for `branch`.

        Example:
            >>> orders = StreamsBuilder().stream("orders", key=STRING, value=LONG)
            >>> split = orders.split(name="size-").branch(lambda _, n: n > 99, "big")
            >>> list(split.default_branch("small"))
            ['size-big', 'size-small']
        """
        _check_chain("default_branch", chain)
        stream = self._child(name, _DEFAULT_POSITION)
        self._node.default = stream.name
        self._keep(stream, chain)
        return dict(self._streams)

    def no_default_branch(self) -> dict[str, KStream[K, V]]:
        """The branches by their names. Records that none of them takes are dropped.

        Example:
            >>> orders = StreamsBuilder().stream("orders", key=STRING, value=LONG)
            >>> split = orders.split(name="size-").branch(lambda _, n: n > 99, "big")
            >>> list(split.no_default_branch())
            ['size-big']
        """
        return dict(self._streams)

    def _child(self, name: str | None, position: int) -> StreamPart:
        graph = self._part.graph
        child = f"{self._node.name}{position if name is None else name}"
        node = OperatorGraphNode(
            name=graph.names.processor("", child), declared_at=call_site(), supplier=PassThrough
        )
        graph.attach(node, self._node)
        return replace(self._part, node=node)

    def _keep(
        self,
        part: StreamPart,
        chain: Callable[[KStream[K, V]], KStream[K, V] | None] | None,
    ) -> None:
        from millstream.topology.dsl.stream import KStream

        branch: KStream[K, V] = KStream(part)
        stream = branch if chain is None else chain(branch)
        if stream is not None:
            self._streams[part.name] = stream


def _check_chain(operation: str, chain: Callable[..., Any] | None) -> None:
    if chain is not None:
        checked_function(operation, "chain", chain, "stream")
