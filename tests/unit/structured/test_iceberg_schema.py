"""Spark's types as Iceberg's: the JSON of Iceberg's specification."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from millstream.errors import SparkError
from millstream.structured.lake.iceberg_reader import spark_schema
from millstream.structured.lake.iceberg_schema import (
    key_field_ids,
    schema_json,
    with_field_ids,
    without_ids,
)

SCHEMA = StructType(
    [
        StructField(
            "key", StructType([StructField("a", StringType()), StructField("b", LongType())])
        ),
        StructField("tags", ArrayType(StructType([StructField("t", BinaryType())]))),
        StructField("sums", MapType(StringType(), DecimalType(10, 2))),
        StructField("timestamp", TimestampType()),
    ]
)


def test_fields_are_numbered_before_those_within_them() -> None:
    """In the order in which Iceberg itself numbers a new table."""
    fields = json.loads(schema_json(SCHEMA))["fields"]
    assert [field["id"] for field in fields] == [1, 2, 3, 4]
    assert [field["id"] for field in fields[0]["type"]["fields"]] == [5, 6]
    assert fields[3]["type"] == "timestamptz"
    assert fields[2]["type"]["value"] == "decimal(10, 2)"


def test_there_and_back() -> None:
    """A table's schema gives the columns again that it was made of."""
    assert spark_schema(schema_json(SCHEMA)) == SCHEMA


def test_ids_do_not_count() -> None:
    """Two schemas are alike by names and types."""
    one = schema_json(SCHEMA)
    other = one.replace('"id": 4', '"id": 44')
    assert other != one
    assert without_ids(other) == without_ids(one)
    assert without_ids(one.replace("timestamptz", "timestamp")) != without_ids(one)


def test_the_leaves_of_a_key_find_rows() -> None:
    """Of a struct its fields, with their ids in the columns that Spark writes."""
    schema = schema_json(SCHEMA)
    assert key_field_ids(schema) == [5, 6]
    numbered = with_field_ids(StructType(SCHEMA.fields[:1]), schema)
    inner = numbered["key"].dataType
    assert isinstance(inner, StructType)
    assert inner["b"].metadata == {"parquet.field.id": 6}


@pytest.mark.parametrize("kind", [DoubleType(), ArrayType(StringType())])
def test_some_keys_find_no_rows(kind: DoubleType | ArrayType) -> None:
    """Iceberg compares no floating-point numbers and no lists."""
    with pytest.raises(SparkError, match="cannot find rows by a key"):
        key_field_ids(schema_json(StructType([StructField("key", kind)])))


def test_a_type_that_iceberg_lacks_is_refused() -> None:
    """With the column."""
    with pytest.raises(SparkError, match="no type for the column 'value' of variant"):
        schema_json(StructType([StructField("value", VariantType())]))


def test_small_numbers_are_wider_in_iceberg() -> None:
    """It has no type below 32 bits."""
    schema = schema_json(StructType([StructField("key", ShortType())]))
    assert json.loads(schema)["fields"][0]["type"] == "int"
