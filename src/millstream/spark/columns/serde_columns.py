"""Maps serdes to column types, and converts between bytes and columns.

`column_of(serde)` returns a column, which has the types of Spark and Arrow, and converts bytes to a
`pyarrow.Array` and back. A serde that consists of user functions has no declared type, so its
values remain bytes.

| serde | Spark's type |
| --- | --- |
| `STRING`, `UUID` | `string` |
| `JSON` | `string`, the JSON text |
| `BYTES`, `Serde(...)`, `avro(None, ...)` | `binary` |
| `LONG`, `INTEGER`, `SHORT` | `bigint`, `int`, `smallint` |
| `DOUBLE`, `FLOAT` | `double`, `float` |
| `BOOLEAN` | `boolean` |
| `VOID` | `void` |
| `json_of(...)`, `msgpack_of(...)` | a struct, array or map according to the type's annotations |
| `avro(...)`, `json_schema(...)`, `protobuf(...)` | a struct according to the schema |
| `list_of(...)` | an array |
| `time_windowed(...)`, `session_windowed(...)` | a struct of `key`, `window_start`, `window_end` |
"""

from __future__ import annotations

import sys
import uuid
from array import array
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from inspect import signature
from operator import attrgetter
from typing import Any, Final

import msgspec

from millstream.errors import BatchSerializationError, SerializationError
from millstream.serdes import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    FLOAT,
    INTEGER,
    JSON,
    LONG,
    SHORT,
    STRING,
    UUID,
    VOID,
    Serde,
)
from millstream.serdes._list import ListSerde
from millstream.serdes._numbers import FixedSizeSerde
from millstream.serdes._registry import RegistrySerde
from millstream.serdes._serde import ConstantSerde
from millstream.serdes._typed import TypedSerde
from millstream.serdes._windowed import WindowedSerde
from millstream.spark.columns.schema_columns import codec_of_schema
from millstream.spark.columns.typed_columns import (
    ColumnCodec,
    ElementwiseCodec,
    FieldCodec,
    ListCodec,
    StructCodec,
    WrappedCodec,
    codec_of_type,
    json_text,
    load_arrow,
    utc_timestamps,
)
from millstream.windowed import MAX_TIME_MS, Window, Windowed

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
#: The end of Python's time range, in the year 9999.
LAST_MS: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND


class SerdeColumn:
    """Converts between a serde's bytes and a column of its values.

    The methods raise a `SerializationError` if a value does not fit the serde or the column's type.
    """

    def __init__(self, serde: Serde[Any], codec: ColumnCodec) -> None:
        from pyspark.sql.pandas.types import from_arrow_type

        self.serde = serde
        self._codec = codec
        #: The column's `pyspark.sql.types.DataType`.
        self.spark_type: Any = from_arrow_type(codec.arrow_type)
        #: The `pyarrow.DataType` that Spark uses for the column.
        self.arrow_type: Any = _arrow_type(self.spark_type)

    def decode(self, topic: str, datas: Sequence[bytes | None]) -> Any:
        """Deserialize a list or a binary `pyarrow.Array` of values to a `pyarrow.Array`."""
        if hasattr(datas, "to_pylist"):
            datas = datas.to_pylist()
        try:
            values = self.serde.deserialize_many(topic, datas)
        except BatchSerializationError as error:
            raise SerializationError(error.message, topic=topic or None) from error
        return self.array_of(topic, values)

    def array_of(self, topic: str, values: Sequence[Any]) -> Any:
        """Convert deserialized values to a `pyarrow.Array`."""
        try:
            return _cast(self._codec.array(values), self.arrow_type)
        except (ValueError, TypeError, OverflowError, AttributeError, KeyError) as error:
            raise SerializationError(
                f"{self.serde.name} returned values that do not fit the column's type "
                f"{self.spark_type.simpleString()}: {error}. Read the topic with BYTES, or use a "
                "serde whose type fits all values",
                topic=topic or None,
            ) from error

    def encode(self, topic: str, column: Any) -> list[bytes | None]:
        """Serialize each value of a `pyarrow.Array` or `ChunkedArray`, after casting it."""
        try:
            return self.serde.serialize_many(topic, self.values(topic, column))
        except BatchSerializationError as error:
            raise SerializationError(error.message, topic=topic or None) from error

    def values(self, topic: str, column: Any) -> list[Any]:
        if hasattr(column, "combine_chunks"):
            column = column.combine_chunks()
        try:
            return self._codec.values(_cast(column, self._codec.arrow_type))
        except (ValueError, TypeError, OverflowError, NotImplementedError) as error:
            raise SerializationError(
                f"a column of type {column.type} does not fit {self.serde.name}, which requires "
                f"{self.spark_type.simpleString()}: {error}. Cast the column, or use another "
                "serde",
                topic=topic or None,
            ) from error


class BinaryColumn(SerdeColumn):
    """Converts strings and bytes to a column without creating an object per value."""

    def decode(self, topic: str, datas: Sequence[bytes | None]) -> Any:
        try:
            return _cast(_binary(datas), self.arrow_type)
        except ValueError:
            # A value is not valid UTF-8. The serde raises an error that identifies it.
            return super().decode(topic, datas)


class NumberColumn(SerdeColumn):
    """Converts fixed-size numbers to a column without creating an object per value."""

    def __init__(self, serde: FixedSizeSerde[Any], codec: ColumnCodec) -> None:
        super().__init__(serde, codec)
        self._code = serde.code
        self._size = serde.size

    def decode(self, topic: str, datas: Sequence[bytes | None]) -> Any:
        arrow = load_arrow()
        try:
            fixed = _binary(datas).cast(arrow.binary(self._size))
        except (ValueError, TypeError):
            # A value has the wrong size. The serde raises an error that identifies it.
            return super().decode(topic, datas)
        return numbers_of(fixed, self._code, self.arrow_type)


def numbers_of(fixed: Any, code: str, arrow_type: Any) -> Any:
    """Convert a fixed-size binary array of big-endian numbers to an Arrow array.

    `code` is a type code of the `array` module.
    """
    arrow = load_arrow()
    if fixed.offset:
        fixed = arrow.concat_arrays([fixed, fixed.slice(0, 0)])
    valid, data = fixed.buffers()
    numbers = array(code)
    numbers.frombytes(memoryview(data)[: len(fixed) * numbers.itemsize])
    if sys.byteorder == "little":
        numbers.byteswap()
    buffers = [valid, arrow.py_buffer(numbers)]
    return arrow.Array.from_buffers(arrow_type, len(fixed), buffers, fixed.null_count)


def column_of(serde: Serde[Any]) -> SerdeColumn:
    """Return the column for a serde's values.

    Raises an `ImportError` if pyarrow is not installed.
    """
    if _is_opaque(serde):
        serde = BYTES
    codec = _codec_of(serde)
    if isinstance(serde, FixedSizeSerde):
        return NumberColumn(serde, codec)
    return (BinaryColumn if serde in (STRING, BYTES) else SerdeColumn)(serde, codec)


def _is_opaque(serde: Serde[Any]) -> bool:
    """Return whether the type of the serde's values is unknown."""
    if isinstance(serde, RegistrySerde):
        return serde.schema is None
    return not isinstance(serde, TypedSerde | ListSerde | WindowedSerde | ConstantSerde)


def _codec_of(serde: Serde[Any]) -> ColumnCodec:
    arrow = load_arrow()
    plain = {
        STRING: arrow.string(),
        BYTES: arrow.binary(),
        LONG: arrow.int64(),
        INTEGER: arrow.int32(),
        SHORT: arrow.int16(),
        DOUBLE: arrow.float64(),
        FLOAT: arrow.float32(),
        BOOLEAN: arrow.bool_(),
        VOID: arrow.null(),
    }
    if serde in plain:
        return ColumnCodec(plain[serde])
    if serde == UUID:
        return ElementwiseCodec(arrow.string(), str, uuid.UUID)
    if serde == JSON:
        return ElementwiseCodec(arrow.string(), json_text, msgspec.json.decode)
    if isinstance(serde, TypedSerde):
        of = serde.of
        return WrappedCodec(codec_of_type(of), lambda value: msgspec.convert(value, of))
    if isinstance(serde, ListSerde):
        return ListCodec(_codec_of(serde.inner))
    if isinstance(serde, WindowedSerde):
        return _windowed_codec(_codec_of(serde.inner))
    if isinstance(serde, RegistrySerde) and serde.schema is not None:
        return codec_of_schema(serde)
    # Values of a user's serde inside another serde remain bytes.
    return ElementwiseCodec(
        arrow.binary(),
        lambda value: serde.serialize("", value),
        lambda data: serde.deserialize("", data),
    )


def _windowed_codec(key: ColumnCodec) -> ColumnCodec:
    times = ColumnCodec(utc_timestamps())
    fields = [
        FieldCodec("key", key, attrgetter("key")),
        FieldCodec("window_start", times, lambda value: time_of_ms(value[1][0])),
        FieldCodec("window_end", times, lambda value: time_of_ms(value[1][1])),
    ]
    return WrappedCodec(StructCodec(fields), _windowed)


def _windowed(row: Mapping[str, Any]) -> Windowed[Any]:
    if row["window_start"] is None:
        raise ValueError("a window needs a start")
    window = Window(ms_of_time(row["window_start"]), ms_of_time(row["window_end"]))
    return Windowed(row["key"], window)


def time_of_ms(time_ms: int) -> datetime | None:
    """Convert milliseconds to a time.

    Returns None for the end of a window that never ends.
    """
    return None if time_ms >= LAST_MS else _EPOCH + timedelta(milliseconds=time_ms)


def ms_of_time(time: datetime | None) -> int:
    """Convert an aware time to milliseconds, rounded down.

    None is the end of a window that never ends.
    """
    return MAX_TIME_MS if time is None else (time - _EPOCH) // _MILLISECOND


def _arrow_type(spark_type: Any) -> Any:
    from pyspark.sql.pandas.types import to_arrow_type

    if "timezone" in signature(to_arrow_type).parameters:
        return to_arrow_type(spark_type, timezone="UTC")
    # Spark 4.1 lacks the parameter and always uses UTC.
    return to_arrow_type(spark_type)


def _binary(datas: Any) -> Any:
    arrow = load_arrow()
    if isinstance(datas, arrow.Array):
        return _cast(datas, arrow.binary())
    return arrow.array(datas, arrow.binary())


def _cast(column: Any, arrow_type: Any) -> Any:
    return column if column.type.equals(arrow_type) else column.cast(arrow_type)
