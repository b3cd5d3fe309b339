"""Files that Spark has written, as Iceberg's metadata has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TIMESTAMPS: Final = "spark.sql.parquet.outputTimestampType"
#: How Spark's folders call a partition whose value is null.
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_NO_MARK: Final = "mapreduce.fileoutputcommitter.marksuccessfuljobs"


@dataclass(frozen=True, slots=True)
class FilesOf:
    """The files of one write.

    Args:
        session: which wrote them.
        folder: below which they lie.
        partitions: the columns by which they lie apart.
    """

    session: SparkSession
    folder: str
    partitions: Sequence[str]

    def add_to(self, delta: Any, table: Any) -> None:
        """Let a commit (a `RowDelta`) add them to a table as rows."""
        build = iceberg_class(self.session, "DataFiles").builder
        for path, values in self._files():
            file = build(table.spec()).withFormat("parquet")
            self._describe(file, path, table)
            if self.partitions:
                file.withPartitionValues(self._java_list(values))
            delta.addRows(file.build())

    def delete_by(self, delta: Any, table: Any, ids: Sequence[int]) -> None:
        """Let a commit delete the older rows of a table that have the keys that are in them."""
        gateway: Any = self.session.sparkContext._gateway
        fields = gateway.new_array(gateway.jvm.int, len(ids))
        for place, number in enumerate(ids):
            fields[place] = number
        build = iceberg_class(self.session, "FileMetadata").deleteFileBuilder
        for path, _ in self._files():
            file = build(table.spec()).ofEqualityDeletes(fields).withFormat("parquet")
            self._describe(file, path, table)
            delta.addDeletes(file.build())

    def _describe(self, file: Any, path: str, table: Any) -> None:
        """Its place, size and metrics: how many rows it has, and between which values."""
        opened = table.io().newInputFile(path)
        metrics_config = iceberg_class(self.session, "MetricsConfig").forTable(table)
        mapping = iceberg_class(self.session, "mapping.NameMappingParser").fromJson(
            table.properties().get("schema.name-mapping.default")
        )
        util = iceberg_class(self.session, "parquet.ParquetUtil")
        file.withInputFile(opened)
        file.withMetrics(util.fileMetrics(opened, metrics_config, mapping))

    def _files(self) -> Iterator[tuple[str, list[str | None]]]:
        """The path of each, and the values of its partition."""
        jvm: Any = self.session.sparkContext._jvm
        context: Any = self.session.sparkContext._jsc
        folder = jvm.org.apache.hadoop.fs.Path(self.folder)
        found = folder.getFileSystem(context.hadoopConfiguration()).listFiles(folder, True)
        while found.hasNext():
            path = str(found.next().getPath().toString())
            if path.endswith(".parquet"):
                yield path, [_value_in(path, name) for name in self.partitions]

    def _java_list(self, values: list[str | None]) -> Any:
        jvm: Any = self.session.sparkContext._jvm
        found = jvm.java.util.ArrayList()
        for value in values:
            found.add(value)
        return found


def write_files(rows: DataFrame, folder: str, partitions: Sequence[str]) -> FilesOf:
    """Write rows as files of Parquet, in the place of what an earlier try has left there."""
    session = rows.sparkSession
    session.conf.set(_TIMESTAMPS, "TIMESTAMP_MICROS")
    writer = rows.write.mode("overwrite").option("compression", "zstd").option(_NO_MARK, "false")
    writer.option("partitionOverwriteMode", "static").partitionBy(*partitions).parquet(folder)
    return FilesOf(session, folder, partitions)


def iceberg_class(session: SparkSession, name: str) -> Any:
    """A class of Iceberg's in the driver's JVM."""
    found: Any = session.sparkContext._jvm.org.apache.iceberg  # type: ignore[union-attr]
    for part in name.split("."):
        found = getattr(found, part)
    return found


def iceberg_tables(session: SparkSession) -> Any:
    """Iceberg's tables, by their paths in file systems."""
    context: Any = session.sparkContext._jsc
    return iceberg_class(session, "hadoop.HadoopTables")(context.hadoopConfiguration())


def _value_in(path: str, column: str) -> str | None:
    for part in path.split("/"):
        name, equals, value = part.partition("=")
        if equals and unquote(name) == column:
            return None if value == _NULL else unquote(value)
    return None
