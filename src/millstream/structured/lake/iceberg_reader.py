"""The rows of an Iceberg table as a DataFrame, where Spark has no Iceberg of its own (4.2).

For tables that `to_lake` writes: files of Parquet whose columns are found by name, and equality
deletes. A table with anything else in it is refused.
"""

from __future__ import annotations

import json
import re
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import SparkError
from millstream.spark.sessions.connectors import require
from millstream.structured.lake.iceberg_files import iceberg_class, iceberg_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_DECIMAL: Final = re.compile(r"decimal\((\d+), ?(\d+)\)")
#: Iceberg's names of types as the classes of Spark's.
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
#: Values of partitions are in paths, with any characters.
_NO_GLOBS: Final = ("__globPaths__", "false")
_SEQUENCE: Final = "_millstream_sequence"
_FILE: Final = "_millstream_file"


def read_iceberg(session: SparkSession, path: str) -> DataFrame:
    """The rows that a table has now.

    Args:
        session: a classic session.
        path: the folder of the table.

    Raises:
        SparkError: there is no such table, or it was not written by `to_lake`.
    """
    require(session, ["iceberg"])
    tables = iceberg_tables(session)
    if not tables.exists(path):
        raise SparkError(f"There is no Iceberg table at {path}.")
    table = tables.load(path)
    schema = spark_schema(str(iceberg_class(session, "SchemaParser").toJson(table.schema())))
    parted = [str(field.name()) for field in table.spec().fields()]
    files, deletes = _files_of(session, table, parted, path)
    rows = _rows(session, files, schema, parted)
    if deletes:
        rows = _without_deleted(session, rows, deletes, schema)
    return rows.select(*schema.names)


def spark_schema(iceberg: str) -> StructType:
    """Spark's schema for Iceberg's in its JSON."""
    found = _kind(json.loads(iceberg))
    from pyspark.sql.types import StructType

    assert isinstance(found, StructType)
    return found


def _kind(part: Any) -> DataType:
    from pyspark.sql import types
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructField, StructType

    if isinstance(part, str):
        decimal = _DECIMAL.fullmatch(part)
        if decimal:
            return DecimalType(int(decimal[1]), int(decimal[2]))
        if part not in _CLASSES:
            raise SparkError(f"The Iceberg table has a column of {part}, which is not read here.")
        plain: DataType = getattr(types, _CLASSES[part])()
        return plain
    if part["type"] == "list":
        return ArrayType(_kind(part["element"]))
    if part["type"] == "map":
        return MapType(_kind(part["key"]), _kind(part["value"]))
    return StructType(
        [StructField(field["name"], _kind(field["type"])) for field in part["fields"]]
    )


def _files_of(
    session: SparkSession, table: Any, parted: list[str], path: str
) -> tuple[list[tuple[Any, ...]], dict[str, int]]:
    """Files of rows as (path, URL, sequence number, partition...), and of keys with theirs."""
    hadoop_path = session.sparkContext._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr]
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
        values = [_text(_at(session, partition, place)) for place in range(len(parted))]
        files.append((location, _plain(url), int(file.dataSequenceNumber()), *values))
        for delete in task.deletes():
            if str(delete.content().name()) != "EQUALITY_DELETES":
                raise SparkError(
                    f"The Iceberg table {path} has position deletes, which others than to_lake "
                    "have written: read it with a Spark that has an Iceberg of its own (4.1)."
                )
            deletes[str(delete.location())] = int(delete.dataSequenceNumber())
    planned.close()
    return files, deletes


def _at(session: SparkSession, partition: Any, place: int) -> Any:
    jvm: Any = session.sparkContext._jvm
    return partition.get(place, jvm.java.lang.Class.forName("java.lang.Object"))


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _rows(
    session: SparkSession, files: list[tuple[Any, ...]], schema: StructType, parted: list[str]
) -> DataFrame:
    from pyspark.sql import functions
    from pyspark.sql.types import StructType

    if not files:
        return session.createDataFrame([], schema).withColumn(_SEQUENCE, functions.lit(0))
    written = StructType([field for field in schema.fields if field.name not in parted])
    texts = "".join(f", `{name}` string" for name in parted)
    columns = f"{_FILE} string, {_SEQUENCE} bigint{texts}"
    known = session.createDataFrame([file[1:] for file in files], columns)
    read = session.read.schema(written).option("recursiveFileLookup", "true").option(*_NO_GLOBS)
    rows = read.parquet(*(file[0] for file in files)).withColumn(
        _FILE, functions.regexp_replace("_metadata.file_path", "^([A-Za-z0-9+.-]+):/+", "$1:/")
    )
    joined = rows.join(functions.broadcast(known), _FILE)
    for name in parted:
        joined = joined.withColumn(name, functions.col(name).cast(schema[name].dataType))
    return joined


def _plain(url: str) -> str:
    scheme, colon, rest = url.partition(":")
    return f"{scheme}:/{rest.lstrip('/')}" if colon else url


def _without_deleted(
    session: SparkSession, rows: DataFrame, deletes: dict[str, int], schema: StructType
) -> DataFrame:
    """Rows whose key is in no file of keys of a later commit."""
    from pyspark.sql import DataFrame as Frame
    from pyspark.sql import functions
    from pyspark.sql.types import StructField, StructType

    keys = StructType([StructField("key", schema["key"].dataType)])
    gone = [
        session.read.schema(keys)
        .parquet(file)
        .select(functions.col("key").alias("_gone"), functions.lit(sequence).alias("_since"))
        for file, sequence in deletes.items()
    ]
    last = (
        reduce(Frame.unionByName, gone)
        .groupBy("_gone")
        .agg(functions.max("_since").alias("_since"))
    )
    match = functions.col("key").eqNullSafe(functions.col("_gone")) & (
        functions.col(_SEQUENCE) < functions.col("_since")
    )
    return rows.join(last, match, "left_anti")
