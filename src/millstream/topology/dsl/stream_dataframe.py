"""Cutting a stream for a DataFrame function, and where its records come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.errors import TopologyError
from millstream.serdes import Serde
from millstream.topology.call_site import call_site
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.logical.dataframe_node import dataframe_node, stage_topics
from millstream.topology.options.lake import LakeTable
from millstream.topology.options.trigger import checked_trigger
from millstream.topology.physical.dataframe_stage import DataFrameSink, DataFrameStage
from millstream.topology.physical.source_names import SourceNames


def cut_for_dataframe(
    part: StreamPart,
    name: object,
    function: Callable[[Any], Any] | None,
    trigger: object,
    *,
    input_key: Serde[Any] | None = None,
    input_value: Serde[Any] | None = None,
    output_key: Serde[Any] | None = None,
    output_value: Serde[Any] | None = None,
    sink: DataFrameSink | LakeTable | None = None,
) -> StreamPart:
    """Put a DataFrame function below a stream; what comes out of it is placed by key.

    Args:
        part: the stream.
        name: of the stage.
        function: a DataFrame → a DataFrame; None for a table of the lake.
        trigger: a `Trigger`, or None for the default.
        input_key: the serde of the keys that go in; None for that of the stream.
        input_value: the serde of the values that go in, likewise.
        output_key: the serde of the keys that come out; None for the one that goes in.
        output_value: the serde of the values that come out, likewise.
        sink: where the rows go; None if they come back as records.

    Raises:
        TopologyError: the name is missing or not legal, or the trigger is none, or not one for a
            table of the lake.
    """
    site = call_site()
    chosen = checked_trigger(trigger)
    if sink is not None and chosen.is_real_time:
        raise TopologyError(
            f"{name!r} cannot write to a table in real time: Spark's real-time mode writes to "
            "topics, and tables are written by batches. Give Trigger.processing_time(...).",
            declared_at=site,
        )
    input_topic, output_topic = stage_topics(name, site)
    key = part.key_serde if input_key is None else input_key
    value = part.value_serde if input_value is None else input_value
    stage = DataFrameStage(
        str(name),
        input_topic,
        output_topic if sink is None else None,
        function,
        chosen,
        key,
        value,
        key if output_key is None else output_key,
        value if output_value is None else output_value,
        sink,
        site,
    )
    node = dataframe_node(stage)
    part.graph.attach(node, part.node)
    return StreamPart(
        part.graph, node, stage.output_key, stage.output_value, SourceNames([node.name])
    )
