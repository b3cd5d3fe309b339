"""DataFrame stages below a stream, including those that write to lake tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millstream.errors import TopologyError
from millstream.operators.origin_header import AddOriginHeader
from millstream.serdes import Serde
from millstream.topology.call_site import call_site
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.dsl.stream_process import process
from millstream.topology.logical.graph_nodes import GraphNode
from millstream.topology.naming import name_problem
from millstream.topology.options.lake import LakeTable
from millstream.topology.options.trigger import checked_trigger
from millstream.topology.physical.dataframe_stage import INPUT_SUFFIX, OUTPUT_SUFFIX, DataFrameStage
from millstream.topology.physical.internal_topic_configs import RepartitionTopic
from millstream.topology.physical.java_order import SourceNames
from millstream.topology.physical.topology import Topology, add_unique


@dataclass(eq=False, slots=True, kw_only=True)
class DataFrameGraphNode(GraphNode):
    """`transform_dataframe(...)`: a DataFrame stage between two internal topics.

    The node is named after the source that reads the output topic or, if the stage has a sink,
    after the sink node that writes the input topic.
    """

    kind = "dataframe"

    stage: DataFrameStage

    def write(self, topology: Topology) -> None:
        stage, site = self.stage, self.declared_at
        topology._add_internal_topic(RepartitionTopic(stage.input_topic))
        topology.add_sink(
            f"{stage.name}-dataframe-sink",
            stage.input_topic,
            self.parent_names,
            key=stage.input_key,
            value=stage.input_value,
            declared_at=site,
        )
        add_unique(topology.dataframe_stages, stage, "DataFrame function")
        if stage.output_topic is not None:
            topology._add_internal_topic(
                RepartitionTopic(stage.output_topic, times_in_headers=True)
            )
            topology.add_source(
                self.name,
                stage.output_topic,
                key=stage.output_key,
                value=stage.output_value,
                declared_at=site,
            )


def add_dataframe_stage(
    part: StreamPart,
    name: object,
    function: Callable[[Any], Any] | None,
    trigger: object,
    *,
    input_key: Serde[Any] | None = None,
    input_value: Serde[Any] | None = None,
    output_key: Serde[Any] | None = None,
    output_value: Serde[Any] | None = None,
    sink: LakeTable | None = None,
) -> StreamPart:
    """Add a DataFrame stage to a stream.

    Returns the stream of its results, partitioned by key.

    Args:
        function: DataFrame → DataFrame; None for a lake table.

    Raises:
        TopologyError: the name is missing or not legal, or the trigger is not valid or cannot be
            used for a lake table.
    """
    site = call_site()
    checked = checked_trigger(trigger)
    if sink is not None and checked.is_real_time:
        raise TopologyError(
            f"{name!r} cannot write to a table in real time: Spark's real-time mode only writes to "
            "topics, and tables are written in batches. Use Trigger.processing_time(...).",
            declared_at=site,
        )
    if not name:
        raise TopologyError(
            "A DataFrame function needs a name: its topics, its checkpoint and its metrics contain "
            'the name. Pass name="...".',
            declared_at=site,
        )
    if problem := name_problem(name):
        raise TopologyError(problem, declared_at=site)
    key, value = input_key or part.key_serde, input_value or part.value_serde
    stage = DataFrameStage(
        str(name),
        f"{name}{INPUT_SUFFIX}",
        f"{name}{OUTPUT_SUFFIX}" if sink is None else None,
        function,
        checked,
        key,
        value,
        output_key or key,
        output_value or value,
        sink,
        site,
    )
    node = DataFrameGraphNode(
        name=f"{name}-dataframe-{'source' if sink is None else 'sink'}",
        declared_at=site,
        changes_key=True,
        changes_value=True,
        stage=stage,
    )
    part.graph.attach(node, part.node)
    return StreamPart(
        part.graph, node, stage.output_key, stage.output_value, SourceNames([node.name])
    )


def write_to_lake(
    part: StreamPart,
    table: LakeTable,
    name: object,
    trigger: object,
    key: Serde[Any] | None,
    value: Serde[Any] | None,
) -> None:
    """Add a stage that writes a stream to a lake table.

    Raises:
        TopologyError: the name is missing or not legal, or the trigger is not valid.
    """
    value = part.value_serde if value is None else value
    if not table.upserts:
        part = process(
            part, AddOriginHeader, (), f"{name}-origin" if name else None, fixed_key=True
        )
    add_dataframe_stage(part, name, None, trigger, input_key=key, input_value=value, sink=table)
