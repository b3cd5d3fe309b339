"""The Processor API in the DSL: user code that gets a stream record by record, with stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from millstream.topology.arguments import store_names
from millstream.topology.call_site import call_site
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.logical.graph_nodes import ProcessGraphNode
from millstream.topology.naming import checked_name
from millstream.topology.operations.processors import Process
from millstream.topology.physical.suppliers import wrapped_supplier


def process(
    part: StreamPart,
    supplier: Callable[[], Any],
    stores: str | Sequence[str],
    name: str | None,
    *,
    fixed_key: bool,
) -> StreamPart:
    """The stream of what processors of the user's forward.

    Args:
        part: the stream.
        supplier: gives a new processor at each call.
        stores: the names of those to connect.
        name: of the operation.
        fixed_key: whether it gives a `FixedKeyProcessor`.

    Raises:
        TopologyError: the supplier gives the same processor twice, or none.
    """
    graph, site = part.graph, call_site()
    prefix = "KSTREAM-PROCESSVALUES-" if fixed_key else "KSTREAM-PROCESSOR-"
    # A given name takes no number here: follows Kafka Streams.
    named = graph.names.processor(prefix) if name is None else checked_name(name)
    supplier, builders = wrapped_supplier(
        graph.processor_wrapper, supplier, named, site, fixed_key=fixed_key
    )
    node = ProcessGraphNode(
        name=named,
        declared_at=site,
        # Unlike Kafka Streams, whose optimization would put a repartition topic above it (see
        # KAFKA-19668): it may forward other keys and values than it is given.
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
