"""Conversion of bytes and values by Spark's own functions, compared with the serdes."""

from __future__ import annotations

import math
import uuid
from typing import Any

import msgspec
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from millstream.dataframes.sql_codecs import sql_codec
from millstream.errors import SerializationError
from millstream.serdes import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    UUID,
    Serde,
    json_of,
)
from millstream.spark.columns.serde_columns import column_of


class Line(msgspec.Struct):
    """Part of an order."""

    item: str
    count: int | None = None


class Order(msgspec.Struct):
    """One field has the name of an SQL keyword, and only declared fields may be null."""

    order: str
    price: float
    lines: list[Line]
    marks: dict[str, bool | None]
    number: int


ORDERS = [
    Order("a'\"/\u0001€", 1.0, [Line("x"), Line("y", -3)], {"t": True, "u": None}, 2**62),
    Order("", 1e300, [], {}, -1),
]
VALUES: list[tuple[Serde[Any], list[Any]]] = [
    (LONG, [0, -1, 5, 2**63 - 1, -(2**63)]),
    (INTEGER, [0, -1, 2**31 - 1, -(2**31)]),
    (SHORT, [0, -1, 2**15 - 1, -(2**15)]),
    (DOUBLE, [0.1, -0.0, math.inf, -math.inf, 1e-320, 1.7e308, math.nan]),
    (FLOAT, [0.5, -0.0, math.inf, math.nan]),
    (STRING, ["", "ä€"]),
    (BYTES, [b"", b"\xff\x00"]),
    (BOOLEAN, [True, False]),
    (UUID, [uuid.UUID(int=1), uuid.UUID(int=2**128 - 1)]),
    (json_of(Order), ORDERS),
]


#: The names of the serdes that `make test` covers.
SAMPLE = {"LONG", "json_of(Order)"}


def decoded(spark: SparkSession, serde: Serde[Any], datas: list[bytes | None]) -> DataFrame:
    native = sql_codec(serde)
    rows = spark.createDataFrame([(data,) for data in datas], "data binary").coalesce(1)
    shown = rows.selectExpr(f"{native.decode('data')} AS value", "data IS NULL AS no_value")
    return shown.selectExpr(f"{native.validate('value', 'no_value', 'stage', 'value')} AS value")


def encoded(frame: DataFrame, serde: Serde[Any]) -> list[bytes | None]:
    rows = frame.selectExpr(
        f"{sql_codec(serde).encode_validated('value', 'stage', 'value')} AS data"
    )
    return [None if row["data"] is None else bytes(row["data"]) for row in rows.collect()]


@pytest.mark.parametrize(
    ("serde", "values"),
    [
        pytest.param(
            serde, values, id=serde.name, marks=[pytest.mark.extended] * (serde.name not in SAMPLE)
        )
        for serde, values in VALUES
    ],
)
def test_spark_reads_and_writes_like_the_serde(
    spark: SparkSession, serde: Serde[Any], values: list[Any]
) -> None:
    """The same column, and the same bytes from it; for JSON, bytes that the serde reads as the
    same value."""
    datas = [serde.serialize("t", value) for value in values] + [None]
    column = column_of(serde)
    frame = decoded(spark, serde, datas)
    assert frame.schema["value"].dataType.simpleString() == column.spark_type.simpleString()
    found = frame.toArrow().column("value").combine_chunks()
    # NaN is not equal to itself, but its text is.
    assert str(found.to_pylist()) == str(column.decode("t", datas).to_pylist())
    written = encoded(frame, serde)
    if serde == json_of(Order):
        assert [serde.deserialize("t", data) for data in written[:-1] if data] == values
        assert written[-1] is None
    else:
        assert written == datas


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (LONG, b"1234567"),
        (json_of(Line), b'{"item": "x", "count": "1"}'),
        *(
            pytest.param(serde, data, marks=pytest.mark.extended)
            for serde, data in [
                (BOOLEAN, b"\x02"),
                (UUID, b"no uuid"),
                (json_of(Order), b""),
                (json_of(Order), b"null"),
                (json_of(Order), b"[1]"),
                (json_of(Order), b'{"order": "half'),
                (json_of(Order), b'{"order": "x"}'),
                (json_of(Line), b'{"item": null}'),
                (json_of(list[float]), b'["NaN"]'),
            ]
        ),
    ],
)
def test_spark_rejects_the_same_bytes_as_the_serde(
    spark: SparkSession, serde: Serde[Any], data: bytes
) -> None:
    with pytest.raises(SerializationError):
        serde.deserialize("t", data)
    with pytest.raises((PySparkException, Py4JJavaError), match=r"stage cannot read|MALFORMED"):
        decoded(spark, serde, [data]).collect()


@pytest.mark.parametrize(
    "order",
    [
        "named_struct('item', CAST(NULL AS STRING), 'count', 1L)",
        "named_struct('item', CAST(NULL AS STRING), 'count', CAST(NULL AS BIGINT))",
    ],
)
def test_a_column_with_an_invalid_null_is_rejected(spark: SparkSession, order: str) -> None:
    frame = spark.range(1).selectExpr(f"{order} AS value")
    with pytest.raises(
        PySparkException, match=r"stage returned a value that is not a valid json_of\(Line\)"
    ):
        encoded(frame, json_of(Line))
