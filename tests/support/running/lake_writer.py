"""A query that writes to a lake table, as a program that kills itself with its JVM.

    lake_writer.py FOLDER FORMAT KIND [PLACE BATCH]

KIND is `appends` or `upserts`. Below FOLDER are `input` (a file of JSON for each batch),
`checkpoint` and `table`. PLACE is one of `PLACES`, BATCH the number of the batch in which it is
armed. Without them the query processes all input; then the program reads the table and prints
it as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession

from millstream.dataframes import stage_plan
from millstream.dataframes.lake import delta, iceberg
from millstream.dataframes.lake.lake_tables import read_iceberg
from millstream.dataframes.lake.layout import lake_rows
from millstream.spark.sessions.local_session import start_local
from millstream.topology.options.lake import LakeFormat, LakeTable, lake_table

#: The function of each place, and whether the place is after the call. In the order of a batch.
PLACES: dict[str, tuple[ModuleType, str, bool] | None] = {
    "before the batch": (stage_plan, "write_batch", False),
    "while the files are written": None,
    "after the files are written": (iceberg, "write_files", True),
    "before the commit": (iceberg, "commit", False),
    "after the commit": (iceberg, "commit", True),
    "before the compaction": (delta, "compact", False),
    "after the batch": (stage_plan, "write_batch", True),
}
SCHEMA = (
    "key string, value struct<id: bigint, country: string>, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>, partition int, offset bigint"
)


def places_of(format: str) -> list[str]:
    """The places that a batch into a table of this format passes."""
    others = {"delta": iceberg, "iceberg": delta}[format]
    return [name for name, place in PLACES.items() if place is None or place[0] is not others]


def table_in(folder: Path, format: LakeFormat, kind: str) -> LakeTable:
    """The output table."""
    upserts = kind == "upserts"
    return lake_table(
        folder / "table",
        format,
        [] if upserts else ["value.country"],
        upserts=upserts,
        files_per_batch=1,
        compact_every=2 if format == "delta" else 0,
    )


def die() -> None:
    """Simulate a machine failure: the JVM would otherwise complete its current work."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


def arm(place: str, batch: int, table: Path) -> None:
    """Die at a place of a batch."""
    numbers: list[int] = []
    original = stage_plan.write_batch

    def write(into: LakeTable, stage: str, rows: DataFrame, number: int) -> None:
        numbers.append(number)
        original(into, stage, rows, number)

    patch.object(stage_plan, "write_batch", write).start()
    found = PLACES[place]
    if found is None:
        threading.Thread(target=_watch, args=(numbers, batch, table), daemon=True).start()
        return
    owner, name, after = found
    patch.object(owner, name, _dying(getattr(owner, name), numbers, batch, after)).start()


def _dying(
    function: Callable[..., Any], numbers: list[int], batch: int, after: bool
) -> Callable[..., Any]:
    def wrapped(*arguments: Any) -> Any:
        given = arguments[-1] if function.__name__ == "write" else None
        due = (numbers[-1] if given is None else given) == batch
        if due and not after:
            die()
        result = function(*arguments)
        if due and after:
            die()
        return result

    return wrapped


def _watch(numbers: list[int], batch: int, table: Path) -> None:
    """Die as soon as the batch has started to write a file."""
    before: set[Path] | None = None
    while True:
        if not numbers or numbers[-1] < batch:
            continue
        if before is None:
            before = set(_files(table))
        elif set(_files(table)) - before:
            die()


def _files(table: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(table):
        yield from (Path(folder, name) for name in names if ".parquet" in name)


def run(session: SparkSession, folder: Path, table: LakeTable) -> None:
    """Process all input, batch by batch."""
    frame = (
        session.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", "1")
        .json(str(folder / "input"))
    )
    rows = lake_rows(table)(frame)
    writer = rows.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    query = stage_plan.LakeSink(table, "shop/orders").start(rows, writer.trigger(availableNow=True))
    query.awaitTermination()


def main() -> None:
    folder, format, kind = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    assert format in ("delta", "iceberg")
    table = table_in(folder, "delta" if format == "delta" else "iceberg", kind)
    if len(sys.argv) > 4:
        arm(sys.argv[4], int(sys.argv[5]), Path(table.path))
    session = start_local(2, [format])
    session.conf.set("spark.sql.shuffle.partitions", "2")
    run(session, folder, table)
    read = session.read.format("delta").load if format == "delta" else None
    rows = read(table.path) if read else read_iceberg(session, table.path)
    found = [[row.key, None if row.value is None else row.value.id] for row in rows.collect()]
    sys.stdout.write(f"{json.dumps(found)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
