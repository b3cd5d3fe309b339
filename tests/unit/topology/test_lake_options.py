"""Arguments of to_lake, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from millstream import StreamsBuilder, TopologyError
from millstream.serdes import STRING
from millstream.topology.options.lake import LakeTable, PartitionColumn, lake_table


def table(partition_by: Any = (), *, upserts: bool = False, **more: Any) -> LakeTable:
    defaults = {"path": "/lake/t", "format": "delta", "files_per_batch": 1, "compact_every": 0}
    arguments = {**defaults, **more}
    path, format = arguments.pop("path"), arguments.pop("format")
    return lake_table(path, format, partition_by, upserts=upserts, **arguments)


@pytest.mark.parametrize(
    ("expression", "column"),
    [
        ("value.country", PartitionColumn("country", "value.country")),
        ("date(timestamp)", PartitionColumn("date", "date(timestamp)")),
        ("hour(timestamp) AS hour", PartitionColumn("hour", "hour(timestamp)")),
        ("_partition", PartitionColumn("_partition", "_partition")),
        ("_partition % 4 as part", PartitionColumn("part", "_partition % 4")),
    ],
)
def test_names_of_partition_columns(expression: str, column: PartitionColumn) -> None:
    """The name of a column, field or function; other expressions need AS."""
    assert table([expression]).partition_by == (column,)


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
        ("pass a list", {"partition_by": "value.country"}),
        ("another name", {"partition_by": ["value.key"]}),
        ("An expression needs a name", {"partition_by": ["_partition % 4"]}),
        ("takes columns", {"partition_by": [3]}),
    ],
)
def test_invalid_arguments_are_rejected(problem: str, arguments: dict[str, Any]) -> None:
    """At the declaration, with the remedy."""
    with pytest.raises(TopologyError, match=problem):
        table(**arguments)


def test_description_contains_the_table() -> None:
    """The stage with its table, behind the operation that notes the origin of records."""
    builder = StreamsBuilder()
    builder.stream("clicks", key=STRING, value=STRING).to_lake("/lake/t", name="lake")
    topology = builder.build()
    stage = topology.dataframe_stages["lake"]
    assert stage.target == "parquet: /lake/t"
    assert "lake-origin" in str(topology.describe())
    assert "parquet: /lake/t" in str(topology.describe())
