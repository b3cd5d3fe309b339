"""Records to rows and back, in Spark's Python workers.

What Spark ships of these are names of classes of this module, and bytes: the serdes are pickled as
stream threads' topologies are, with the user's own modules by value.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from millstream.errors import SerializationError, StreamsError
from millstream.kafka.partitioner import partition_for
from millstream.operators.arrow import imported_pyarrow
from millstream.serdes import Serde
from millstream.spark.code.shipping import ship
from millstream.spark.columns.serde_columns import Column, column_of

#: Spark's type of a record's headers, as the Kafka connector has it.
HEADERS_TYPE: Final = "array<struct<key: string, value: binary>>"
#: A row on its way into a topic: Spark's types.
WIRE_SCHEMA: Final = (
    "partition int, task int, row bigint, key binary, value binary, timestamp_ms bigint, "
    f"headers {HEADERS_TYPE}"
)
_NEEDED_BY: Final = "A DataFrame function"


class Serdes:
    """The serdes of one side of a stage, for the workers.

    Args:
        name: of the stage, for errors.
        topic: the topic of that side, as the cluster knows it.
        key: the serde of keys.
        value: the serde of values.
    """

    def __init__(self, name: str, topic: str, key: Serde[Any], value: Serde[Any]) -> None:
        self.name = name
        self.topic = topic
        self._shipped = ship((key, value), f"the serdes of the DataFrame function {name!r}")

    def columns(self) -> tuple[Column, Column]:
        """The columns of keys and values."""
        key, value = pickle.loads(self._shipped)
        return column_of(key), column_of(value)

    def failed(self, what: str, error: StreamsError) -> SerializationError:
        """An error of a serde, with the stage that it belongs to."""
        return SerializationError(
            f"The DataFrame function {self.name!r} {what}: {error.message}", topic=self.topic
        )


class Decode:
    """Bytes of keys and values to columns; other columns stay.

    Args:
        serdes: of what is read.
        keys: whether keys are to be decoded; else they are what they shall be.
        values: whether values are.
    """

    def __init__(self, serdes: Serdes, *, keys: bool, values: bool) -> None:
        self._serdes = serdes
        self._keys = keys
        self._values = values

    def run(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Record batches of pyarrow to such; for `mapInArrow`."""
        arrow = imported_pyarrow(_NEEDED_BY)
        key, value = self._serdes.columns()
        topic = self._serdes.topic
        decoders = {"key": key if self._keys else None, "value": value if self._values else None}
        for batch in batches:
            arrays = []
            for name, array in zip(batch.schema.names, batch.columns, strict=True):
                column = decoders.get(name)
                try:
                    arrays.append(array if column is None else column.decode(topic, array))
                except StreamsError as error:
                    raise self._serdes.failed(f"cannot read a {name}", error) from error
            yield arrow.RecordBatch.from_arrays(arrays, names=batch.schema.names)


class Encode:
    """Columns of keys and values to bytes, with the partition of each record and its place.

    Args:
        serdes: of what is written.
        partitions: how many the topic has.
    """

    def __init__(self, serdes: Serdes, partitions: int) -> None:
        self._serdes = serdes
        self._partitions = partitions

    def run(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Record batches of pyarrow to such of `WIRE_SCHEMA`; for `mapInArrow`."""
        arrow = imported_pyarrow(_NEEDED_BY)
        schema = _wire_type(arrow)
        task = _task_number()
        row = 0
        for keys, values, batch in self.records(batches):
            count = len(values)
            yield arrow.RecordBatch.from_arrays(
                [
                    arrow.array(self.places(keys, values), arrow.int32()),
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
        """The bytes of keys and values of each record batch, and the batch."""
        key, value = self._serdes.columns()
        for batch in batches:
            keys = self._encoded(key, "key", batch)
            yield keys, self._encoded(value, "value", batch), batch

    def _encoded(self, column: Column, name: str, batch: Any) -> list[bytes | None]:
        try:
            return column.encode(self._serdes.topic, batch.column(name))
        except StreamsError as error:
            raise self._serdes.failed(f"gave a {name} that cannot be written", error) from error

    def places(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Iterator[int]:
        """The partition of each record, as Kafka's own producers choose it for a key."""
        for key, value in zip(keys, values, strict=True):
            if key is not None:
                yield partition_for(key, self._partitions)
            else:
                # The same one when the batch is done again.
                yield zlib.crc32(value or b"") % self._partitions


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
