"""How a node computes: operators take a batch of records and give batches.

An operator belongs to one task, sees the records of its node in Kafka Streams' depth-first order,
and never looks at Kafka, Spark or the clock of the machine.
"""

from millstream.operators.aggregate import (
    StreamAggregate,
    StreamCount,
    StreamReduce,
    TableToStream,
)
from millstream.operators.stateless import (
    Branch,
    Filter,
    FlatMap,
    FlatMapValues,
    ForEach,
    Map,
    MapValues,
    NullKeyFilter,
    PassThrough,
    Peek,
    Print,
    SelectKey,
)

__all__ = [
    "Branch",
    "Filter",
    "FlatMap",
    "FlatMapValues",
    "ForEach",
    "Map",
    "MapValues",
    "NullKeyFilter",
    "PassThrough",
    "Peek",
    "Print",
    "SelectKey",
    "StreamAggregate",
    "StreamCount",
    "StreamReduce",
    "TableToStream",
]
