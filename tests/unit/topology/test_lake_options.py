"""What to_lake takes and refuses, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from millstream import StreamsBuilder, TopologyError
from millstream.serdes import STRING
from millstream.topology.options.lake import LakeTable, PartitionColumn, lake_table


def table(partition_by: Any = (), *, upserts: bool = False, **more: Any) -> LakeTable:
    given = {"path": "/lake/t", "format": "delta", "files_per_batch": 1, "compact_every": 0}
    arguments = {**given, **more}
    path, format = arguments.pop("path"), arguments.pop("format")
    return lake_table(path, format, partition_by, upserts=upserts, **arguments)


@pytest.mark.parametrize(
    ("given", "column"),
    [
        ("value.country", PartitionColumn("country", "value.country")),
        ("date(timestamp)", PartitionColumn("date", "date(timestamp)")),
        ("hour(timestamp) AS hour", PartitionColumn("hour", "hour(timestamp)")),
        ("_partition", PartitionColumn("_partition", "_partition")),
        ("_partition % 4 as part", PartitionColumn("part", "_partition % 4")),
    ],
)
def test_partition_columns_have_names(given: str, column: PartitionColumn) -> None:
    """A column or field by its own name, a function by the function's, all else by AS."""
    assert table([given]).partition_by == (column,)


@pytest.mark.parametrize(
    ("problem", "arguments"),
    [
        ("no such format", {"format": "orc"}),
        ("needs the path", {"path": " "}),
        (r"only ever added.*to_stream\(\)\.to_lake", {"format": "parquet", "upserts": True}),
        (
            "cannot be partitioned",
            {"format": "iceberg", "upserts": True, "partition_by": ["value.country"]},
        ),
        ("for Delta only", {"format": "iceberg", "compact_every": 3}),
        ("at least 1", {"files_per_batch": 0}),
        ("at least 0", {"compact_every": True}),
        ("give a list", {"partition_by": "value.country"}),
        ("Name it", {"partition_by": ["value.key"]}),
        ("Name an expression", {"partition_by": ["_partition % 4"]}),
        ("takes columns", {"partition_by": [3]}),
    ],
)
def test_what_cannot_be_is_refused(problem: str, arguments: dict[str, Any]) -> None:
    """At once, with what to do."""
    with pytest.raises(TopologyError, match=problem):
        table(**arguments)


def test_a_table_is_part_of_the_description() -> None:
    """The stage with its table, below the operation that notes where records came from."""
    builder = StreamsBuilder()
    builder.stream("clicks", key=STRING, value=STRING).to_lake("/lake/t", name="lake")
    topology = builder.build()
    stage = topology.dataframe_stages["lake"]
    assert stage.target == "parquet: /lake/t"
    assert "lake-origin" in str(topology.describe())
    assert "parquet: /lake/t" in str(topology.describe())
