"""The Processor API in the DSL: custom processors with stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from millstream.topology.argument_checks import store_names
from millstream.topology.call_site import call_site
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.logical.graph_nodes import ProcessGraphNode
from millstream.topology.naming import checked_name
from millstream.topology.operations.streams import Process
from millstream.topology.physical.suppliers import wrapped_supplier


def process(
    part: StreamPart,
    supplier: Callable[[], Any],
    stores: str | Sequence[str],
    name: str | None,
    *,
    fixed_key: bool,
) -> StreamPart:
    """Return the stream of the records that custom processors forward.

    Raises:
        TopologyError: the supplier returns no processor, or returns the same processor twice.
    """
    graph, site = part.graph, call_site()
    prefix = "KSTREAM-PROCESSVALUES-" if fixed_key else "KSTREAM-PROCESSOR-"
    # As in Kafka Streams, an explicit name takes no number here.
    node_name = graph.names.processor(prefix) if name is None else checked_name(name)
    supplier, builders = wrapped_supplier(
        graph.processor_wrapper, supplier, node_name, site, fixed_key=fixed_key
    )
    node = ProcessGraphNode(
        name=node_name,
        declared_at=site,
        # The processor may forward other keys and values. Unlike in Kafka Streams (KAFKA-19668),
        # `merge.repartition.topics` therefore never puts a repartition topic above the node.
        changes_key=not fixed_key,
        changes_value=True,
        operation=Process(supplier, fixed_key),
        store_names=store_names("process_values" if fixed_key else "process", stores),
        store_builders=tuple(builders),
    )
    graph.attach(node, part.node)
    if fixed_key:
        return replace(part, node=node, value_serde=None)
    return StreamPart(graph, node, None, None, part.sources, repartition_required=True)
