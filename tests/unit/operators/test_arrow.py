"""Records become Arrow columns, and results of functions become values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from millstream.operators.arrow import ArrowFormat
from millstream.operators.record_batch import Batch, Origin
from millstream.record import TopicPartition


def records(*values: Any) -> Batch:
    """Return records with these values, the keys a, b, ..., and timestamps from 1,000 on."""
    size = len(values)
    keys = [chr(ord("a") + number) for number in range(size)]
    origin = Origin(TopicPartition("in", 0), range(size))
    return Batch(keys, list(values), [1_000 + n for n in range(size)], range(size), origin)


def columns(batch: Batch, schema: Any = None, **options: bool) -> pa.RecordBatch:
    settings = {"with_key": False, "with_timestamp": False, **options}
    return ArrowFormat(schema, **settings).columns(batch)


@dataclass
class Place:
    x: int
    y: float


class Order(msgspec.Struct):
    item: str
    place: Place | None = None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.5, 2.5], {"value": [1.5, 2.5]}),
        (["a", None, "b"], {"value": ["a", "b"]}),
        ([[1, 2], []], {"value": [[1, 2], []]}),
        ([b"a", b""], {"value": [b"a", b""]}),
        ([{"a": 1}, {"b": "x"}], {"a": [1, None], "b": [None, "x"]}),
        ([Place(1, 2.0), Place(3, 4.0)], {"x": [1, 3], "y": [2.0, 4.0]}),
        (
            [Order("tea"), Order("mug", Place(1, 2.0))],
            {"item": ["tea", "mug"], "place": [None, {"x": 1, "y": 2.0}]},
        ),
    ],
)
def test_values_become_columns(values: list[Any], expected: dict[str, list[Any]]) -> None:
    """Fields are columns, other values are one column; null values have no row."""
    assert columns(records(*values)).to_pydict() == expected


def test_keys_and_times_are_columns_on_request() -> None:
    """They belong to the rows, without the records that have a null value."""
    batch = columns(records(1, None, 3), with_key=True, with_timestamp=True)
    assert batch.column_names == ["value", "key", "timestamp"]
    assert batch["key"].to_pylist() == ["a", "c"]
    assert batch["timestamp"].type == pa.timestamp("ms", "UTC")
    assert batch["timestamp"].cast(pa.int64()).to_pylist() == [1_000, 1_002]


def test_numbers_are_arrays_without_copying() -> None:
    """Without nulls, numpy uses the memory of Arrow."""
    column = columns(records(1.5, None, 2.5))["value"]
    array = column.to_numpy(zero_copy_only=True)
    assert array.__array_interface__["data"][0] == column.buffers()[1].address


def test_schema_defines_types_and_columns() -> None:
    """The values of a batch have no influence, and other fields are dropped."""
    schema = pa.schema([("x", pa.float32()), ("z", pa.string())])
    batch = columns(records({"x": 1, "y": 2}), schema)
    assert batch.schema == schema
    assert batch.to_pydict() == {"x": [1.0], "z": [None]}
    assert columns(records(1, 2), pa.int8())["value"].type == pa.int8()
    keyed = pa.schema([("x", pa.int32()), ("key", pa.large_string())])
    assert columns(records({"x": 1}), keyed, with_key=True).schema == keyed


NOT_NULL = pa.schema([pa.field("price", pa.int64(), nullable=False)])


@pytest.mark.parametrize(
    ("values", "schema", "options", "error", "message"),
    [
        ([{"a": 1}, 2], None, {}, TypeError, "different types: Mapping and int"),
        ([Place(1, 2), Order("a")], None, {}, TypeError, "different types: Place and Order"),
        ([object()], None, {}, ValueError, "column 'value' cannot be created from these values"),
        ([{"a": "x"}], pa.schema([("a", pa.int64())]), {}, ValueError, "column 'a' cannot be"),
        ([300], pa.int8(), {}, ValueError, "column 'value' cannot be created"),
        ([1], pa.schema([("a", pa.int64())]), {}, ValueError, "not in the schema: a"),
        ([{}, {}], None, {}, ValueError, "there are no columns: the values or the schema"),
        ([{"a": 1}], pa.schema([]), {}, ValueError, "there are no columns"),
        ([{"x": 5}], pa.int64(), {}, ValueError, r"DataType \(int64\).* have fields: x"),
        ([Place(1, 2)], pa.int64(), {}, ValueError, "have fields: x, y"),
        (
            [Place(1, 2)],
            pa.schema([("z", pa.int64())]),
            {},
            ValueError,
            "Place does not have: z. Its",
        ),
        (
            [{"prize": 1}],
            NOT_NULL,
            {},
            ValueError,
            "the column 'price' has nullable=False",
        ),
        ([{"price": 1}, {}], NOT_NULL, {}, ValueError, "but 1 of 2 values are null"),
        ([{1: 2}], None, {}, TypeError, "fields whose names are int, not str: 1"),
        ([{"key": 1}], None, {"with_key": True}, ValueError, "have a field 'key'"),
        ([{"timestamp": 1}], None, {"with_timestamp": True}, ValueError, "with_timestamp=True"),
    ],
)
def test_values_that_are_not_columns_are_rejected(
    values: list[Any], schema: Any, options: dict[str, bool], error: type[Exception], message: str
) -> None:
    """Each error names the column, or the types that do not match."""
    with pytest.raises(error, match=message):
        columns(records(*values), schema, **options)


class Stream:
    """The interface of the frames of other packages."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


MOMENTS = [datetime(1970, 1, 1, 0, 0, 0, number) for number in (7, 8)]
TABLE = pa.table({"a": [1, 2], "b": ["x", None]})
ROWS = [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: TABLE, ROWS),
        (lambda: TABLE.to_batches()[0], ROWS),
        (lambda: Stream(TABLE), ROWS),
        (lambda: TABLE.to_struct_array(), ROWS),
        (lambda: {"a": np.array([1, 2]), "b": ["x", None]}, ROWS),
        (lambda: pa.table({"value": [1, 2]}), [1, 2]),
        (lambda: pa.table({"other": [1, 2]}), [{"other": 1}, {"other": 2}]),
        (lambda: pa.array(["x", "y"]), ["x", "y"]),
        (lambda: pa.chunked_array([["x"], ["y"]]), ["x", "y"]),
        (lambda: Stream(pa.chunked_array([[1.5], [2.5]])), [1.5, 2.5]),
        (lambda: np.array([1.5, 2.5]), [1.5, 2.5]),
        (lambda: np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (lambda: np.array([7_000, 8_000], "datetime64[ns]"), MOMENTS),
        (lambda: np.array([7, 8], "datetime64[us]"), MOMENTS),
        (lambda: ["x", Place(1, 2)], ["x", Place(1, 2)]),
    ],
)
def test_results_of_functions_become_values(make: Callable[[], Any], expected: list[Any]) -> None:
    """Rows become dicts; an array, or a single column `value`, becomes its elements, of Python
    types."""
    converted = ArrowFormat(None, with_key=False, with_timestamp=False).values(make(), 2)
    assert converted == expected
    assert [type(each) for each in converted] == [type(each) for each in expected]


@pytest.mark.parametrize("result", [None, 1, "ab", np.float64(2), object()])
def test_results_that_are_not_columns_are_rejected(result: Any) -> None:
    """In particular that of a function without a return statement."""
    with pytest.raises(TypeError, match=f"the function returned {type(result).__name__}"):
        ArrowFormat(None, with_key=False, with_timestamp=False).values(result, 1)


@pytest.mark.parametrize(
    ("result", "error", "message"),
    [
        (pa.table([[1], [2]], names=["x", "x"]), ValueError, "several columns named 'x'"),
        ({"x": 1}, ValueError, "returned int as the column 'x', which must be an array or a list"),
        ({"x": "ab"}, ValueError, "returned str as the column 'x'"),
        ({"x": [1], "y": [object()]}, ValueError, "as the column 'y'"),
        ({1: [2]}, TypeError, "columns whose names are int, not str: 1"),
        (np.array([1], "datetime64[ns]"), ValueError, "not whole microseconds"),
    ],
)
def test_columns_that_cannot_become_rows_are_rejected(
    result: Any, error: type[Exception], message: str
) -> None:
    """The error contains the name of the column, and there is no partial result."""
    with pytest.raises(error, match=message):
        ArrowFormat(None, with_key=False, with_timestamp=False).values(result, 1)


@pytest.mark.parametrize("result", [[], [1], [1, 2, 3], pa.array([1]), {"a": [1, 2, 3]}])
def test_wrong_number_of_rows_is_rejected(result: Any) -> None:
    """Rows could not be matched with records."""
    with pytest.raises(ValueError, match=r"got 2 rows and returned \d"):
        ArrowFormat(None, with_key=False, with_timestamp=False).values(result, 2)
