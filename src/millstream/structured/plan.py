"""What a stage is on a cluster: real names of topics and groups, serdes, its checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.config import StreamsConfig
from millstream.errors import ConfigError
from millstream.serdes import Serde
from millstream.state.directories.host_path import state_dir_here
from millstream.structured.lake.layout import lake_rows
from millstream.structured.lake.sink import LakeSink
from millstream.structured.real_time import check_real_time
from millstream.structured.rows import Serdes
from millstream.topology.options.lake import LakeTable
from millstream.topology.options.trigger import Trigger
from millstream.topology.physical.dataframe_stage import DataFrameSink, DataFrameStage
from millstream.topology.physical.internal_topics import decorated


@dataclass(frozen=True)
class StagePlan:
    """A stage of one application.

    Args:
        name: the stage's.
        query_name: that of its query in the Spark session.
        input_topic: what it reads.
        output_topic: what it writes; None if there is a sink.
        function: the user's.
        trigger: when it gets the next records.
        reads: the serdes of what it reads.
        writes: the serdes of what it writes; None if there is a sink.
        sink: where the rows go; None if there is an output topic.
        group: the consumer group in which the drivers choose who runs it.
        marks: the group under which finished batches are noted, under exactly-once.
        checkpoint: where Structured Streaming keeps its notes: a folder or a URL.
        declared_at: file and line of the user's program.
    """

    name: str
    query_name: str
    input_topic: str
    output_topic: str | None
    function: Callable[[Any], Any]
    trigger: Trigger
    reads: Serdes
    writes: Serdes | None
    sink: DataFrameSink | None
    group: str
    marks: str
    checkpoint: str
    declared_at: str


def stage_plan(stage: DataFrameStage, config: StreamsConfig) -> StagePlan:
    """The plan of a stage.

    Raises:
        ConfigError: a serde is missing; or the stage is to be in real time, and cannot.
    """
    application = config.application_id
    source = decorated(stage.input_topic, application)
    target = None if stage.output_topic is None else decorated(stage.output_topic, application)
    function, sink = stage.function, stage.sink
    if isinstance(sink, LakeTable):
        function, sink = lake_rows(sink), LakeSink(sink, f"{application}/{stage.name}")
    assert function is not None
    writes = None
    if target is not None:
        writes = Serdes(
            stage.name,
            target,
            _serde(stage, stage.output_key, "key", config),
            _serde(stage, stage.output_value, "value", config),
        )
    reads = Serdes(
        stage.name,
        source,
        _serde(stage, stage.input_key, "key", config),
        _serde(stage, stage.input_value, "value", config),
    )
    if stage.trigger.is_real_time:
        assert writes is not None
        check_real_time(stage.name, reads, writes, config, stage.declared_at)
    return StagePlan(
        name=stage.name,
        query_name=f"{application}-{stage.name}",
        input_topic=source,
        output_topic=target,
        function=function,
        trigger=stage.trigger,
        reads=reads,
        writes=writes,
        sink=sink,
        group=election_group(application, stage.name),
        marks=f"{application}-{stage.name}-dataframe-batches",
        checkpoint=checkpoint_of(config, stage.name),
        declared_at=stage.declared_at,
    )


def election_group(application_id: str, stage: str) -> str:
    """The consumer group in which drivers choose who runs a stage; it also has what is finished."""
    return f"{application_id}-{stage}-dataframe"


def checkpoint_of(config: StreamsConfig, stage: str) -> str:
    """Where a stage's query keeps its notes."""
    parent = config.dataframe_checkpoint_dir
    if parent is None:
        here = state_dir_here(config.state_dir)
        return str(Path(here, config.application_id, "dataframes", stage).absolute())
    return f"{str(parent).rstrip('/')}/{config.application_id}/{stage}"


def _serde(
    stage: DataFrameStage, own: Serde[Any] | None, what: str, config: StreamsConfig
) -> Serde[Any]:
    default = config.default_key_serde if what == "key" else config.default_value_serde
    found = own or default
    if found is None:
        raise ConfigError(
            f"There is no {what} serde for the DataFrame function {stage.name!r}: give "
            f"{what}= for what it returns and input_{what}= for what it gets, or set "
            f"default_{what}_serde.",
            declared_at=stage.declared_at or None,
        )
    return found
