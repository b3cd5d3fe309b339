"""Converts Spark schemas to Iceberg schemas in JSON.

The JSON format is specified in Appendix C of the Iceberg specification. IDs are assigned in
Iceberg's order: all fields of a struct before their nested fields. Creating a table reassigns the
IDs in the same order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_PRIMITIVES: Final = {
    "boolean": "boolean",
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "date": "date",
    "string": "string",
    "binary": "binary",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
#: Types that Iceberg does not support in equality deletes, and that keys therefore cannot have.
_UNSUPPORTED_KEYS: Final = ("float", "double")


def schema_json(schema: StructType) -> str:
    """Convert a Spark schema to an Iceberg schema.

    Raises a `SparkError` for unsupported types.
    """
    ids = iter(range(1, 1_000_000))
    return json.dumps({**_struct(schema, ids), "schema-id": 0})


def without_ids(schema: str) -> Any:
    """Reduce a schema to names and types, for comparisons."""
    return _strip_ids(json.loads(schema))


def key_field_ids(schema: str) -> list[int]:
    """Return the IDs of the key column or its nested fields, for equality deletes.

    Raises a `SparkError` if Iceberg does not support the key's type in equality deletes.
    """
    fields = {field["name"]: field for field in json.loads(schema)["fields"]}
    return list(_leaf_ids(fields["key"]))


def with_field_ids(schema: StructType, iceberg: str) -> StructType:
    """Add Iceberg's field IDs to a Spark schema, for Spark's Parquet writer."""
    return _add_ids(schema, json.loads(iceberg))


def _struct(schema: StructType, ids: Iterator[int]) -> dict[str, Any]:
    numbers = [next(ids) for _ in schema.fields]
    fields = [
        {
            "id": number,
            "name": field.name,
            "required": False,
            "type": _type(field.dataType, field.name, ids),
        }
        for number, field in zip(numbers, schema.fields, strict=True)
    ]
    return {"type": "struct", "fields": fields}


def _type(kind: DataType, name: str, ids: Iterator[int]) -> Any:
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType

    if isinstance(kind, StructType):
        return _struct(kind, ids)
    if isinstance(kind, ArrayType):
        number = next(ids)
        element = _type(kind.elementType, name, ids)
        return {"type": "list", "element-id": number, "element-required": False, "element": element}
    if isinstance(kind, MapType):
        key_id, value_id = next(ids), next(ids)
        return {
            "type": "map",
            "key-id": key_id,
            "key": _type(kind.keyType, name, ids),
            "value-id": value_id,
            "value-required": False,
            "value": _type(kind.valueType, name, ids),
        }
    if isinstance(kind, DecimalType):
        return f"decimal({kind.precision}, {kind.scale})"
    found = _PRIMITIVES.get(kind.simpleString())
    if found is None:
        raise SparkError(
            f"Iceberg has no type for the column {name!r} of type {kind.simpleString()}. Use a "
            "serde with another type for the stream, or map its values."
        )
    return found


def _strip_ids(part: Any) -> Any:
    if isinstance(part, dict):
        dropped = ("id", "schema-id", "element-id", "key-id", "value-id", "identifier-field-ids")
        return {name: _strip_ids(inner) for name, inner in part.items() if name not in dropped}
    return [_strip_ids(inner) for inner in part] if isinstance(part, list) else part


def _leaf_ids(field: dict[str, Any]) -> Iterator[int]:
    kind = field["type"]
    if isinstance(kind, str) and kind not in _UNSUPPORTED_KEYS:
        yield field["id"]
    elif isinstance(kind, dict) and kind["type"] == "struct" and kind["fields"]:
        for inner in kind["fields"]:
            yield from _leaf_ids(inner)
    else:
        name = kind if isinstance(kind, str) else kind["type"]
        raise SparkError(
            f"Iceberg cannot find rows by a key of type {name} ({field['name']}). Use a string, "
            'bytes or integer key, or pass format="delta".'
        )


def _add_ids(schema: StructType, iceberg: dict[str, Any]) -> StructType:
    from pyspark.sql.types import StructField, StructType

    iceberg_fields = {field["name"]: field for field in iceberg["fields"]}
    numbered = []
    for field in schema.fields:
        own = iceberg_fields[field.name]
        kind = field.dataType
        if isinstance(kind, StructType):
            kind = _add_ids(kind, own["type"])
        numbered.append(StructField(field.name, kind, True, {"parquet.field.id": own["id"]}))
    return StructType(numbered)
