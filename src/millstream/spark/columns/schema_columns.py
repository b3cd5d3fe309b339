"""The schemas of Avro, JSON Schema and Protobuf as types of columns.

What a schema leaves open, such as a union of several types or a type that holds itself, is text of
JSON, as in `typed_columns`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC
from importlib import import_module
from operator import attrgetter
from typing import Any, Final

from millstream.operators.arrow import imported_pyarrow
from millstream.serdes._registry import RegistrySerde
from millstream.spark.columns.typed_columns import (
    ConvertedKind,
    Field,
    Kind,
    ListKind,
    MapKind,
    MappedKind,
    StructKind,
    json_kind,
    utc_timestamps,
)

_NEEDED_BY: Final = "Serdes as columns of Spark"
#: Types by the numbers that Protobuf gives them (`FieldDescriptor.type`).
_PROTOBUF_MESSAGE: Final = 11
_PROTOBUF_GROUP: Final = 10
_PROTOBUF_ENUM: Final = 14
_TIMESTAMP: Final = "google.protobuf.Timestamp"


def kind_of_schema(serde: RegistrySerde) -> Kind:
    """The kind of the values of a serde with a schema.

    Raises:
        ValueError: the schema is none, or one without fields.
    """
    if not isinstance(serde.schema, str):
        return _message_kind(serde.schema.DESCRIPTOR, serde.schema, ())
    schema = json.loads(serde.schema)
    if serde.extra == "avro":
        kind = _Avro().kind(schema, ())
    else:
        kind = _json_schema_kind(schema, schema, ())
    to_dict, from_dict = serde.conversions
    if from_dict is None:
        return kind
    return ConvertedKind(kind, from_dict, to_dict)


class _Avro:
    """Reads one schema: types that have been named are known from there on."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def kind(self, schema: Any, within: tuple[str, ...], space: str = "") -> Kind:
        if isinstance(schema, list):
            return self._of_union(schema, within, space)
        if isinstance(schema, str):
            return self._of_name(schema, within, space)
        plain = _avro_logical_type(schema)
        if plain is not None:
            return plain
        kind = schema["type"]
        if kind == "array":
            return ListKind(self.kind(schema["items"], within, space))
        if kind == "map":
            text = Kind(imported_pyarrow(_NEEDED_BY).string())
            return MapKind(text, self.kind(schema["values"], within, space))
        if kind in ("record", "error", "enum", "fixed"):
            space = schema.get("namespace", space)
            name = _full_name(schema["name"], space)
            self._named[name] = schema
            if kind != "record" or not schema["fields"]:
                return self._of_named(kind)
            return self._of_record(schema, (*within, name), name.rpartition(".")[0])
        return self.kind(kind, within, space)

    def _of_record(self, schema: Any, within: tuple[str, ...], space: str) -> Kind:
        return StructKind(
            [
                Field(
                    field["name"],
                    self.kind(field["type"], within, space),
                    _getter(field["name"]),
                    may_be_none=_avro_takes_null(field["type"]),
                    has_default="default" in field,
                )
                for field in schema["fields"]
            ]
        )

    def _of_named(self, kind: str) -> Kind:
        arrow = imported_pyarrow(_NEEDED_BY)
        types = {"enum": arrow.string(), "fixed": arrow.binary()}
        return Kind(types[kind]) if kind in types else json_kind()

    def _of_union(self, arms: list[Any], within: tuple[str, ...], space: str) -> Kind:
        others = [arm for arm in arms if arm != "null"]
        kinds = [self.kind(arm, within, space) for arm in others]
        if len(kinds) == 1:
            return kinds[0]
        return json_kind() if kinds else Kind(imported_pyarrow(_NEEDED_BY).null())

    def _of_name(self, name: str, within: tuple[str, ...], space: str) -> Kind:
        arrow = imported_pyarrow(_NEEDED_BY)
        types = {
            "null": arrow.null(),
            "boolean": arrow.bool_(),
            "int": arrow.int32(),
            "long": arrow.int64(),
            "float": arrow.float32(),
            "double": arrow.float64(),
            "bytes": arrow.binary(),
            "string": arrow.string(),
        }
        if name in types:
            return Kind(types[name])
        full = _full_name(name, space)
        if full in within:
            return json_kind()
        if full not in self._named:
            raise ValueError(f"the schema names a type '{name}' that it does not define")
        return self.kind(self._named[full], within, space)


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _avro_takes_null(schema: Any) -> bool:
    return schema == "null" or (isinstance(schema, list) and "null" in schema)


def _avro_logical_type(schema: Mapping[str, Any]) -> Kind | None:
    """What fastavro gives as an object of Python's; None for other types."""
    arrow = imported_pyarrow(_NEEDED_BY)
    logical = f"{schema['type']}-{schema.get('logicalType')}"
    if logical in ("bytes-decimal", "fixed-decimal"):
        return Kind(arrow.decimal128(schema["precision"], schema.get("scale", 0)))
    if logical == "string-uuid":
        return MappedKind(arrow.string(), str, str)
    types = {
        "int-date": arrow.date32(),
        "int-time-millis": arrow.time64("us"),
        "long-time-micros": arrow.time64("us"),
        "long-timestamp-millis": utc_timestamps(),
        "long-timestamp-micros": utc_timestamps(),
        "long-local-timestamp-millis": arrow.timestamp("us"),
        "long-local-timestamp-micros": arrow.timestamp("us"),
    }
    return Kind(types[logical]) if logical in types else None


def _json_schema_kind(schema: Any, whole: Any, within: tuple[str, ...]) -> Kind:
    arrow = imported_pyarrow(_NEEDED_BY)
    if not isinstance(schema, dict):
        return json_kind()
    if "$ref" in schema:
        place = schema["$ref"]
        found = _at_place(whole, place)
        if found is None or place in within:
            return json_kind()
        return _json_schema_kind(found, whole, (*within, place))
    for word in ("anyOf", "oneOf"):
        arms = [arm for arm in schema.get(word, ()) if arm != {"type": "null"}]
        if arms:
            return _json_schema_kind(arms[0], whole, within) if len(arms) == 1 else json_kind()
    kind = schema.get("type")
    if isinstance(kind, list):
        kinds = [each for each in kind if each != "null"]
        kind = kinds[0] if len(kinds) == 1 else None
    plain = {
        "string": arrow.string(),
        "integer": arrow.int64(),
        "number": arrow.float64(),
        "boolean": arrow.bool_(),
        "null": arrow.null(),
    }
    if isinstance(kind, str) and kind in plain:
        return Kind(plain[kind])
    if kind == "array" and "items" in schema:
        return ListKind(_json_schema_kind(schema["items"], whole, within))
    if kind == "object" and schema.get("properties"):
        return _json_object_kind(schema, whole, within)
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        value = _json_schema_kind(schema["additionalProperties"], whole, within)
        return MapKind(Kind(arrow.string()), value)
    return json_kind()


def _json_object_kind(schema: Any, whole: Any, within: tuple[str, ...]) -> Kind:
    required = schema.get("required", ())
    return StructKind(
        [
            Field(
                name,
                _json_schema_kind(inner, whole, within),
                _getter(name),
                may_be_none=False,
                # A field that may be missing is left out; null would be a value of its own.
                has_default=name not in required,
            )
            for name, inner in schema["properties"].items()
        ]
    )


def _at_place(whole: Any, place: str) -> Any:
    """What a reference inside of the schema points at; None if it points elsewhere."""
    if not place.startswith("#/"):
        return None
    found = whole
    for part in place[2:].split("/"):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _getter(name: str) -> Callable[[Any], Any]:
    return lambda value: value.get(name)


def _message_kind(descriptor: Any, message: Any, within: tuple[str, ...]) -> Kind:
    """Messages of Protobuf; `message` makes one."""
    if not descriptor.fields:
        raise ValueError(f"the message {descriptor.full_name} has no fields to be columns")
    within = (*within, descriptor.full_name)
    fields = [
        Field(field.name, _protobuf_kind(field, within), _protobuf_getter(field))
        for field in descriptor.fields
    ]

    def made(row: Mapping[str, Any]) -> Any:
        return message(**{name: value for name, value in row.items() if value is not None})

    return ConvertedKind(StructKind(fields), made)


def _protobuf_kind(field: Any, within: tuple[str, ...]) -> Kind:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        key, value = inner.fields_by_name["key"], inner.fields_by_name["value"]
        return ConvertedKind(
            MapKind(_protobuf_scalar(key, within), _protobuf_scalar(value, within)), dict
        )
    kind = _protobuf_scalar(field, within)
    return ListKind(kind) if field.is_repeated else kind


def _protobuf_scalar(field: Any, within: tuple[str, ...]) -> Kind:
    arrow = imported_pyarrow(_NEEDED_BY)
    if field.type == _PROTOBUF_ENUM:
        by_number = field.enum_type.values_by_number
        by_name = field.enum_type.values_by_name
        return MappedKind(
            arrow.string(),
            # A number that this schema does not know is kept as it is.
            lambda number: by_number[number].name if number in by_number else str(number),
            lambda name: by_name[name].number if name in by_name else int(name),
        )
    if field.type in (_PROTOBUF_MESSAGE, _PROTOBUF_GROUP):
        return _protobuf_inner(field.message_type, within)
    types = {
        "double": arrow.float64(),
        "float": arrow.float32(),
        "int32": arrow.int32(),
        "int64": arrow.int64(),
        "uint32": arrow.int64(),
        "uint64": arrow.decimal128(20, 0),
        "bool": arrow.bool_(),
    }
    cpp = {1: "int32", 2: "int64", 3: "uint32", 4: "uint64", 5: "double", 6: "float", 7: "bool"}
    if field.cpp_type in cpp:
        kind = types[cpp[field.cpp_type]]
        if cpp[field.cpp_type] == "uint64":
            return MappedKind(kind, lambda value: value, int)
        return Kind(kind)
    # Type 9 is text, 12 bytes; both are strings of C++.
    return Kind(arrow.string() if field.type == 9 else arrow.binary())


def _protobuf_inner(descriptor: Any, within: tuple[str, ...]) -> Kind:
    json_format: Any = import_module("google.protobuf.json_format")
    message_factory: Any = import_module("google.protobuf.message_factory")
    message = message_factory.GetMessageClass(descriptor)
    if descriptor.full_name == _TIMESTAMP:

        def of_time(time: Any) -> Any:
            stamp = message()
            stamp.FromDatetime(time)
            return stamp

        return MappedKind(utc_timestamps(), lambda stamp: stamp.ToDatetime(tzinfo=UTC), of_time)
    if descriptor.full_name in within or not descriptor.fields:
        return MappedKind(
            imported_pyarrow(_NEEDED_BY).string(),
            json_format.MessageToJson,
            lambda text: json_format.Parse(text, message()),
        )
    return _message_kind(descriptor, message, within)


def _protobuf_getter(field: Any) -> Callable[[Any], Any]:
    name = field.name
    get = attrgetter(name)
    if not field.has_presence:
        return get
    return lambda value: get(value) if value.HasField(name) else None
