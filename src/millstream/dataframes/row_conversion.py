"""Converts records to rows and back, in Spark's Python workers.

Spark ships these objects as class names and bytes, because their serdes have already been pickled.
As with the topologies of stream threads, user modules are pickled by value.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import SerializationError, StreamsError
from millstream.kafka.partitioner import partition_for
from millstream.operators.arrow import import_pyarrow
from millstream.serdes import Serde
from millstream.spark.code.shipping import ship
from millstream.spark.columns.serde_columns import SerdeColumn, column_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

#: The Kafka connector's type of a record's headers.
HEADERS_TYPE: Final = "array<struct<key: string, value: binary>>"
#: The schema of a row to be written to a topic.
WIRE_SCHEMA: Final = (
    "partition int, task int, row bigint, key binary, value binary, timestamp_ms bigint, "
    f"headers {HEADERS_TYPE}"
)
_NEEDED_BY: Final = "A DataFrame function"


class StageSerdes:
    """The serdes of a stage's input or output, pickled for the workers."""

    def __init__(self, name: str, topic: str, key: Serde[Any], value: Serde[Any]) -> None:
        self.name = name
        self.topic = topic
        self._shipped = ship((key, value), f"the serdes of the DataFrame function {name!r}")

    def columns(self) -> tuple[SerdeColumn, SerdeColumn]:
        key, value = pickle.loads(self._shipped)
        return column_of(key), column_of(value)

    def stage_error(self, what: str, error: StreamsError) -> SerializationError:
        return SerializationError(
            f"The DataFrame function {self.name!r} {what}: {error.message}", topic=self.topic
        )


@dataclass(frozen=True)
class RowDecoder:
    """Decodes the bytes of keys and values to columns.

    Other columns remain unchanged.
    """

    serdes: StageSerdes
    keys: bool
    values: bool

    def run(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Decode pyarrow record batches, in `mapInArrow`."""
        arrow = import_pyarrow(_NEEDED_BY)
        key, value = self.serdes.columns()
        topic = self.serdes.topic
        decoders = {"key": key if self.keys else None, "value": value if self.values else None}
        for batch in batches:
            arrays = []
            for name, array in zip(batch.schema.names, batch.columns, strict=True):
                column = decoders.get(name)
                try:
                    arrays.append(array if column is None else column.decode(topic, array))
                except StreamsError as error:
                    raise self.serdes.stage_error(f"cannot read a {name}", error) from error
            yield arrow.RecordBatch.from_arrays(arrays, names=batch.schema.names)


@dataclass(frozen=True)
class RowEncoder:
    """Encodes columns of keys and values as bytes.

    The partitions and the order of the records are added.
    """

    serdes: StageSerdes
    partitions: int

    def run(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Encode pyarrow record batches as batches of `WIRE_SCHEMA`, in `mapInArrow`."""
        arrow = import_pyarrow(_NEEDED_BY)
        schema = _wire_type(arrow)
        task = _task_number()
        row = 0
        for keys, values, batch in self.records(batches):
            count = len(values)
            yield arrow.RecordBatch.from_arrays(
                [
                    arrow.array(self.partitions_of(keys, values), arrow.int32()),
                    arrow.array([task] * count, arrow.int32()),
                    arrow.array(range(row, row + count), arrow.int64()),
                    arrow.array(keys, arrow.binary()),
                    arrow.array(values, arrow.binary()),
                    batch.column("timestamp_ms"),
                    batch.column("headers").cast(schema.field("headers").type),
                ],
                schema=schema,
            )
            row += count

    def records(
        self, batches: Iterable[Any]
    ) -> Iterator[tuple[list[bytes | None], list[bytes | None], Any]]:
        """Yield encoded keys, encoded values and the batch, for each record batch."""
        key, value = self.serdes.columns()
        for batch in batches:
            keys = self._encode_column(key, "key", batch)
            yield keys, self._encode_column(value, "value", batch), batch

    def _encode_column(self, column: SerdeColumn, name: str, batch: Any) -> list[bytes | None]:
        try:
            return column.encode(self.serdes.topic, batch.column(name))
        except StreamsError as error:
            problem = f"returned a {name} that cannot be serialized"
            raise self.serdes.stage_error(problem, error) from error

    def partitions_of(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None]
    ) -> Iterator[int]:
        """Yield the partition of each record.

        For keys, Kafka's default partitioner chooses the partition.
        """
        for key, value in zip(keys, values, strict=True):
            if key is not None:
                yield partition_for(key, self.partitions)
            else:
                # Deterministic, so that a retried batch uses the same partition.
                yield zlib.crc32(value or b"") % self.partitions


def _wire_type(arrow: Any) -> Any:
    header = arrow.struct([("key", arrow.string()), ("value", arrow.binary())])
    return arrow.schema(
        [
            ("partition", arrow.int32()),
            ("task", arrow.int32()),
            ("row", arrow.int64()),
            ("key", arrow.binary()),
            ("value", arrow.binary()),
            ("timestamp_ms", arrow.int64()),
            ("headers", arrow.list_(header)),
        ]
    )


def _task_number() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


ArrowMap = Callable[[Iterable[Any]], Iterator[Any]]


def map_in_arrow(frame: DataFrame, function: ArrowMap, schema: StructType | str) -> DataFrame:
    """Apply a function to the record batches of each partition.

    This is `mapInArrow` without pandas. PySpark requires pandas to create any vectorized function,
    even one that only uses Arrow. The workers do not need pandas for such functions.
    """
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    udf = UserDefinedFunction(
        function, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF, deterministic=True
    )
    column: Any = udf(*(frame[f"`{name}`"] for name in frame.columns))
    return ClassicFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)
