"""Conversion of records to Arrow batches, and the operator of `map_batches`.

The operator calls plain functions, not `async` functions.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from operator import attrgetter
from typing import Any, Final

import msgspec

from millstream.async_checks import AWAIT_ADVICE, checked_result
from millstream.errors import add_note
from millstream.operators.operator import Operator, Output
from millstream.operators.record_batch import Batch, has_none

#: Columns in addition to those of the values.
KEY: Final = "key"
TIMESTAMP: Final = "timestamp"
#: The column of values without fields.
VALUE: Final = "value"
#: Units of NumPy times that are finer than the microseconds of Python's times.
_FINE_TIME_UNITS: Final = ("[ns]", "[ps]", "[fs]", "[as]")


def import_pyarrow(what: str) -> Any:
    """Import pyarrow on demand, because the import takes 30 MB and 100 ms.

    Raises:
        ImportError: pyarrow is not installed; the message says how to install it.
    """
    try:
        return import_module("pyarrow")
    except ImportError as error:
        raise ImportError(
            f"{what} needs a package that is not installed ({error}). "
            "Install it: pip install 'millstream[arrow]'; the extra `spark` contains it as well."
        ) from error


class ArrowFormat:
    """Converts records to a `pyarrow.RecordBatch`, and function results to values.

    Values that are mappings, dataclasses or msgspec structs have a column for each field; other
    values form the column `value`. Records without a value are excluded.

    Args:
        schema: the columns of the values, as a `pyarrow.Schema`; or the type of the column `value`,
            as a `pyarrow.DataType`. None infers the types from each batch.
    """

    def __init__(self, schema: Any, *, with_key: bool, with_timestamp: bool) -> None:
        self._arrow = arrow = import_pyarrow("map_batches()")
        self._schema = schema
        self._is_single_column = isinstance(schema, arrow.DataType)
        if self._is_single_column:
            self._schema = arrow.schema([(VALUE, schema)])
        self._with_key = with_key
        self._with_timestamp = with_timestamp

    def columns(self, batch: Batch) -> Any:
        """Return a `pyarrow.RecordBatch` of the records with a value.

        The batch must contain at least one such record.

        Raises:
            TypeError: the values are of different types.
            ValueError: Arrow has no type for the values, the values do not match the schema, or
                there would be no columns.
        """
        with_value = [index for index, value in enumerate(batch.values) if value is not None]
        if len(with_value) < len(batch):
            batch = batch.take(with_value)
        columns = self._value_columns(batch.values)
        if self._with_key:
            columns[KEY] = self._array(KEY, batch.keys)
        if self._with_timestamp:
            times = self._arrow.timestamp("ms", "UTC")
            columns[TIMESTAMP] = self._array(TIMESTAMP, batch.timestamps, times)
        if not columns:
            raise ValueError(
                "there are no columns: the values or the schema have no fields. "
                "with_key=True adds a column of the keys"
            )
        return self._arrow.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def values(self, result: Any, count: int) -> list[Any]:
        """Convert the result of a function to values.

        The values are dicts of the columns, or single values.

        Args:
            result: a `pyarrow` batch, table or array; the equivalents of other packages, such as a
                NumPy array, a polars DataFrame or a DuckDB relation; a dict of columns; or a list
                of values.

        Raises:
            TypeError: the result has another type.
            ValueError: the number of values is not `count`, or the columns are invalid.
        """
        values = self._to_list(checked_result(result, AWAIT_ADVICE))
        if len(values) != count:
            raise ValueError(
                f"the function got {count} rows and returned {len(values)}: each record needs one "
                "value, in the order of the rows"
            )
        return values

    def _value_columns(self, values: Sequence[Any]) -> dict[str, Any]:
        first = values[0]
        names: Sequence[str]
        pick: Callable[[str], Callable[[Any], Any]] = attrgetter
        if isinstance(first, Mapping):
            _check_same_type(values, Mapping)
            names = list(dict.fromkeys(name for row in values for name in row))
            _check_str(names, "the values have fields")
            pick = _getter
        elif _has_fields(first):
            _check_same_type(values, type(first))
            names = _field_names(first)
        else:
            return {VALUE: self._array(VALUE, values)}
        if self._is_single_column:
            raise ValueError(
                f"the schema is a DataType ({self._schema.field(VALUE).type}), which is for values "
                f"without fields, but the values have fields: {', '.join(names)}. Pass a "
                "pyarrow.Schema of the fields"
            )
        for name in (KEY, TIMESTAMP):
            if name in names and (self._with_key if name == KEY else self._with_timestamp):
                raise ValueError(
                    f"the values have a field '{name}', and with_{name}=True adds a column of "
                    "that name: rename the field, or omit the option"
                )
        if self._schema is not None:
            required = [name for name in self._schema.names if name not in self._extra_columns]
            missing = [name for name in required if name not in names]
            if missing and pick is attrgetter:
                raise ValueError(
                    f"the schema has fields that {type(first).__name__} does not have: "
                    f"{', '.join(missing)}. Its fields are {', '.join(names)}"
                )
            names = required
        return {name: self._array(name, list(map(pick(name), values))) for name in names}

    @property
    def _extra_columns(self) -> Sequence[str]:
        return [KEY] * self._with_key + [TIMESTAMP] * self._with_timestamp

    def _array(self, name: str, values: Sequence[Any], kind: Any = None) -> Any:
        if self._schema is not None:
            if name in self._schema.names:
                kind = self._schema.field(name).type
            elif name not in self._extra_columns:
                raise ValueError(
                    f"the values have no fields, so they form the column '{name}', which is not in "
                    f"the schema: {', '.join(self._schema.names)}"
                )
        try:
            array = self._arrow.array(_to_plain(values), kind)
        except (ValueError, TypeError, OverflowError, NotImplementedError) as error:
            raise ValueError(
                f"the column '{name}' cannot be created from these values: {error}. Pass schema= "
                "to define its type"
            ) from error
        if array.null_count and self._is_required(name):
            raise ValueError(
                f"the column '{name}' has nullable=False in the schema, but {array.null_count} of "
                f"{len(array)} values are null"
            )
        return array

    def _is_required(self, name: str) -> bool:
        schema = self._schema
        return schema is not None and name in schema.names and not schema.field(name).nullable

    def _to_list(self, result: Any) -> list[Any]:
        arrow = self._arrow
        if isinstance(result, Mapping):
            result = self._table(result)
        if isinstance(result, arrow.RecordBatch | arrow.Table):
            return _rows(result.column_names, result.columns, result.num_rows)
        if isinstance(result, list | tuple):
            return list(result)
        if hasattr(result, "__arrow_c_stream__"):
            result = arrow.chunked_array(result)
        elif hasattr(result, "__arrow_c_array__"):
            result = arrow.array(result)
        if isinstance(result, arrow.Array | arrow.ChunkedArray):
            if not arrow.types.is_struct(result.type) or result.null_count:
                return result.to_pylist()  # type: ignore[no-any-return]
            names = [field.name for field in result.type]
            return _rows(names, result.flatten(), len(result))
        if hasattr(result, "__array__") and hasattr(result, "tolist") and result.ndim:
            return _to_microseconds(result).tolist()  # type: ignore[no-any-return]
        raise TypeError(
            f"the function returned {type(result).__name__}, but must return a pyarrow "
            "RecordBatch, Table or Array, an array, a dict of columns, or a list"
        )

    def _table(self, columns: Mapping[Any, Any]) -> Any:
        _check_str(columns, "the function returned columns")
        made: dict[str, Any] = {}
        for name, column in columns.items():
            try:
                if isinstance(column, str | bytes):
                    raise TypeError("str and bytes are single values")
                made[name] = self._arrow.table({name: column}).column(0)
            except (ValueError, TypeError, OverflowError, NotImplementedError) as error:
                raise ValueError(
                    f"the function returned {type(column).__name__} as the column '{name}', which "
                    f"must be an array or a list ({error})"
                ) from error
        return self._arrow.table(made)


def with_results(
    batch: Batch, results: Sequence[Any] | Exception, failed: Callable[[int, Exception], None]
) -> tuple[Batch, list[int]]:
    """Return the records with new values, and the indices of the failed records.

    Args:
        results: the new values of the records that have a value, or the error of the whole batch.
        failed: called for each failed record; may raise.

    Raises:
        ProcessingError: the processing exception handler returned FAIL.
    """
    values = batch.values
    if isinstance(results, Exception):
        failures = [index for index, value in enumerate(values) if value is not None]
        _add_batch_size_note(results, len(failures))
        for index in failures:
            failed(index, results)
    else:
        if len(results) == len(values) and not has_none(results):
            return batch.with_values(list(results)), []
        expected = [index for index, value in enumerate(values) if value is not None]
        new: list[Any] = [None] * len(values)
        for index, result in zip(expected, results, strict=True):
            new[index] = result
        failures = [index for index in expected if new[index] is None]
        for index in failures:
            failed(index, ValueError("the function returned null for this record"))
        batch = batch.with_values(new)
    if not failures:
        return batch, []
    left_out = set(failures)
    return batch.take([index for index in range(len(batch)) if index not in left_out]), failures


def _add_batch_size_note(error: Exception, count: int) -> None:
    if count > 1:
        add_note(error, f"The function of map_batches failed on a batch of {count} records.")


def _rows(names: Sequence[str], columns: Sequence[Any], count: int) -> list[Any]:
    """Return the rows of a table: dicts, or the values of a single column `value`."""
    duplicates = [name for name, times in Counter(names).items() if times > 1]
    if duplicates:
        raise ValueError(
            f"the function returned several columns named '{duplicates[0]}', but names must be "
            "unique: rename the others, or drop them"
        )
    listed = [column.to_pylist() for column in columns]
    if list(names) == [VALUE]:
        return listed[0]  # type: ignore[no-any-return]
    if not names:
        return [{} for _ in range(count)]
    return [dict(zip(names, row, strict=True)) for row in zip(*listed, strict=True)]


def _getter(name: str) -> Callable[[Any], Any]:
    return lambda row: row.get(name)


def _check_same_type(values: Sequence[Any], kind: type) -> None:
    for value in values:
        if not isinstance(value, kind):
            raise TypeError(
                f"values of one batch have different types: {kind.__name__} and "
                f"{type(value).__name__}"
            )


def _check_str(names: Iterable[Any], what: str) -> None:
    for name in names:
        if not isinstance(name, str):
            raise TypeError(
                f"{what} whose names are {type(name).__name__}, not str: {name!r}. Arrow columns "
                "need str names"
            )


def _to_microseconds(array: Any) -> Any:
    """Convert NumPy times finer than microseconds.

    `tolist` would turn them into integers.
    """
    kind = array.dtype
    if getattr(kind, "kind", "") not in ("M", "m") or not kind.str.endswith(_FINE_TIME_UNITS):
        return array
    coarse = array.astype(f"{kind.kind}8[us]")
    if (coarse.astype(kind).view("i8") != array.view("i8")).any():
        raise ValueError(
            f"the function returned times of type {kind} that are not whole microseconds, which "
            "is the resolution of Python: round them with .astype('datetime64[us]'), or return "
            "numbers"
        )
    return coarse


def _has_fields(value: Any) -> bool:
    return dataclasses.is_dataclass(value) or isinstance(value, msgspec.Struct)


def _field_names(value: Any) -> Sequence[str]:
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    return [field.name for field in dataclasses.fields(value)]


def _to_plain(values: Sequence[Any]) -> Sequence[Any]:
    """Convert structs and dataclasses, which Arrow does not support, to dicts."""
    first = next((value for value in values if value is not None), None)
    if _has_fields(first):
        return [_as_dict(value) for value in values]
    return values


def _as_dict(value: Any) -> Any:
    if _has_fields(value):
        return {name: _as_dict(getattr(value, name)) for name in _field_names(value)}
    return value


class MapBatchesOperator(Operator):
    """Replaces values with the results of a function that takes Arrow batches."""

    def __init__(
        self, function: Callable[[Any], Any], arrow: ArrowFormat, max_records: int
    ) -> None:
        self._function = function
        self._arrow = arrow
        self._max_records = max_records

    def process(self, batch: Batch, output: Output) -> None:
        max_records, count = self._max_records, len(batch)
        for start in range(0, count, max_records):
            indices = range(start, min(start + max_records, count))
            part = batch if len(indices) == count else batch.take(indices)
            mapped, _ = with_results(part, self._results(part), partial(self.context.failed, part))
            if mapped.keys:
                output.emit(mapped)

    def _results(self, batch: Batch) -> Sequence[Any] | Exception:
        count = sum(value is not None for value in batch.values)
        if not count:
            return []
        try:
            columns = self._arrow.columns(batch)
            return self._arrow.values(self._function(columns), count)
        except Exception as error:
            return error
