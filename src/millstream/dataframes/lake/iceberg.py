"""Writes batches to an Iceberg table.

Spark writes the files, and Iceberg's core commits them. Iceberg does not support Spark 4.2, so only
its core (tables, files and commits) is used, which is independent of Spark. Spark writes plain
Parquet files below the table's `data` folder, and one commit adds them to the table, together with
a property that contains the batch number. A batch whose number has already been committed is
skipped.

Updates are merge-on-read: a batch adds the new rows, and a file of keys that deletes the older rows
with these keys (an equality delete of Iceberg's format version 2).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from millstream.dataframes.lake.iceberg_schema import (
    key_field_ids,
    schema_json,
    with_field_ids,
    without_ids,
)
from millstream.dataframes.lake.layout import LakeBatch, last_changes, limit_files
from millstream.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)

#: The prefix of the property `millstream.batch.<stage>`, whose value is `<query ID>:<number>`. The
#: summaries of snapshots also contain the query ID and the number.
BATCH_PROPERTY: Final = "millstream.batch."
NAME_MAPPING: Final = "schema.name-mapping.default"

_COMMIT_ATTEMPTS: Final = 5


def append(rows: DataFrame, batch: LakeBatch) -> None:
    session = rows.sparkSession
    table = open_table(session, rows.schema, batch)
    if is_committed(table, batch):
        return
    names = [column.name for column in batch.table.partition_by]
    files = write_files(limit_files(rows, batch.table), _batch_folder(table, batch, "rows"), names)
    commit(session, table, batch, lambda delta, now: files.add_to(delta, now))


def upsert(changes: DataFrame, batch: LakeBatch) -> None:
    """Replace the value of each key with its last change; tombstones delete rows."""
    session = changes.sparkSession
    # The rows are read for two writes, and computing them may be expensive.
    last = last_changes(changes, batch.table).persist()
    try:
        rows = last.where("NOT _deleted").drop("_deleted")
        table = open_table(session, rows.schema, batch)
        if is_committed(table, batch):
            return
        schema = _schema_of(session, table)
        ids = key_field_ids(schema)
        keys = last.select("key")
        keys = limit_files(keys.to(with_field_ids(keys.schema, schema)), batch.table)
        deletes = write_files(keys, _batch_folder(table, batch, "keys"), [])
        files = write_files(limit_files(rows, batch.table), _batch_folder(table, batch, "rows"), [])

        def add(delta: Any, now: Any) -> None:
            files.add_to(delta, now)
            deletes.delete_by(delta, now, ids)

        commit(session, table, batch, add)
    finally:
        last.unpersist()


def open_table(session: SparkSession, schema: StructType, batch: LakeBatch) -> Any:
    """Open or create the table.

    Raises a `SparkError` if the table's columns or partitions differ.
    """
    tables = iceberg_tables(session)
    path = batch.table.path
    wanted = schema_json(schema)
    if not tables.exists(path):
        _create(session, tables, wanted, batch)
    table = tables.load(path)
    _check(session, table, wanted, batch)
    return table


def is_committed(table: Any, batch: LakeBatch) -> bool:
    noted = table.properties().get(f"{BATCH_PROPERTY}{batch.stage}") or ""
    query_id, _, number = str(noted).rpartition(":")
    return query_id == batch.query_id and int(number) >= batch.number


def commit(
    session: SparkSession, table: Any, batch: LakeBatch, add: Callable[[Any, Any], None]
) -> None:
    """Add files to the table.

    If another driver has committed the batch in the meantime, no files are added. Iceberg rejects
    the commit if there was a concurrent commit. The table is then checked again, so that a driver
    that no longer runs the stage cannot add a batch twice.
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
            logger.info("Retrying after a concurrent commit to %s", batch.table.path)
        else:
            return


def _is_conflict(session: SparkSession, error: Exception) -> bool:
    cause = getattr(error, "java_exception", None)
    name = "" if cause is None else str(cause.getClass().getSimpleName())
    return name in ("ValidationException", "CommitFailedException")


def _create(session: SparkSession, tables: Any, schema: str, batch: LakeBatch) -> None:
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
    # Spark's files contain no column IDs, so readers match columns by name.
    mapping = iceberg_class(session, "mapping.MappingUtil").create(creation.table().schema())
    text = iceberg_class(session, "mapping.NameMappingParser").toJson(mapping)
    creation.updateProperties().set(NAME_MAPPING, text).commit()
    creation.commitTransaction()


def _check(session: SparkSession, table: Any, wanted: str, batch: LakeBatch) -> None:
    existing = _schema_of(session, table)
    if without_ids(existing) != without_ids(wanted):
        raise SparkError(
            f"The Iceberg table {batch.table.path} has the columns {_column_list(existing)}, but "
            f"the stage {batch.stage!r} writes {_column_list(wanted)}. Use another path, or alter "
            "the table with another engine."
        )
    if not table.properties().get(NAME_MAPPING):
        raise SparkError(
            f"The Iceberg table {batch.table.path} was not created by to_lake: it lacks the "
            f"property {NAME_MAPPING} for matching columns by name. Use another path."
        )
    spec = table.spec()
    partitioning = [str(field.name()) for field in spec.fields()]
    if partitioning != [column.name for column in batch.table.partition_by]:
        raise SparkError(
            f"The Iceberg table {batch.table.path} is partitioned by {partitioning or 'nothing'}, "
            f"which differs from the partitioning of the stage {batch.stage!r}. Use the same "
            "partitioning, or another path."
        )


def _schema_of(session: SparkSession, table: Any) -> str:
    return str(iceberg_class(session, "SchemaParser").toJson(table.schema()))


def _column_list(schema: str) -> str:
    fields = without_ids(schema)["fields"]
    return ", ".join(
        f"{field['name']} {kind if isinstance(kind := field['type'], str) else kind['type']}"
        for field in fields
    )


def _batch_folder(table: Any, batch: LakeBatch, what: str) -> str:
    """Return the folder for the files of a batch.

    A retried batch overwrites its folder.
    """
    stage = "".join(char if char.isalnum() or char in "-_." else "_" for char in batch.stage)
    name = f"{stage}-{batch.query_id}-{batch.number:09d}-{what}"
    return f"{str(table.location()).rstrip('/')}/data/{name}"


_TIMESTAMPS: Final = "spark.sql.parquet.outputTimestampType"
#: The partition value that represents null in Spark's folder names.
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_NO_SUCCESS_FILE: Final = "mapreduce.fileoutputcommitter.marksuccessfuljobs"


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The files of one write, in a folder with subfolders for the partition columns."""

    session: SparkSession
    folder: str
    partitions: Sequence[str]

    def add_to(self, delta: Any, table: Any) -> None:
        """Add the files to a commit (a `RowDelta`) as rows."""
        jvm: Any = self.session.sparkContext._jvm
        build = iceberg_class(self.session, "DataFiles").builder
        for path, values in self._files():
            file = build(table.spec()).withFormat("parquet")
            self._describe(file, path, table)
            if self.partitions:
                java_values = jvm.java.util.ArrayList()
                for value in values:
                    java_values.add(value)
                file.withPartitionValues(java_values)
            delta.addRows(file.build())

    def delete_by(self, delta: Any, table: Any, ids: Sequence[int]) -> None:
        """Add the files to a commit as equality deletes of older rows with these keys."""
        gateway: Any = self.session.sparkContext._gateway
        fields = gateway.new_array(gateway.jvm.int, len(ids))
        for index, number in enumerate(ids):
            fields[index] = number
        build = iceberg_class(self.session, "FileMetadata").deleteFileBuilder
        for path, _ in self._files():
            file = build(table.spec()).ofEqualityDeletes(fields).withFormat("parquet")
            self._describe(file, path, table)
            delta.addDeletes(file.build())

    def _describe(self, file: Any, path: str, table: Any) -> None:
        """Set the location, size and metrics (row count and value bounds) of a file."""
        opened = table.io().newInputFile(path)
        metrics_config = iceberg_class(self.session, "MetricsConfig").forTable(table)
        mapping = iceberg_class(self.session, "mapping.NameMappingParser").fromJson(
            table.properties().get(NAME_MAPPING)
        )
        util = iceberg_class(self.session, "parquet.ParquetUtil")
        file.withInputFile(opened)
        file.withMetrics(util.fileMetrics(opened, metrics_config, mapping))

    def _files(self) -> Iterator[tuple[str, list[str | None]]]:
        jvm: Any = self.session.sparkContext._jvm
        context: Any = self.session.sparkContext._jsc
        folder = jvm.org.apache.hadoop.fs.Path(self.folder)
        found = folder.getFileSystem(context.hadoopConfiguration()).listFiles(folder, True)
        while found.hasNext():
            path = str(found.next().getPath().toString())
            if path.endswith(".parquet"):
                yield path, [_value_in(path, name) for name in self.partitions]


def write_files(rows: DataFrame, folder: str, partitions: Sequence[str]) -> WrittenFiles:
    """Write rows as Parquet files, which replace the files of an earlier attempt."""
    session = rows.sparkSession
    session.conf.set(_TIMESTAMPS, "TIMESTAMP_MICROS")
    writer = (
        rows.write.mode("overwrite").option("compression", "zstd").option(_NO_SUCCESS_FILE, "false")
    )
    writer.option("partitionOverwriteMode", "static").partitionBy(*partitions).parquet(folder)
    return WrittenFiles(session, folder, partitions)


def iceberg_class(session: SparkSession, name: str) -> Any:
    found: Any = session.sparkContext._jvm.org.apache.iceberg  # type: ignore[union-attr]
    for part in name.split("."):
        found = getattr(found, part)
    return found


def iceberg_tables(session: SparkSession) -> Any:
    """Return Iceberg's catalog of tables by path (`HadoopTables`)."""
    context: Any = session.sparkContext._jsc
    return iceberg_class(session, "hadoop.HadoopTables")(context.hadoopConfiguration())


def _value_in(path: str, column: str) -> str | None:
    for part in path.split("/"):
        name, equals, value = part.partition("=")
        if equals and unquote(name) == column:
            return None if value == _NULL else unquote(value)
    return None
