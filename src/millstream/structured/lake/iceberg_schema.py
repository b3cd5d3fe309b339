"""Spark's types as Iceberg's, in the JSON of Iceberg's specification (Appendix C).

Ids are given in the order of Iceberg's own: all fields of a struct before those within them. A
table that is made of a schema numbers it anew, in this order too.
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
#: What may stand in a row's key: Iceberg finds rows by it.
_NO_KEY: Final = ("float", "double")


def schema_json(schema: StructType) -> str:
    """Iceberg's schema for rows of Spark's.

    Raises:
        SparkError: a column has a type that Iceberg does not know.
    """
    ids = iter(range(1, 1_000_000))
    return json.dumps({**_struct(schema, ids), "schema-id": 0})


def without_ids(schema: str) -> Any:
    """A schema of which only names and types are left, to compare with another."""
    return _bare(json.loads(schema))


def key_field_ids(schema: str) -> list[int]:
    """The ids of the columns by which a row's key is found: the key's, or those within it.

    Raises:
        SparkError: the key has a type by which Iceberg cannot find rows.
    """
    fields = {field["name"]: field for field in json.loads(schema)["fields"]}
    return list(_leaves(fields["key"]))


def with_field_ids(schema: StructType, iceberg: str) -> StructType:
    """Spark's schema with Iceberg's ids in it, as Spark's writer of Parquet wants them."""
    return _numbered(schema, json.loads(iceberg))


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
            f"Iceberg has no type for the column {name!r} of {kind.simpleString()}: give the "
            "stream a serde of another type, or map its values."
        )
    return found


def _bare(part: Any) -> Any:
    if isinstance(part, dict):
        dropped = ("id", "schema-id", "element-id", "key-id", "value-id", "identifier-field-ids")
        return {name: _bare(inner) for name, inner in part.items() if name not in dropped}
    return [_bare(inner) for inner in part] if isinstance(part, list) else part


def _leaves(field: dict[str, Any]) -> Iterator[int]:
    kind = field["type"]
    if isinstance(kind, str) and kind not in _NO_KEY:
        yield field["id"]
    elif isinstance(kind, dict) and kind["type"] == "struct" and kind["fields"]:
        for inner in kind["fields"]:
            yield from _leaves(inner)
    else:
        told = kind if isinstance(kind, str) else kind["type"]
        raise SparkError(
            f"Iceberg cannot find rows by a key of {told} ({field['name']}): take a key of text, "
            'bytes or whole numbers, or give format="delta".'
        )


def _numbered(schema: StructType, iceberg: dict[str, Any]) -> StructType:
    from pyspark.sql.types import StructField, StructType

    known = {field["name"]: field for field in iceberg["fields"]}
    numbered = []
    for field in schema.fields:
        own = known[field.name]
        kind = field.dataType
        if isinstance(kind, StructType):
            kind = _numbered(kind, own["type"])
        numbered.append(StructField(field.name, kind, True, {"parquet.field.id": own["id"]}))
    return StructType(numbered)
