"""The plan of a stage.

A plan contains the full names of topics and groups, the serdes, and the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.config.streams_config import StreamsConfig
from millstream.dataframes.lake import delta, iceberg
from millstream.dataframes.lake.layout import batch_of, lake_rows
from millstream.dataframes.real_time import check_real_time
from millstream.dataframes.row_conversion import StageSerdes
from millstream.errors import ConfigError, DataFrameError
from millstream.serdes import Serde
from millstream.spark.sessions.connectors import require
from millstream.state.directories.state_directory import resolve_state_dir
from millstream.topology.options.lake import LakeHistory, LakeTable
from millstream.topology.options.trigger import Trigger
from millstream.topology.physical.dataframe_stage import DataFrameStage
from millstream.topology.physical.internal_topic_configs import decorated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_CONNECTORS: Final = ("delta", "iceberg")


@dataclass(frozen=True)
class LakeSink:
    """Writes the rows of a stage to a lake table."""

    table: LakeTable
    stage: str

    def start(self, frame: DataFrame, writer: DataStreamWriter) -> StreamingQuery:
        """Start the query.

        Parquet is written by Structured Streaming's file sink, whose log of files
        (`_spark_metadata`) contains each batch once. Other formats are written batch by batch.
        """
        table = self.table
        require(frame.sparkSession, connectors_of([table]))
        if table.format == "parquet":
            names = [column.name for column in table.partition_by]
            return writer.partitionBy(*names).format("parquet").start(table.path)
        return writer.foreachBatch(partial(write_batch, table, self.stage)).start()


def write_batch(table: LakeTable, stage: str, rows: DataFrame, number: int) -> None:
    """Write one batch from `lake_rows`, unless the table already contains it.

    Called by Spark.
    """
    batch = batch_of(rows, number, table, stage)
    lake = delta if table.format == "delta" else iceberg
    write = lake.upsert if table.upserts else lake.append
    write(rows, batch)


def connectors_of(tables: Iterable[LakeTable | LakeHistory]) -> list[str]:
    formats = {table.format for table in tables}
    return [name for name in _CONNECTORS if name in formats]


@dataclass(frozen=True)
class StagePlan:
    """The plan of one application's stage, with the full names of topics and groups."""

    name: str
    query_name: str
    input_topic: str
    #: None if the stage has a sink. The same applies to `writes`.
    output_topic: str | None
    function: Callable[[Any], Any]
    trigger: Trigger
    reads: StageSerdes
    writes: StageSerdes | None
    sink: LakeSink | None
    #: The consumer group that elects the stage's driver.
    group: str
    #: The group in which finished batches are committed under exactly-once.
    batch_group: str
    #: A folder or a URL.
    checkpoint: str
    #: The file and line of the user's program.
    declared_at: str

    def error(self, message: str) -> DataFrameError:
        return DataFrameError(message, declared_at=self.declared_at or None)


def stage_plan(stage: DataFrameStage, config: StreamsConfig) -> StagePlan:
    """Create the plan of a stage, or raise a `ConfigError`."""
    application = config.application_id
    source = decorated(stage.input_topic, application)
    target = None if stage.output_topic is None else decorated(stage.output_topic, application)
    function, sink = stage.function, None
    if stage.sink is not None:
        function = lake_rows(stage.sink)
        sink = LakeSink(stage.sink, f"{application}/{stage.name}")
    assert function is not None
    writes = None
    if target is not None:
        writes = _serdes(stage, target, stage.output_key, stage.output_value, config)
    reads = _serdes(stage, source, stage.input_key, stage.input_value, config)
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
        batch_group=f"{application}-{stage.name}-dataframe-batches",
        checkpoint=checkpoint_of(config, stage.name),
        declared_at=stage.declared_at,
    )


def election_group(application_id: str, stage: str) -> str:
    """Return the consumer group that elects a stage's driver.

    The group also stores the stage's offsets.
    """
    return f"{application_id}-{stage}-dataframe"


def checkpoint_of(config: StreamsConfig, stage: str) -> str:
    parent = config.dataframe_checkpoint_dir
    if parent is None:
        here = resolve_state_dir(config.state_dir)
        return str(Path(here, config.application_id, "dataframes", stage).absolute())
    return f"{str(parent).rstrip('/')}/{config.application_id}/{stage}"


def _serdes(
    stage: DataFrameStage,
    topic: str,
    key: Serde[Any] | None,
    value: Serde[Any] | None,
    config: StreamsConfig,
) -> StageSerdes:
    key, value = key or config.default_key_serde, value or config.default_value_serde
    if key is None or value is None:
        what = "key" if key is None else "value"
        raise ConfigError(
            f"The DataFrame function {stage.name!r} has no {what} serde. Pass {what}= for its "
            f"result and input_{what}= for its input, or set default_{what}_serde.",
            declared_at=stage.declared_at or None,
        )
    return StageSerdes(stage.name, topic, key, value)
