"""Writes batches to a Delta table, with one transaction per batch.

Delta stores the number of a writer's latest batch in the table's log, in the commit that adds the
batch's files (`txnAppId`, `txnVersion`), and skips batches that the table already contains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.dataframes.lake.layout import LakeBatch, last_changes, limit_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SNAPSHOT_PARTITIONS: Final = "spark.databricks.delta.snapshotPartitions"
_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_TXN_APP: Final = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION: Final = "spark.databricks.delta.write.txnVersion"


def append(rows: DataFrame, batch: LakeBatch) -> None:
    _limit_shuffle_partitions(rows.sparkSession)
    writer = limit_files(rows, batch.table).write.format("delta").mode("append")
    writer.option("txnAppId", transaction_app_id(batch)).option(
        "txnVersion", str(batch.number)
    ).partitionBy(*_partitions(batch)).save(batch.table.path)
    compact(rows.sparkSession, batch)


def upsert(changes: DataFrame, batch: LakeBatch) -> None:
    """Replace the value of each key with its last change; tombstones delete rows."""
    session = changes.sparkSession
    _limit_shuffle_partitions(session)
    last = last_changes(changes, batch.table)
    _ensure_table(session, last.drop("_deleted"), batch)
    columns = [name for name in last.columns if name != "_deleted"]
    view = f"millstream_changes_{batch.number}"
    limit_files(last, batch.table).createOrReplaceTempView(view)
    session.conf.set(_TXN_APP, transaction_app_id(batch))
    session.conf.set(_TXN_VERSION, str(batch.number))
    try:
        session.sql(_merge(batch.table.path, view, columns))
    finally:
        session.conf.unset(_TXN_APP)
        session.conf.unset(_TXN_VERSION)
        session.catalog.dropTempView(view)
    compact(session, batch)


def compact(session: SparkSession, batch: LakeBatch) -> None:
    """Compact small files after every `compact_every` batches."""
    every = batch.table.compact_every
    if every and (batch.number + 1) % every == 0:
        _table(session, batch.table.path).optimize().executeCompaction()


def transaction_app_id(batch: LakeBatch) -> str:
    return f"millstream:{batch.stage}:{batch.query_id}"


def _limit_shuffle_partitions(session: SparkSession) -> None:
    """Use as many tasks as the session has slots.

    A number that the user has configured takes precedence. The defaults, 50 in Delta and 200 in
    Spark, are meant for large clusters, but a batch is small. Each query has its own session, so
    this does not affect other queries.
    """
    chosen = session.sparkContext.getConf()
    tasks = max(2, session.sparkContext.defaultParallelism)
    for name in (_SNAPSHOT_PARTITIONS, _SHUFFLE_PARTITIONS):
        if not chosen.contains(name):
            session.conf.set(name, str(tasks))


def _merge(path: str, view: str, columns: list[str]) -> str:
    names = [f"`{name}`" for name in columns]
    sets = ", ".join(f"t.{name} = s.{name}" for name in names if name != "`key`")
    return (
        f"MERGE INTO delta.`{path}` t USING {view} s ON t.key = s.key "
        "WHEN MATCHED AND s._deleted THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {sets} "
        f"WHEN NOT MATCHED AND NOT s._deleted THEN INSERT ({', '.join(names)}) "
        f"VALUES ({', '.join(f's.{name}' for name in names)})"
    )


def _ensure_table(session: SparkSession, rows: DataFrame, batch: LakeBatch) -> None:
    jvm: Any = session.sparkContext._jvm
    path = batch.table.path
    if not jvm.io.delta.tables.DeltaTable.isDeltaTable(session._jsparkSession, path):
        empty = session.createDataFrame([], rows.schema)
        empty.write.format("delta").mode("ignore").partitionBy(*_partitions(batch)).save(path)


def _table(session: SparkSession, path: str) -> Any:
    jvm: Any = session.sparkContext._jvm
    return jvm.io.delta.tables.DeltaTable.forPath(session._jsparkSession, path)


def _partitions(batch: LakeBatch) -> list[str]:
    return [column.name for column in batch.table.partition_by]
