"""A DataFrame function between two sub-topologies: what it reads, what it gives, and to where.

The part above it writes an internal topic, a query of Structured Streaming reads that, and writes
another one for the part below, or something outside of the topology. The query is no task: one
driver of the application runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from millstream.serdes import Serde
from millstream.topology.options.lake import LakeTable
from millstream.topology.options.trigger import AT_ONCE, Trigger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

INPUT_SUFFIX: Final = "-dataframe-input-repartition"
OUTPUT_SUFFIX: Final = "-dataframe-output-repartition"
#: The header of the output topic that has a record's time in milliseconds, 8 bytes big-endian; the
#: last one of a record.
TIME_HEADER: Final = "millstream.timestamp"


class DataFrameSink(Protocol):
    """Where the rows of a stage go that has no output topic."""

    #: Of what kind it is and where it lies, for descriptions: `delta: /lake/orders`.
    description: str

    def start(self, frame: DataFrame, writer: DataStreamWriter) -> StreamingQuery:
        """Start the query that writes the rows.

        Args:
            frame: what the stage's function gave, a streaming DataFrame.
            writer: of that frame, with the query's name, checkpoint and trigger set.
        """
        ...


@dataclass(frozen=True, slots=True)
class DataFrameStage:
    """One DataFrame function of a topology.

    Args:
        name: the user's; the query and the checkpoint are called so.
        input_topic: what it reads, undecorated.
        output_topic: what it writes, undecorated; None if there is a sink.
        function: a streaming DataFrame → a streaming DataFrame; None in what workers are sent, and
            for a table of the lake.
        trigger: when it gets the next records.
        input_key: the serde of the keys that it reads; None for the config's default.
        input_value: the serde of the values that it reads, likewise.
        output_key: the serde of the keys that it writes, likewise.
        output_value: the serde of the values that it writes, likewise.
        sink: where the rows go if not into a topic; None if there is an output topic.
        declared_at: file and line of the user's program.
    """

    name: str
    input_topic: str
    output_topic: str | None
    function: Callable[[Any], Any] | None
    trigger: Trigger = AT_ONCE
    input_key: Serde[Any] | None = None
    input_value: Serde[Any] | None = None
    output_key: Serde[Any] | None = None
    output_value: Serde[Any] | None = None
    sink: DataFrameSink | LakeTable | None = None
    declared_at: str = field(default="", compare=False)

    @property
    def target(self) -> str:
        """Where its rows go, in words."""
        if self.sink is not None:
            return self.sink.description
        return f"topic: {self.output_topic}"

    def for_workers(self) -> DataFrameStage:
        """What stream threads need to know of it: its topics.

        The function may hold what only the driver has, a DataFrame for example.
        """
        return replace(self, function=None, sink=None)
