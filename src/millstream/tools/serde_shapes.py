"""The shapes of typed serdes as plain data, and their differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from millstream.serdes import Serde
from millstream.serdes._typed import ModelSerde, TypedSerde

#: A JSON schema without class names and annotations, with references resolved.
Shape = dict[str, Any]

_ANNOTATIONS: Final = frozenset({"title", "description", "examples", "default"})
#: The schema keywords for nested values, which are compared separately.
_STRUCTURAL_KEYWORDS: Final = frozenset(
    {"properties", "required", "items", "prefixItems", "additionalProperties", "anyOf", "enum"}
)


class ShapeDifference(NamedTuple):
    """A difference between two shapes, and whether old bytes can still be read."""

    what: str
    readable: bool


def shape_of(serde: Serde[Any] | None) -> Shape | None:
    """Return the shape of the values of a serde; None if the serde has no schema."""
    if serde is None:
        return None
    if not isinstance(serde, TypedSerde | ModelSerde):
        # A serde of windowed keys, for example, contains the serde of the keys.
        nested = (each for each in vars(serde).values() if isinstance(each, Serde))
        return next((shape for shape in map(shape_of, nested) if shape is not None), None)
    schema = serde.schema() if isinstance(serde, ModelSerde) else _schema(serde)
    if schema is None:
        return None
    shape = _plain(schema, schema.get("$defs", {}), ())
    return shape if isinstance(shape, dict) else None


def _schema(serde: TypedSerde[Any]) -> dict[str, Any] | None:
    try:
        return msgspec.json.schema(serde.of)
    except TypeError:
        return None  # a type that requires a user-defined hook


def differences(old: Shape, new: Shape, place: str = "") -> Iterator[ShapeDifference]:
    """Yield the differences that matter when old values are read with the new shape."""
    if old == new:
        return
    where = place or "the value"
    if "anyOf" in old or "anyOf" in new or _type_keywords(old) != _type_keywords(new):
        yield _compare_types(old, new, where)
        return
    yield from _fields(old, new, place)
    for inside in ("items", "additionalProperties"):
        before, after = old.get(inside), new.get(inside)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from differences(before, after, f"{place}[]" if place else "each element")
        elif before != after:
            # Old data may contain values that are no longer allowed.
            yield ShapeDifference(
                f"{where} may contain {_describe(after)} instead of {_describe(before)}", False
            )
    yield from _compare_tuple_items(old, new, where)
    if old.get("enum") != new.get("enum"):
        gone = [each for each in old.get("enum", []) if each not in new.get("enum", [])]
        what = f"no longer allow {', '.join(map(str, gone))}" if gone else "allow more values"
        yield ShapeDifference(f"{where} would {what}", not gone)


def _fields(old: Shape, new: Shape, place: str) -> Iterator[ShapeDifference]:
    before: Mapping[str, Shape] = old.get("properties", {})
    after: Mapping[str, Shape] = new.get("properties", {})
    needed, written = set(new.get("required", [])), set(old.get("required", []))
    for name in before.keys() | after.keys():
        field = f"{place}.{name}" if place else name
        if name not in before:
            need = "required" if name in needed else "optional"
            yield ShapeDifference(f"field {field} is new and {need}", name not in needed)
        elif name not in after:
            yield ShapeDifference(f"field {field} is no longer read", True)
        else:
            yield from differences(before[name], after[name], field)
            if name in needed - written:
                yield ShapeDifference(f"field {field} may be missing, but would be required", False)


def _compare_tuple_items(old: Shape, new: Shape, where: str) -> Iterator[ShapeDifference]:
    """Compare tuples, and structs that are written as arrays."""
    before, after = old.get("prefixItems", []), new.get("prefixItems", [])
    for number, (one, other) in enumerate(zip(before, after, strict=False)):
        yield from differences(one, other, f"{where}[{number}]")
    if len(before) != len(after):
        readable = new.get("minItems", 0) <= len(before)
        yield ShapeDifference(
            f"{where} has {len(after)} elements instead of {len(before)}", readable
        )


def _compare_types(old: Shape, new: Shape, where: str) -> ShapeDifference:
    """Compare different types.

    Old data is readable if each old type can be read with one of the new types.
    """
    before, after = old.get("anyOf", [old]), new.get("anyOf", [new])
    readable = all(any(_reads(each, other) for other in after) for each in before)
    return ShapeDifference(f"{where} was {_describe(old)} and would be {_describe(new)}", readable)


def _reads(old: Shape, new: Shape) -> bool:
    """Return whether values of the old type can be read with the new type."""
    if _type_keywords(old) == _type_keywords(new):
        return all(each.readable for each in differences(old, new))
    # Integers can be read as numbers.
    return new.get("type") == "number" and _type_keywords(old) == {
        **_type_keywords(new),
        "type": "integer",
    }


def _type_keywords(shape: Shape) -> Shape:
    return {name: value for name, value in shape.items() if name not in _STRUCTURAL_KEYWORDS}


def _describe(shape: Any) -> str:
    if not isinstance(shape, dict):
        return "nothing else" if shape is False else "anything"
    if "anyOf" in shape:
        return " or ".join(map(_describe, shape["anyOf"]))
    bounds = {name: value for name, value in _type_keywords(shape).items() if name != "type"}
    kind = str(shape.get("type", "one of its values"))
    return f"{kind} ({', '.join(f'{n} {v}' for n, v in bounds.items())})" if bounds else kind


def _plain(schema: Any, named: Mapping[str, Any], within: tuple[str, ...]) -> Any:
    if isinstance(schema, list):
        return [_plain(each, named, within) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        # A recursive type is identified by its distance from the reference, not by its name.
        if name in within:
            return {"type": f"the type {len(within) - within.index(name)} above"}
        return _plain(named[name], named, (*within, name))
    plain = {
        name: _plain(value, named, within)
        for name, value in schema.items()
        if name not in _ANNOTATIONS and name not in ("$defs", "properties")
    }
    if "properties" in schema:
        plain["properties"] = {
            name: _plain(value, named, within) for name, value in schema["properties"].items()
        }
    return plain
