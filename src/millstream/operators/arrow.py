"""Records as columns of Arrow, and columns as values: what functions on batches take and give."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from operator import attrgetter
from typing import Any, Final

import msgspec

from millstream.errors import add_note
from millstream.operators.batch import Batch, has_none
from millstream.unawaited import AWAITED, checked_result

#: The columns beside those of the values.
KEY: Final = "key"
TIMESTAMP: Final = "timestamp"
#: The column of values that have no columns of their own.
VALUE: Final = "value"
#: Units of numpy's times that are finer than Python's.
_FINER: Final = ("[ns]", "[ps]", "[fs]", "[as]")


def imported_pyarrow(what: str) -> Any:
    """The package pyarrow, which only batches of this kind need: 30 MB, 100 ms to import.

    Args:
        what: needs it, for the error.

    Raises:
        ImportError: it is not installed; says how to.
    """
    try:
        return import_module("pyarrow")
    except ImportError as error:
        raise ImportError(
            f"{what} needs a package that is not installed ({error}). "
            "Install it: pip install 'millstream[arrow]'"
        ) from error


class ArrowFormat:
    """How records become a `pyarrow.RecordBatch`, and a function's result the new values.

    Values that are mappings, dataclasses or msgspec structs have a column for each field; any
    others are the column `value`. Records without a value are in no batch.

    Args:
        schema: the columns of the values, a `pyarrow.Schema`; or a `pyarrow.DataType`, that of the
            column `value`. None to let Arrow infer them from the values of each batch.
        with_key: whether the keys are a column.
        with_timestamp: whether the times are a column.
    """

    def __init__(self, schema: Any, *, with_key: bool, with_timestamp: bool) -> None:
        self._arrow = arrow = imported_pyarrow("map_batches()")
        self._schema = schema
        self._is_of_one = isinstance(schema, arrow.DataType)
        if self._is_of_one:
            self._schema = arrow.schema([(VALUE, schema)])
        self._with_key = with_key
        self._with_timestamp = with_timestamp

    def columns(self, batch: Batch) -> Any:
        """The `pyarrow.RecordBatch` of the records that have a value, of which there is one.

        Raises:
            TypeError: values are of different kinds.
            ValueError: they are nothing that Arrow has a type for, do not fit the schema, or there
                would be no column at all.
        """
        with_value = [index for index, value in enumerate(batch.values) if value is not None]
        if len(with_value) < len(batch):
            batch = batch.take(with_value)
        columns = self._of_values(batch.values)
        if self._with_key:
            columns[KEY] = self._array(KEY, batch.keys)
        if self._with_timestamp:
            times = self._arrow.timestamp("ms", "UTC")
            columns[TIMESTAMP] = self._array(TIMESTAMP, batch.timestamps, times)
        if not columns:
            raise ValueError(
                "there are no columns: the values have no fields, or the schema names none. "
                "with_key=True gives a column of the keys"
            )
        return self._arrow.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def values(self, result: Any, count: int) -> list[Any]:
        """The values that a function has given: dicts of columns, or what is in the one of them.

        Args:
            result: a `pyarrow` batch, table or array; what other packages have for these, such as
                an array of numpy, a frame of polars, a relation of DuckDB; a dict of columns; or a
                list of values.
            count: how many there have to be.

        Raises:
            TypeError: it is none of these.
            ValueError: there are more or fewer.
        """
        values = self._listed(checked_result(result, AWAITED))
        if len(values) != count:
            raise ValueError(
                f"the function got {count} rows and gave {len(values)}: each record needs one "
                "value, in the order of the rows"
            )
        return values

    def _of_values(self, values: Sequence[Any]) -> dict[str, Any]:
        first = values[0]
        names: Sequence[str]
        pick: Callable[[str], Callable[[Any], Any]] = attrgetter
        if isinstance(first, Mapping):
            _check_all(values, Mapping)
            names = list(dict.fromkeys(name for row in values for name in row))
            _check_text(names, "the values have fields")
            pick = _getter
        elif _has_fields(first):
            _check_all(values, type(first))
            names = _field_names(first)
        else:
            return {VALUE: self._array(VALUE, values)}
        if self._is_of_one:
            raise ValueError(
                f"the schema is a DataType ({self._schema.field(VALUE).type}), that of values "
                f"without fields, and these have some: {', '.join(names)}. Give a pyarrow.Schema "
                "of them"
            )
        for name in (KEY, TIMESTAMP):
            if name in names and (self._with_key if name == KEY else self._with_timestamp):
                raise ValueError(
                    f"the values have a field '{name}', and with_{name}=True gives a column of "
                    "that name: rename the field, or leave the option out"
                )
        if self._schema is not None:
            wanted = [name for name in self._schema.names if name not in self._added]
            missing = [name for name in wanted if name not in names]
            if missing and pick is attrgetter:
                raise ValueError(
                    f"the schema names fields that {type(first).__name__} has not: "
                    f"{', '.join(missing)}. It has {', '.join(names)}"
                )
            names = wanted
        return {name: self._array(name, list(map(pick(name), values))) for name in names}

    @property
    def _added(self) -> Sequence[str]:
        """The columns beside those of the values."""
        return [KEY] * self._with_key + [TIMESTAMP] * self._with_timestamp

    def _array(self, name: str, values: Sequence[Any], kind: Any = None) -> Any:
        if self._schema is not None:
            if name in self._schema.names:
                kind = self._schema.field(name).type
            elif name not in self._added:
                raise ValueError(
                    f"the values have no fields, and are the column '{name}', which is not in the "
                    f"schema: {', '.join(self._schema.names)}"
                )
        try:
            array = self._arrow.array(_plain(values), kind)
        except (ValueError, TypeError, OverflowError, NotImplementedError) as error:
            raise ValueError(
                f"the column '{name}' cannot be made of these values: {error}. A schema= says "
                "which type it has"
            ) from error
        if array.null_count and self._is_demanded(name):
            raise ValueError(
                f"the schema says nullable=False of the column '{name}', and {array.null_count} of "
                f"{len(array)} values have nothing there"
            )
        return array

    def _is_demanded(self, name: str) -> bool:
        schema = self._schema
        return schema is not None and name in schema.names and not schema.field(name).nullable

    def _listed(self, result: Any) -> list[Any]:
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
            return _in_microseconds(result).tolist()  # type: ignore[no-any-return]
        raise TypeError(
            f"the function gave {type(result).__name__}, where it has to give a pyarrow "
            "RecordBatch, Table or Array, an array, a dict of columns, or a list"
        )

    def _table(self, columns: Mapping[Any, Any]) -> Any:
        """The table of a dict of columns."""
        _check_text(columns, "the function gave columns")
        made: dict[str, Any] = {}
        for name, column in columns.items():
            try:
                if isinstance(column, str | bytes):
                    raise TypeError("text and bytes are one value")
                made[name] = self._arrow.table({name: column}).column(0)
            except (ValueError, TypeError, OverflowError, NotImplementedError) as error:
                raise ValueError(
                    f"the function gave {type(column).__name__} as the column '{name}', which has "
                    f"to be an array or a list ({error})"
                ) from error
        return self._arrow.table(made)


def answered(
    batch: Batch, answers: Sequence[Any] | Exception, failed: Callable[[int, Exception], None]
) -> tuple[Batch, list[int]]:
    """The records of a batch with their new values, and the indices of those that have none.

    Args:
        batch: the records; those without a value keep being so.
        answers: the new value of each record that has one, or what the function raised.
        failed: told of each record that the function has no value for; raises if that is the end.

    Raises:
        ProcessingError: the processing exception handler says FAIL.
    """
    values = batch.values
    if isinstance(answers, Exception):
        failures = [index for index, value in enumerate(values) if value is not None]
        _say_of_how_many(answers, len(failures))
        for index in failures:
            failed(index, answers)
    else:
        if len(answers) == len(values) and not has_none(answers):
            return batch.with_values(list(answers)), []
        asked = [index for index, value in enumerate(values) if value is not None]
        new: list[Any] = [None] * len(values)
        for index, answer in zip(asked, answers, strict=True):
            new[index] = answer
        failures = [index for index in asked if new[index] is None]
        for index in failures:
            failed(index, ValueError("the function gave no value (null) for this record"))
        batch = batch.with_values(new)
    if not failures:
        return batch, []
    left_out = set(failures)
    return batch.take([index for index in range(len(batch)) if index not in left_out]), failures


def _say_of_how_many(error: Exception, count: int) -> None:
    """Let an error tell that it is that of a whole batch."""
    if count > 1:
        add_note(error, f"The function of map_batches failed on a batch of {count} records.")


def _rows(names: Sequence[str], columns: Sequence[Any], count: int) -> list[Any]:
    """The rows of a table: dicts, or the values of its one column, if that is called so."""
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(
            f"the function gave several columns called '{twice[0]}', and a row has one field of "
            "that name: rename the others, or drop them"
        )
    listed = [column.to_pylist() for column in columns]
    if list(names) == [VALUE]:
        return listed[0]  # type: ignore[no-any-return]
    if not names:
        return [{} for _ in range(count)]
    return [dict(zip(names, row, strict=True)) for row in zip(*listed, strict=True)]


def _getter(name: str) -> Callable[[Any], Any]:
    return lambda row: row.get(name)


def _check_all(values: Sequence[Any], kind: type) -> None:
    for value in values:
        if not isinstance(value, kind):
            raise TypeError(
                f"values of one batch are of different kinds: {kind.__name__} and "
                f"{type(value).__name__}"
            )


def _check_text(names: Iterable[Any], what: str) -> None:
    for name in names:
        if not isinstance(name, str):
            raise TypeError(
                f"{what} whose names are not text, but {type(name).__name__}: {name!r}. Columns of "
                "Arrow have names of text"
            )


def _in_microseconds(array: Any) -> Any:
    """An array of numpy's; one of finer times, which `tolist` makes numbers of, in microseconds."""
    kind = array.dtype
    if getattr(kind, "kind", "") not in ("M", "m") or not kind.str.endswith(_FINER):
        return array
    coarse = array.astype(f"{kind.kind}8[us]")
    if (coarse.astype(kind).view("i8") != array.view("i8")).any():
        raise ValueError(
            f"the function gave times of the type {kind} that are no whole microseconds, and "
            "Python has none so fine: round them with .astype('datetime64[us]'), or give numbers"
        )
    return coarse


def _has_fields(value: Any) -> bool:
    return dataclasses.is_dataclass(value) or isinstance(value, msgspec.Struct)


def _field_names(value: Any) -> Sequence[str]:
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    return [field.name for field in dataclasses.fields(value)]


def _plain(values: Sequence[Any]) -> Sequence[Any]:
    """The same, with dicts in place of structs and dataclasses, which Arrow does not know."""
    first = next((value for value in values if value is not None), None)
    if _has_fields(first):
        return [_as_dict(value) for value in values]
    return values


def _as_dict(value: Any) -> Any:
    if _has_fields(value):
        return {name: _as_dict(getattr(value, name)) for name in _field_names(value)}
    return value
