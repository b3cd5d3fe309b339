"""Keys and values as columns: the types of Spark and Arrow for what a serde reads and writes.

`column_of(serde)` tells the types, turns bytes into a `pyarrow.Array` and an array into bytes. What
a serde of the user's functions reads has no declared type: it stays bytes.

| serde | Spark's type |
| --- | --- |
| `STRING`, `UUID` | `string` |
| `JSON` | `string`, the text of JSON |
| `BYTES`, `Serde(...)`, `avro(None, ...)` | `binary` |
| `LONG`, `INTEGER`, `SHORT` | `bigint`, `int`, `smallint` |
| `DOUBLE`, `FLOAT` | `double`, `float` |
| `BOOLEAN` | `boolean` |
| `VOID` | `void` |
| `json_of(...)`, `msgpack_of(...)` | a struct, array or map by the type's annotations |
| `avro(...)`, `json_schema(...)`, `protobuf(...)` | a struct by the schema |
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
from millstream.operators.arrow import imported_pyarrow
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
from millstream.serdes._constant import ConstantSerde
from millstream.serdes._list import ListSerde
from millstream.serdes._numbers import FixedSizeSerde
from millstream.serdes._registry import RegistrySerde
from millstream.serdes._typed import TypedSerde
from millstream.serdes._windowed import WindowedSerde
from millstream.spark.columns.schema_columns import kind_of_schema
from millstream.spark.columns.typed_columns import (
    ConvertedKind,
    Field,
    Kind,
    ListKind,
    MappedKind,
    StructKind,
    json_text,
    kind_of_type,
    utc_timestamps,
)
from millstream.windowed import MAX_TIME_MS, Window, Windowed

_NEEDED_BY: Final = "Serdes as columns of Spark"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
#: Python's times end here, with the year 9999.
LAST_MS: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND


class Column:
    """What a serde reads and writes, as a column.

    Attributes:
        serde: the serde.
        arrow_type: the column's type, a `pyarrow.DataType`, as Spark itself has it in Arrow.
        spark_type: the same as a `pyspark.sql.types.DataType`.

    Args:
        serde: the serde.
        kind: that of its values.
    """

    def __init__(self, serde: Serde[Any], kind: Kind) -> None:
        self.serde = serde
        self._kind = kind
        self.spark_type = _spark_type(kind.arrow_type)
        self.arrow_type = _arrow_type(self.spark_type)

    def decode(self, topic: str, datas: Sequence[bytes | None]) -> Any:
        """The column of what these bytes stand for, a `pyarrow.Array`.

        Args:
            topic: where they were read.
            datas: the bytes of each, or None; a list, or a `pyarrow.Array` of binary.

        Raises:
            SerializationError: some are not the serde's, or do not fit the column's type.
        """
        if hasattr(datas, "to_pylist"):
            datas = datas.to_pylist()
        try:
            values = self.serde.deserialize_many(topic, datas)
        except BatchSerializationError as error:
            raise SerializationError(error.message, topic=topic or None) from error
        return self.array_of(topic, values)

    def array_of(self, topic: str, values: Sequence[Any]) -> Any:
        """The column of values that the serde has read.

        Raises:
            SerializationError: some do not fit the column's type.
        """
        try:
            return _cast(self._kind.array(values), self.arrow_type)
        except (ValueError, TypeError, OverflowError, AttributeError, KeyError) as error:
            raise SerializationError(
                f"{self.serde.name} gives values that do not fit the column's type "
                f"{self.spark_type.simpleString()}: {error}. Read the topic with BYTES, or give a "
                "serde of a type that they all have",
                topic=topic or None,
            ) from error

    def encode(self, topic: str, column: Any) -> list[bytes | None]:
        """The bytes of each value of a column.

        Args:
            topic: where they will be written.
            column: a `pyarrow.Array` or `ChunkedArray` that Arrow can cast to `arrow_type`.

        Raises:
            SerializationError: the column has another type, or a value is not one of the serde.
        """
        try:
            return self.serde.serialize_many(topic, self.values(topic, column))
        except BatchSerializationError as error:
            raise SerializationError(error.message, topic=topic or None) from error

    def values(self, topic: str, column: Any) -> list[Any]:
        """The serde's values of a column.

        Raises:
            SerializationError: the column has another type, or a value is not one of the serde.
        """
        if hasattr(column, "combine_chunks"):
            column = column.combine_chunks()
        try:
            return self._kind.values(_cast(column, self._kind.arrow_type))
        except (ValueError, TypeError, OverflowError, NotImplementedError) as error:
            raise SerializationError(
                f"a column of the type {column.type} does not fit {self.serde.name}, which takes "
                f"{self.spark_type.simpleString()}: {error}. Cast the column, or give another "
                "serde",
                topic=topic or None,
            ) from error


class TextColumn(Column):
    """Bytes that are a column as they are, without an object for each: text and bytes."""

    def decode(self, topic: str, datas: Sequence[bytes | None]) -> Any:
        try:
            return _cast(_binary(datas), self.arrow_type)
        except ValueError:
            # Not UTF-8: the serde says of which.
            return super().decode(topic, datas)


class NumberColumn(Column):
    """Numbers of a fixed size, without an object for each."""

    def __init__(self, serde: FixedSizeSerde[Any], kind: Kind) -> None:
        super().__init__(serde, kind)
        self._code = serde.code
        self._size = serde.size

    def decode(self, topic: str, datas: Sequence[bytes | None]) -> Any:
        arrow = imported_pyarrow(_NEEDED_BY)
        try:
            fixed = _binary(datas).cast(arrow.binary(self._size))
        except (ValueError, TypeError):
            # One has another size: the serde says which.
            return super().decode(topic, datas)
        return numbers_of(fixed, self._code, self.arrow_type)


def numbers_of(fixed: Any, code: str, arrow_type: Any) -> Any:
    """Big-endian numbers as a column of Arrow.

    Args:
        fixed: their bytes, an array of binary of a fixed size.
        code: the type's letter in the module `array`.
        arrow_type: the type of the column.
    """
    arrow = imported_pyarrow(_NEEDED_BY)
    if fixed.offset:
        fixed = arrow.concat_arrays([fixed, fixed.slice(0, 0)])
    valid, data = fixed.buffers()
    numbers = array(code)
    numbers.frombytes(memoryview(data)[: len(fixed) * numbers.itemsize])
    if sys.byteorder == "little":
        numbers.byteswap()
    buffers = [valid, arrow.py_buffer(numbers)]
    return arrow.Array.from_buffers(arrow_type, len(fixed), buffers, fixed.null_count)


def column_of(serde: Serde[Any]) -> Column:
    """The column of a serde's values.

    Raises:
        ImportError: pyarrow is not installed.

    Example:
        >>> column_of(list_of(LONG)).spark_type.simpleString()
        'array<bigint>'
    """
    if _is_opaque(serde):
        serde = BYTES
    kind = _kind_of(serde)
    if isinstance(serde, FixedSizeSerde):
        return NumberColumn(serde, kind)
    return (TextColumn if serde in (STRING, BYTES) else Column)(serde, kind)


def _is_opaque(serde: Serde[Any]) -> bool:
    """Whether nobody knows what its values are."""
    if isinstance(serde, RegistrySerde):
        return serde.schema is None
    return not isinstance(serde, TypedSerde | ListSerde | WindowedSerde | ConstantSerde)


def _kind_of(serde: Serde[Any]) -> Kind:
    arrow = imported_pyarrow(_NEEDED_BY)
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
        return Kind(plain[serde])
    if serde == UUID:
        return MappedKind(arrow.string(), str, uuid.UUID)
    if serde == JSON:
        return MappedKind(arrow.string(), json_text, msgspec.json.decode)
    if isinstance(serde, TypedSerde):
        of = serde.of
        return ConvertedKind(kind_of_type(of), lambda value: msgspec.convert(value, of))
    if isinstance(serde, ListSerde):
        return ListKind(_kind_of(serde.inner))
    if isinstance(serde, WindowedSerde):
        return _windowed_kind(_kind_of(serde.inner))
    if isinstance(serde, RegistrySerde) and serde.schema is not None:
        return kind_of_schema(serde)
    # A user's serde inside of another one: as it is written.
    return MappedKind(
        arrow.binary(),
        lambda value: serde.serialize("", value),
        lambda data: serde.deserialize("", data),
    )


def _windowed_kind(key: Kind) -> Kind:
    fields = [
        Field("key", key, attrgetter("key")),
        Field("window_start", Kind(utc_timestamps()), lambda value: time_of_ms(value[1][0])),
        Field("window_end", Kind(utc_timestamps()), lambda value: time_of_ms(value[1][1])),
    ]
    return ConvertedKind(StructKind(fields), _windowed)


def _windowed(row: Mapping[str, Any]) -> Windowed[Any]:
    if row["window_start"] is None:
        raise ValueError("a window needs a start")
    return Windowed(row["key"], Window(_ms_of(row["window_start"]), _ms_of(row["window_end"])))


def time_of_ms(time_ms: int) -> datetime | None:
    """A time as columns have it; None for the end of windows that never end."""
    return None if time_ms >= LAST_MS else _EPOCH + timedelta(milliseconds=time_ms)


def _ms_of(time: datetime | None) -> int:
    return MAX_TIME_MS if time is None else (time - _EPOCH) // _MILLISECOND


def _spark_type(arrow_type: Any) -> Any:
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(arrow_type)


def _arrow_type(spark_type: Any) -> Any:
    """The type in which Spark itself gives and takes columns of a type."""
    from pyspark.sql.pandas.types import to_arrow_type

    if "timezone" in signature(to_arrow_type).parameters:
        return to_arrow_type(spark_type, timezone="UTC")
    # Spark 4.1 does not ask: there it is always UTC.
    return to_arrow_type(spark_type)


def _binary(datas: Any) -> Any:
    arrow = imported_pyarrow(_NEEDED_BY)
    if isinstance(datas, arrow.Array):
        return _cast(datas, arrow.binary())
    return arrow.array(datas, arrow.binary())


def _cast(column: Any, arrow_type: Any) -> Any:
    return column if column.type.equals(arrow_type) else column.cast(arrow_type)
