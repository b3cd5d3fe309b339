"""DataFrame stages, which connect two sub-topologies.

The upstream sub-topology writes to an internal topic. A Structured Streaming query reads this
topic, and writes to another topic for the downstream sub-topology, or to an external sink. The
query is not a task: one driver of the application runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from millstream.serdes import Serde
from millstream.topology.options.lake import LakeTable
from millstream.topology.options.trigger import DEFAULT_TRIGGER, Trigger

INPUT_SUFFIX: Final = "-dataframe-input-repartition"
OUTPUT_SUFFIX: Final = "-dataframe-output-repartition"
#: The header with a record's timestamp in the output topic: milliseconds as 8 bytes, big-endian. It
#: is the last header of the record.
TIME_HEADER: Final = "millstream.timestamp"


@dataclass(frozen=True, slots=True)
class DataFrameStage:
    """A DataFrame function of a topology.

    For serdes, None stands for the config's default.
    """

    #: The name of the stage, which is also the name of the query and of its checkpoint.
    name: str
    #: The undecorated name of the topic that the query reads.
    input_topic: str
    #: The undecorated name of the topic that the query writes; None if there is a sink.
    output_topic: str | None
    #: A streaming DataFrame → a streaming DataFrame; None on workers, and for a lake table.
    function: Callable[[Any], Any] | None
    trigger: Trigger = DEFAULT_TRIGGER
    input_key: Serde[Any] | None = None
    input_value: Serde[Any] | None = None
    output_key: Serde[Any] | None = None
    output_value: Serde[Any] | None = None
    sink: LakeTable | None = None
    declared_at: str = field(default="", compare=False)

    @property
    def target(self) -> str:
        """A description of the sink or the output topic."""
        if self.sink is not None:
            return self.sink.description
        return f"topic: {self.output_topic}"

    def for_workers(self) -> DataFrameStage:
        """Return a copy for stream threads, which only use the topics.

        The function may refer to objects that exist only on the driver, such as a DataFrame.
        """
        return replace(self, function=None, sink=None)
