"""How a node computes: operators take a batch of records and give batches.

An operator belongs to one task, sees the records of its node in Kafka Streams' depth-first order,
and never looks at Kafka, Spark or the clock of the machine.
"""

from millstream.operators.aggregates.aggregate import (
    StreamAggregateOperator,
    StreamCountOperator,
    StreamReduceOperator,
    TableToStreamOperator,
)
from millstream.operators.stateless import (
    BranchOperator,
    FilterOperator,
    FlatMapOperator,
    FlatMapValuesOperator,
    ForEachOperator,
    MapOperator,
    MapValuesOperator,
    NullKeyFilterOperator,
    PassThroughOperator,
    PeekOperator,
    PrintOperator,
    SelectKeyOperator,
)

__all__ = [
    "BranchOperator",
    "FilterOperator",
    "FlatMapOperator",
    "FlatMapValuesOperator",
    "ForEachOperator",
    "MapOperator",
    "MapValuesOperator",
    "NullKeyFilterOperator",
    "PassThroughOperator",
    "PeekOperator",
    "PrintOperator",
    "SelectKeyOperator",
    "StreamAggregateOperator",
    "StreamCountOperator",
    "StreamReduceOperator",
    "TableToStreamOperator",
]
