"""Maps Avro, JSON Schema and Protobuf schemas to column types.

Types without a counterpart in Arrow, such as unions of several types and recursive types, become
JSON strings, as in `typed_columns`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC
from importlib import import_module
from operator import attrgetter
from typing import Any, Final

from millstream.serdes._registry import RegistrySerde
from millstream.spark.columns.typed_columns import (
    ColumnCodec,
    ElementwiseCodec,
    FieldCodec,
    ListCodec,
    MapCodec,
    StructCodec,
    WrappedCodec,
    item_getter,
    json_codec,
    load_arrow,
    utc_timestamps,
)

#: Protobuf's type numbers (`FieldDescriptor.type`).
_PROTOBUF_MESSAGE: Final = 11
_PROTOBUF_GROUP: Final = 10
_PROTOBUF_ENUM: Final = 14
_CPP_UINT64: Final = 4
_TIMESTAMP: Final = "google.protobuf.Timestamp"


def codec_of_schema(serde: RegistrySerde) -> ColumnCodec:
    """Return the codec for a serde's schema.

    Raises a `ValueError` if the schema is invalid or has no fields.
    """
    if not isinstance(serde.schema, str):
        return _message_codec(serde.schema.DESCRIPTOR, serde.schema, ())
    schema = json.loads(serde.schema)
    if serde.extra == "avro":
        codec = _AvroCodecs().codec(schema, ())
    else:
        codec = _json_schema_codec(schema, schema, ())
    to_dict, from_dict = serde.conversions
    if from_dict is None:
        return codec
    return WrappedCodec(codec, from_dict, to_dict)


class _AvroCodecs:
    """Creates the codecs for one Avro schema.

    Named types are stored for later references.
    """

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def codec(self, schema: Any, enclosing: tuple[str, ...], namespace: str = "") -> ColumnCodec:
        if isinstance(schema, list):
            return self._of_union(schema, enclosing, namespace)
        if isinstance(schema, str):
            return self._of_name(schema, enclosing, namespace)
        plain = _avro_logical_type(schema)
        if plain is not None:
            return plain
        arrow = load_arrow()
        kind = schema["type"]
        if kind == "array":
            return ListCodec(self.codec(schema["items"], enclosing, namespace))
        if kind == "map":
            text = ColumnCodec(arrow.string())
            return MapCodec(text, self.codec(schema["values"], enclosing, namespace))
        if kind in ("record", "error", "enum", "fixed"):
            namespace = schema.get("namespace", namespace)
            name = _full_name(schema["name"], namespace)
            self._named[name] = schema
            if kind == "record" and schema["fields"]:
                return self._of_record(schema, (*enclosing, name), name.rpartition(".")[0])
            types = {"enum": arrow.string(), "fixed": arrow.binary()}
            return ColumnCodec(types[kind]) if kind in types else json_codec()
        return self.codec(kind, enclosing, namespace)

    def _of_record(self, schema: Any, enclosing: tuple[str, ...], namespace: str) -> ColumnCodec:
        return StructCodec(
            [
                FieldCodec(
                    field["name"],
                    self.codec(field["type"], enclosing, namespace),
                    item_getter(field["name"]),
                    omit_null="default" in field and not _avro_takes_null(field["type"]),
                )
                for field in schema["fields"]
            ]
        )

    def _of_union(self, arms: list[Any], enclosing: tuple[str, ...], namespace: str) -> ColumnCodec:
        others = [arm for arm in arms if arm != "null"]
        kinds = [self.codec(arm, enclosing, namespace) for arm in others]
        if len(kinds) == 1:
            return kinds[0]
        return json_codec() if kinds else ColumnCodec(load_arrow().null())

    def _of_name(self, name: str, enclosing: tuple[str, ...], namespace: str) -> ColumnCodec:
        arrow = load_arrow()
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
            return ColumnCodec(types[name])
        full = _full_name(name, namespace)
        if full in enclosing:
            return json_codec()
        if full not in self._named:
            raise ValueError(f"the schema refers to the type '{name}', which it does not define")
        return self.codec(self._named[full], enclosing, namespace)


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _avro_takes_null(schema: Any) -> bool:
    return schema == "null" or (isinstance(schema, list) and "null" in schema)


def _avro_logical_type(schema: Mapping[str, Any]) -> ColumnCodec | None:
    """Return the codec for a logical type that fastavro converts.

    Returns None for other types.
    """
    arrow = load_arrow()
    logical = f"{schema['type']}-{schema.get('logicalType')}"
    if logical in ("bytes-decimal", "fixed-decimal"):
        return ColumnCodec(arrow.decimal128(schema["precision"], schema.get("scale", 0)))
    if logical == "string-uuid":
        return ElementwiseCodec(arrow.string(), str, str)
    types = {
        "int-date": arrow.date32(),
        "int-time-millis": arrow.time64("us"),
        "long-time-micros": arrow.time64("us"),
        "long-timestamp-millis": utc_timestamps(),
        "long-timestamp-micros": utc_timestamps(),
        "long-local-timestamp-millis": arrow.timestamp("us"),
        "long-local-timestamp-micros": arrow.timestamp("us"),
    }
    return ColumnCodec(types[logical]) if logical in types else None


def _json_schema_codec(schema: Any, root: Any, enclosing: tuple[str, ...]) -> ColumnCodec:
    arrow = load_arrow()
    if not isinstance(schema, dict):
        return json_codec()
    if "$ref" in schema:
        reference = schema["$ref"]
        found = _resolve_reference(root, reference)
        if found is None or reference in enclosing:
            return json_codec()
        return _json_schema_codec(found, root, (*enclosing, reference))
    for word in ("anyOf", "oneOf"):
        arms = [arm for arm in schema.get(word, ()) if arm != {"type": "null"}]
        if arms:
            return _json_schema_codec(arms[0], root, enclosing) if len(arms) == 1 else json_codec()
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
        return ColumnCodec(plain[kind])
    if kind == "array" and "items" in schema:
        return ListCodec(_json_schema_codec(schema["items"], root, enclosing))
    if kind == "object" and schema.get("properties"):
        return _json_object_codec(schema, root, enclosing)
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        value = _json_schema_codec(schema["additionalProperties"], root, enclosing)
        return MapCodec(ColumnCodec(arrow.string()), value)
    return json_codec()


def _json_object_codec(schema: Any, root: Any, enclosing: tuple[str, ...]) -> ColumnCodec:
    required = schema.get("required", ())
    return StructCodec(
        [
            FieldCodec(
                name,
                _json_schema_codec(inner, root, enclosing),
                item_getter(name),
                # None omits an optional field, because null would be a different value.
                omit_null=name not in required,
            )
            for name, inner in schema["properties"].items()
        ]
    )


def _resolve_reference(root: Any, reference: str) -> Any:
    """Resolve a reference inside the schema; return None for external references."""
    if not reference.startswith("#/"):
        return None
    found = root
    for part in reference[2:].split("/"):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _message_codec(descriptor: Any, message: Any, enclosing: tuple[str, ...]) -> ColumnCodec:
    """Return the codec for a Protobuf message; `message` is the message's class."""
    if not descriptor.fields:
        raise ValueError(f"the message {descriptor.full_name} has no fields")
    enclosing = (*enclosing, descriptor.full_name)
    fields = [
        FieldCodec(field.name, _protobuf_codec(field, enclosing), _protobuf_getter(field))
        for field in descriptor.fields
    ]

    def create(row: Mapping[str, Any]) -> Any:
        return message(**{name: value for name, value in row.items() if value is not None})

    return WrappedCodec(StructCodec(fields), create)


def _protobuf_codec(field: Any, enclosing: tuple[str, ...]) -> ColumnCodec:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        key, value = inner.fields_by_name["key"], inner.fields_by_name["value"]
        return WrappedCodec(
            MapCodec(_protobuf_scalar(key, enclosing), _protobuf_scalar(value, enclosing)), dict
        )
    kind = _protobuf_scalar(field, enclosing)
    return ListCodec(kind) if field.is_repeated else kind


def _protobuf_scalar(field: Any, enclosing: tuple[str, ...]) -> ColumnCodec:
    arrow = load_arrow()
    if field.type == _PROTOBUF_ENUM:
        by_number = field.enum_type.values_by_number
        by_name = field.enum_type.values_by_name
        return ElementwiseCodec(
            arrow.string(),
            # A number that the schema does not define becomes its decimal text.
            lambda number: by_number[number].name if number in by_number else str(number),
            lambda name: by_name[name].number if name in by_name else int(name),
        )
    if field.type in (_PROTOBUF_MESSAGE, _PROTOBUF_GROUP):
        return _protobuf_inner(field.message_type, enclosing)
    # The keys are the numbers of C++ types (`FieldDescriptor.cpp_type`).
    types = {
        1: arrow.int32(),
        2: arrow.int64(),
        3: arrow.int64(),  # uint32
        5: arrow.float64(),
        6: arrow.float32(),
        7: arrow.bool_(),
    }
    if field.cpp_type == _CPP_UINT64:
        return ElementwiseCodec(arrow.decimal128(20, 0), lambda value: value, int)
    if field.cpp_type in types:
        return ColumnCodec(types[field.cpp_type])
    # Type 9 is string and 12 is bytes; both are C++ strings.
    return ColumnCodec(arrow.string() if field.type == 9 else arrow.binary())


def _protobuf_inner(descriptor: Any, enclosing: tuple[str, ...]) -> ColumnCodec:
    json_format: Any = import_module("google.protobuf.json_format")
    message_factory: Any = import_module("google.protobuf.message_factory")
    message = message_factory.GetMessageClass(descriptor)
    if descriptor.full_name == _TIMESTAMP:

        def of_time(time: Any) -> Any:
            stamp = message()
            stamp.FromDatetime(time)
            return stamp

        return ElementwiseCodec(
            utc_timestamps(), lambda stamp: stamp.ToDatetime(tzinfo=UTC), of_time
        )
    if descriptor.full_name in enclosing or not descriptor.fields:
        return ElementwiseCodec(
            load_arrow().string(),
            json_format.MessageToJson,
            lambda text: json_format.Parse(text, message()),
        )
    return _message_codec(descriptor, message, enclosing)


def _protobuf_getter(field: Any) -> Callable[[Any], Any]:
    name = field.name
    get = attrgetter(name)
    if not field.has_presence:
        return get
    return lambda value: get(value) if value.HasField(name) else None
