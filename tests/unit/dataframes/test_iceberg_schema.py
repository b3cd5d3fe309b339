"""Conversion of Spark's types to the JSON of Iceberg's specification."""

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

from millstream.dataframes.lake.iceberg_schema import (
    key_field_ids,
    schema_json,
    with_field_ids,
    without_ids,
)
from millstream.dataframes.lake.lake_tables import spark_schema
from millstream.errors import SparkError

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


def test_fields_are_numbered_before_nested_fields() -> None:
    """In Iceberg's own order for new tables."""
    fields = json.loads(schema_json(SCHEMA))["fields"]
    assert [field["id"] for field in fields] == [1, 2, 3, 4]
    assert [field["id"] for field in fields[0]["type"]["fields"]] == [5, 6]
    assert fields[3]["type"] == "timestamptz"
    assert fields[2]["type"]["value"] == "decimal(10, 2)"


def test_schemas_are_converted_in_both_directions() -> None:
    assert spark_schema(schema_json(SCHEMA)) == SCHEMA


def test_ids_are_ignored_in_comparisons() -> None:
    """Schemas are equal if names and types are."""
    one = schema_json(SCHEMA)
    other = one.replace('"id": 4', '"id": 44')
    assert other != one
    assert without_ids(other) == without_ids(one)
    assert without_ids(one.replace("timestamptz", "timestamp")) != without_ids(one)


def test_the_key_fields_of_a_struct_are_its_leaves() -> None:
    """Their ids are in the metadata of the columns that Spark writes."""
    schema = schema_json(SCHEMA)
    assert key_field_ids(schema) == [5, 6]
    numbered = with_field_ids(StructType(SCHEMA.fields[:1]), schema)
    inner = numbered["key"].dataType
    assert isinstance(inner, StructType)
    assert inner["b"].metadata == {"parquet.field.id": 6}


@pytest.mark.parametrize("kind", [DoubleType(), ArrayType(StringType())])
def test_unsupported_key_types_are_rejected(kind: DoubleType | ArrayType) -> None:
    """Iceberg cannot compare floating-point numbers and lists."""
    with pytest.raises(SparkError, match="cannot find rows by a key"):
        key_field_ids(schema_json(StructType([StructField("key", kind)])))


def test_an_unsupported_type_is_rejected() -> None:
    """The error names the column."""
    with pytest.raises(SparkError, match="no type for the column 'value' of type variant"):
        schema_json(StructType([StructField("value", VariantType())]))


def test_small_integers_are_widened() -> None:
    """Iceberg has no integer type below 32 bits."""
    schema = schema_json(StructType([StructField("key", ShortType())]))
    assert json.loads(schema)["fields"][0]["type"] == "int"
