"""Bringing the records of a stream to the tasks that own their keys, before a join."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from millstream.serdes import Serde
from millstream.topology.call_site import call_site
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.logical.graph_nodes import RepartitionGraphNode
from millstream.topology.logical.repartition import repartition_node
from millstream.topology.naming import checked_name
from millstream.topology.physical.source_names import SourceNames


class JoinPlacement:
    """The repartition topic that the joins of one stream object share unless they are named."""

    __slots__ = ("_node",)

    def __init__(self) -> None:
        self._node: RepartitionGraphNode | None = None

    def placed(
        self,
        part: StreamPart,
        base: str | None,
        key: Serde[Any] | None,
        value: Serde[Any] | None,
    ) -> StreamPart:
        """The stream after repartitioning, if keys may have changed.

        Follows Kafka Streams, whose numbers must be met: each join takes those of a repartition
        node, also where the topic of an earlier one serves it.

        Args:
            part: the stream, always the same one.
            base: what the topic is to be named after; None for the operation before.
            key: of the topic's keys, and of the stream afterwards; None for that of the stream.
            value: of the topic's values, and of the stream afterwards; None for that of the stream.
        """
        part = replace(
            part,
            key_serde=part.key_serde if key is None else key,
            value_serde=part.value_serde if value is None else value,
        )
        if not part.repartition_required:
            return part
        node = repartition_node(
            part.graph.names,
            part.name if base is None else checked_name(base),
            key_serde=part.key_serde,
            value_serde=part.value_serde,
            declared_at=call_site(),
            generated=base is None,
        )
        if self._node is None or base is not None:
            self._node = node
            part.graph.attach(node, part.node)
        sources = SourceNames([self._node.name])
        if self._node.name != node.name:
            sources = part.graph.stand_in(node.name, sources)
        return replace(part, node=self._node, sources=sources, repartition_required=False)
