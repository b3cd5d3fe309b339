"""Batches into an Iceberg table: Spark writes the files, Iceberg's core commits them.

There is no Iceberg for Spark 4.2 whose catalog Spark could use, so only what knows no Spark is
taken: tables, files and commits. Spark writes plain files of Parquet below the table's `data`
folder, and one commit makes them part of the table, together with a property that says which batch
it was. A batch whose number is in that property already is left out.

Changes of a table are merge-on-read: a batch brings the new rows and a file of keys (an equality
delete of Iceberg's format 2) whose older rows are no more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import SparkError
from millstream.structured.lake.batch import Batch
from millstream.structured.lake.iceberg_files import iceberg_class, iceberg_tables, write_files
from millstream.structured.lake.iceberg_schema import (
    key_field_ids,
    schema_json,
    with_field_ids,
    without_ids,
)
from millstream.structured.lake.layout import bounded, last_changes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)

#: The property `millstream.batch.<stage>` is `<query id>:<number>`; snapshots say the same.
BATCH_PROPERTY: Final = "millstream.batch."
NAME_MAPPING: Final = "schema.name-mapping.default"

_COMMIT_ATTEMPTS: Final = 5


def append(rows: DataFrame, batch: Batch) -> None:
    """Add the rows of a batch."""
    session = rows.sparkSession
    table = open_table(session, rows.schema, batch)
    if is_committed(table, batch):
        return
    names = [column.name for column in batch.table.partition_by]
    files = write_files(bounded(rows, batch.table), _folder(table, batch, "rows"), names)
    commit(session, table, batch, lambda delta, now: files.add_to(delta, now))


def upsert(changes: DataFrame, batch: Batch) -> None:
    """Put the last value of each key in the place of the one before; tombstones delete."""
    session = changes.sparkSession
    # Two writers read it, and the batch may be long.
    last = last_changes(changes, batch.table).persist()
    try:
        rows = last.where("NOT _deleted").drop("_deleted")
        table = open_table(session, rows.schema, batch)
        if is_committed(table, batch):
            return
        schema = _schema_of(session, table)
        ids = key_field_ids(schema)
        keys = last.select("key")
        keys = bounded(keys.to(with_field_ids(keys.schema, schema)), batch.table)
        gone = write_files(keys, _folder(table, batch, "keys"), [])
        files = write_files(bounded(rows, batch.table), _folder(table, batch, "rows"), [])

        def add(delta: Any, now: Any) -> None:
            files.add_to(delta, now)
            gone.delete_by(delta, now, ids)

        commit(session, table, batch, add)
    finally:
        last.unpersist()


def open_table(session: SparkSession, schema: StructType, batch: Batch) -> Any:
    """The table, made now if it is not there.

    Raises:
        SparkError: it has other columns than the rows, or other partitions.
    """
    tables = iceberg_tables(session)
    path = batch.table.path
    wanted = schema_json(schema)
    if not tables.exists(path):
        _create(session, tables, wanted, batch)
    table = tables.load(path)
    _check(session, table, wanted, batch)
    return table


def is_committed(table: Any, batch: Batch) -> bool:
    """Whether the table has a batch already."""
    noted = table.properties().get(f"{BATCH_PROPERTY}{batch.stage}") or ""
    query_id, _, number = str(noted).rpartition(":")
    return query_id == batch.query_id and int(number) >= batch.number


def commit(
    session: SparkSession, table: Any, batch: Batch, add: Callable[[Any, Any], None]
) -> None:
    """Make files part of the table, unless another driver has done so in the meantime.

    A commit of somebody else's in between is refused by Iceberg, and what the table has then is
    looked at anew: a driver that believes it still runs the stage cannot add a batch twice.
    """
    for attempt in range(_COMMIT_ATTEMPTS):
        transaction = table.newTransaction()
        delta = transaction.newRowDelta()
        current = table.currentSnapshot()
        if current is not None:
            delta.validateFromSnapshot(current.snapshotId())
        delta.validateNoConflictingDataFiles()
        add(delta, table)
        delta.set("millstream.stage", batch.stage)
        delta.set("millstream.query-id", batch.query_id)
        delta.set("millstream.batch-id", str(batch.number))
        try:
            delta.commit()
            note = f"{batch.query_id}:{batch.number}"
            name = f"{BATCH_PROPERTY}{batch.stage}"
            transaction.updateProperties().set(name, note).commit()
            transaction.commitTransaction()
        except Exception as error:
            table.refresh()
            if is_committed(table, batch):
                return
            if attempt + 1 == _COMMIT_ATTEMPTS or not _is_conflict(session, error):
                raise
            logger.info("Somebody else has written %s: once more", batch.table.path)
        else:
            return


def _is_conflict(session: SparkSession, error: Exception) -> bool:
    cause = getattr(error, "java_exception", None)
    name = "" if cause is None else str(cause.getClass().getSimpleName())
    return name in ("ValidationException", "CommitFailedException")


def _create(session: SparkSession, tables: Any, schema: str, batch: Batch) -> None:
    iceberg = iceberg_class(session, "SchemaParser").fromJson(schema)
    spec = iceberg_class(session, "PartitionSpec").builderFor(iceberg)
    for column in batch.table.partition_by:
        spec = spec.identity(column.name)
    creation = (
        tables.buildTable(batch.table.path, iceberg)
        .withPartitionSpec(spec.build())
        .withProperty("format-version", "2")
        .createTransaction()
    )
    # Spark's files have no ids of columns: readers find them by name.
    mapping = iceberg_class(session, "mapping.MappingUtil").create(creation.table().schema())
    text = iceberg_class(session, "mapping.NameMappingParser").toJson(mapping)
    creation.updateProperties().set(NAME_MAPPING, text).commit()
    creation.commitTransaction()


def _check(session: SparkSession, table: Any, wanted: str, batch: Batch) -> None:
    there = _schema_of(session, table)
    if without_ids(there) != without_ids(wanted):
        raise SparkError(
            f"The Iceberg table {batch.table.path} has the columns {_told(there)}, and the stage "
            f"{batch.stage!r} writes {_told(wanted)}. Give another path, or alter the table with "
            "an engine of your choice."
        )
    if not table.properties().get(NAME_MAPPING):
        raise SparkError(
            f"The Iceberg table {batch.table.path} was not made by to_lake: its property "
            f"{NAME_MAPPING} is missing, by which columns are found. Give another path."
        )
    spec = table.spec()
    parted = [str(field.name()) for field in spec.fields()]
    if parted != [column.name for column in batch.table.partition_by]:
        raise SparkError(
            f"The Iceberg table {batch.table.path} is partitioned by {parted or 'nothing'}, and "
            f"the stage {batch.stage!r} was told otherwise: give the same, or another path."
        )


def _schema_of(session: SparkSession, table: Any) -> str:
    return str(iceberg_class(session, "SchemaParser").toJson(table.schema()))


def _told(schema: str) -> str:
    fields = without_ids(schema)["fields"]
    return ", ".join(
        f"{field['name']} {kind if isinstance(kind := field['type'], str) else kind['type']}"
        for field in fields
    )


def _folder(table: Any, batch: Batch, what: str) -> str:
    """Where the files of a batch lie: a batch that is tried again overwrites what it had left."""
    stage = "".join(char if char.isalnum() or char in "-_." else "_" for char in batch.stage)
    name = f"{stage}-{batch.query_id}-{batch.number:09d}-{what}"
    return f"{str(table.location()).rstrip('/')}/data/{name}"
