"""Reads lake tables.

Iceberg does not support Spark 4.2, so its tables are read as Parquet files. This works for tables
that `to_lake` has written, in which columns are matched by name and only equality deletes delete
rows. Other tables are rejected.
"""

from __future__ import annotations

import json
import re
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from millstream.dataframes.lake.iceberg import iceberg_class, iceberg_tables
from millstream.errors import SparkError
from millstream.spark.sessions.connectors import require
from millstream.topology.options.lake import LakeFormat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


def read_table(spark: SparkSession, path: str, format: LakeFormat) -> DataFrame:
    """Read a lake table.

    Args:
        spark: a session that supports the format.
        path: the folder of the table.

    Raises:
        SparkError: the session does not support the format, or the table does not exist.

    Example:
        >>> clicks = read_table(spark, "/lake/clicks", "delta")  # doctest: +SKIP
        >>> clicks.groupBy("key").count().show()  # doctest: +SKIP
    """
    if format == "iceberg":
        return read_iceberg(spark, path)
    if format == "delta":
        require(spark, ["delta"])
    return spark.read.format(format).load(path)


_DECIMAL: Final = re.compile(r"decimal\((\d+), ?(\d+)\)")
#: Spark's type classes by Iceberg's type names.
_CLASSES: Final = {
    "boolean": "BooleanType",
    "int": "IntegerType",
    "long": "LongType",
    "float": "FloatType",
    "double": "DoubleType",
    "date": "DateType",
    "string": "StringType",
    "binary": "BinaryType",
    "timestamptz": "TimestampType",
    "timestamp": "TimestampNTZType",
}
#: Disables glob patterns: paths contain partition values, which may contain glob characters.
_NO_GLOBS: Final = ("__globPaths__", "false")
_SEQUENCE: Final = "_millstream_sequence"
_FILE: Final = "_millstream_file"


def read_iceberg(session: SparkSession, path: str) -> DataFrame:
    """Read the current rows of a table that `to_lake` has written.

    Raises a `SparkError` for other tables, or if the table does not exist.
    """
    require(session, ["iceberg"])
    tables = iceberg_tables(session)
    if not tables.exists(path):
        raise SparkError(f"There is no Iceberg table at {path}.")
    table = tables.load(path)
    schema = spark_schema(str(iceberg_class(session, "SchemaParser").toJson(table.schema())))
    partitioning = [str(field.name()) for field in table.spec().fields()]
    files, deletes = _files_of(session, table, partitioning, path)
    rows = _rows(session, files, schema, partitioning)
    if deletes:
        rows = _without_deleted(session, rows, deletes, schema)
    return rows.select(*schema.names)


def spark_schema(iceberg: str) -> StructType:
    found = _spark_type(json.loads(iceberg))
    from pyspark.sql.types import StructType

    assert isinstance(found, StructType)
    return found


def _spark_type(part: Any) -> DataType:
    from pyspark.sql import types
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructField, StructType

    if isinstance(part, str):
        decimal = _DECIMAL.fullmatch(part)
        if decimal:
            return DecimalType(int(decimal[1]), int(decimal[2]))
        if part not in _CLASSES:
            raise SparkError(
                f"The Iceberg table has a column of type {part}, which is not supported."
            )
        plain: DataType = getattr(types, _CLASSES[part])()
        return plain
    if part["type"] == "list":
        return ArrayType(_spark_type(part["element"]))
    if part["type"] == "map":
        return MapType(_spark_type(part["key"]), _spark_type(part["value"]))
    return StructType(
        [StructField(field["name"], _spark_type(field["type"])) for field in part["fields"]]
    )


def _files_of(
    session: SparkSession, table: Any, partitioning: list[str], path: str
) -> tuple[list[tuple[Any, ...]], dict[str, int]]:
    """Return the data files and the delete files of a table.

    A data file is a tuple (path, URL, sequence number, *partition).
    """
    jvm: Any = session.sparkContext._jvm
    hadoop_path = jvm.org.apache.hadoop.fs.Path
    any_class = jvm.java.lang.Class.forName("java.lang.Object")
    files: list[tuple[Any, ...]] = []
    deletes: dict[str, int] = {}
    planned = table.newScan().planFiles()
    tasks = planned.iterator()
    while tasks.hasNext():
        task = tasks.next()
        file = task.file()
        location = str(file.location())
        url = str(hadoop_path(location).toUri().toString())
        partition = file.partition()
        found = [partition.get(index, any_class) for index in range(len(partitioning))]
        values = [None if value is None else str(value) for value in found]
        files.append((location, _normalize_url(url), int(file.dataSequenceNumber()), *values))
        for delete in task.deletes():
            if str(delete.content().name()) != "EQUALITY_DELETES":
                raise SparkError(
                    f"The Iceberg table {path} has position deletes, which to_lake does not "
                    "write. Read it with a Spark version that Iceberg supports (4.1)."
                )
            deletes[str(delete.location())] = int(delete.dataSequenceNumber())
    planned.close()
    return files, deletes


def _rows(
    session: SparkSession, files: list[tuple[Any, ...]], schema: StructType, partitioning: list[str]
) -> DataFrame:
    from pyspark.sql import functions
    from pyspark.sql.types import StructType

    if not files:
        return session.createDataFrame([], schema).withColumn(_SEQUENCE, functions.lit(0))
    written = StructType([field for field in schema.fields if field.name not in partitioning])
    texts = "".join(f", `{name}` string" for name in partitioning)
    columns = f"{_FILE} string, {_SEQUENCE} bigint{texts}"
    file_info = session.createDataFrame([file[1:] for file in files], columns)
    read = session.read.schema(written).option("recursiveFileLookup", "true").option(*_NO_GLOBS)
    rows = read.parquet(*(file[0] for file in files)).withColumn(
        _FILE, functions.regexp_replace("_metadata.file_path", "^([A-Za-z0-9+.-]+):/+", "$1:/")
    )
    joined = rows.join(functions.broadcast(file_info), _FILE)
    for name in partitioning:
        joined = joined.withColumn(name, functions.col(name).cast(schema[name].dataType))
    return joined


def _normalize_url(url: str) -> str:
    scheme, colon, rest = url.partition(":")
    return f"{scheme}:/{rest.lstrip('/')}" if colon else url


def _without_deleted(
    session: SparkSession, rows: DataFrame, deletes: dict[str, int], schema: StructType
) -> DataFrame:
    """Return the rows that are not deleted by a delete file of a later commit."""
    from pyspark.sql import DataFrame as Frame
    from pyspark.sql import functions
    from pyspark.sql.types import StructField, StructType

    keys = StructType([StructField("key", schema["key"].dataType)])
    deleted = [
        session.read.schema(keys)
        .parquet(file)
        .select(
            functions.col("key").alias("_deleted_key"), functions.lit(sequence).alias("_deleted_at")
        )
        for file, sequence in deletes.items()
    ]
    grouped = reduce(Frame.unionByName, deleted).groupBy("_deleted_key")
    last = grouped.agg(functions.max("_deleted_at").alias("_deleted_at"))
    is_key = functions.col("key").eqNullSafe(functions.col("_deleted_key"))
    match = is_key & (functions.col(_SEQUENCE) < functions.col("_deleted_at"))
    return rows.join(last, match, "left_anti")
