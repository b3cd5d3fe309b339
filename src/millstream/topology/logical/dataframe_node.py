"""The node of a DataFrame function, and what it is cut into."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.errors import TopologyError
from millstream.topology.logical.graph_nodes import GraphNode
from millstream.topology.naming import name_problem
from millstream.topology.physical.dataframe_stage import (
    INPUT_SUFFIX,
    OUTPUT_SUFFIX,
    DataFrameStage,
)
from millstream.topology.physical.internal_topics import RepartitionTopic
from millstream.topology.physical.topology import Topology


@dataclass(eq=False, slots=True, kw_only=True)
class DataFrameGraphNode(GraphNode):
    """`transform_dataframe(...)`: records leave through a topic and come back through another.

    Its name is that of the source which reads the output topic; of a stage with a sink that of the
    sink node which writes the input topic.

    Args:
        stage: what is done in between.
    """

    kind = "dataframe"

    stage: DataFrameStage

    def write(self, topology: Topology) -> None:
        """A sink, the stage, and a source if records come back."""
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
        topology._add_dataframe_stage(stage)
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


def dataframe_node(stage: DataFrameStage) -> DataFrameGraphNode:
    """The node of a stage."""
    end = "sink" if stage.output_topic is None else "source"
    return DataFrameGraphNode(
        name=f"{stage.name}-dataframe-{end}",
        declared_at=stage.declared_at,
        changes_key=True,
        changes_value=True,
        stage=stage,
    )


def stage_topics(name: object, site: str) -> tuple[str, str]:
    """The undecorated names of the input and the output topic of a stage.

    Raises:
        TopologyError: the name is missing or not legal.
    """
    if not name:
        raise TopologyError(
            "A DataFrame function needs a name: its topics, its checkpoint and its metrics are "
            'called after it. Give name="...".',
            declared_at=site,
        )
    problem = name_problem(name)
    if problem:
        raise TopologyError(problem, declared_at=site)
    return f"{name}{INPUT_SUFFIX}", f"{name}{OUTPUT_SUFFIX}"
