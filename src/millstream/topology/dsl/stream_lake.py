"""Streams and tables into the lake: a DataFrame stage that ends in a table."""

from __future__ import annotations

from typing import Any

from millstream.operators.lake_origin import NoteOrigin
from millstream.serdes import Serde
from millstream.topology.dsl.stream_dataframe import cut_for_dataframe
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.dsl.stream_process import process
from millstream.topology.options.lake import LakeTable


def into_lake(
    part: StreamPart,
    table: LakeTable,
    name: object,
    trigger: object,
    key: Serde[Any] | None,
    value: Serde[Any] | None,
) -> None:
    """Put a table of the lake below a stream.

    Args:
        part: the stream; of a table that is upserted, its changes.
        table: where the records go.
        name: of the stage.
        trigger: a `Trigger`, or None for the default.
        key: the serde of the keys; None for that of the stream.
        value: the serde of the values, likewise.

    Raises:
        TopologyError: the name is missing or not legal, or the trigger is none.
    """
    value = part.value_serde if value is None else value
    if not table.upserts:
        part = process(part, NoteOrigin, (), f"{name}-origin" if name else None, fixed_key=True)
    cut_for_dataframe(part, name, None, trigger, input_key=key, input_value=value, sink=table)
