"""The fields of typed serdes as plain data, and what of them a new version reads otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from millstream.serdes import Serde
from millstream.serdes._models import ModelSerde
from millstream.serdes._typed import TypedSerde

#: A JSON schema without names of classes and words for people, written out at each place.
Shape = dict[str, Any]

_WORDS: Final = frozenset({"title", "description", "examples", "default"})
#: What a schema says of the values that stand in it, and is compared by itself.
_INSIDE: Final = frozenset(
    {"properties", "required", "items", "prefixItems", "additionalProperties", "anyOf", "enum"}
)


class Difference(NamedTuple):
    """A difference of two shapes: where, what, and whether old bytes can be read all the same."""

    what: str
    readable: bool


def shape_of(serde: Serde[Any] | None) -> Shape | None:
    """The shape of what a serde writes; None where it does not say."""
    if serde is None:
        return None
    if not isinstance(serde, TypedSerde | ModelSerde):
        # That of windowed keys, say, holds the serde of the keys.
        held = (each for each in vars(serde).values() if isinstance(each, Serde))
        return next((shape for shape in map(shape_of, held) if shape is not None), None)
    schema = serde.schema() if isinstance(serde, ModelSerde) else _schema(serde)
    if schema is None:
        return None
    shape = _plain(schema, schema.get("$defs", {}), ())
    return shape if isinstance(shape, dict) else None


def _schema(serde: TypedSerde[Any]) -> dict[str, Any] | None:
    try:
        return msgspec.json.schema(serde.of)
    except TypeError:
        return None  # A type that only a hook of the user's can write.


def differences(old: Shape, new: Shape, place: str = "") -> Iterator[Difference]:
    """What is different about two shapes, where values of the old one are read by the new one."""
    if old == new:
        return
    where = place or "the whole"
    if "anyOf" in old or "anyOf" in new or _rest(old) != _rest(new):
        yield _arms(old, new, where)
        return
    yield from _fields(old, new, place)
    for inside in ("items", "additionalProperties"):
        was, is_ = old.get(inside), new.get(inside)
        if isinstance(was, dict) and isinstance(is_, dict):
            yield from differences(was, is_, f"{place}[]" if place else "each element")
        elif was != is_:
            # What may not stand there any more may have been written.
            yield Difference(f"{where} may hold {_told(is_)} instead of {_told(was)}", False)
    yield from _places(old, new, where)
    if old.get("enum") != new.get("enum"):
        gone = [each for each in old.get("enum", []) if each not in new.get("enum", [])]
        what = f"without {', '.join(map(str, gone))}" if gone else "with more values than before"
        yield Difference(f"{where} would be {what}", not gone)


def _fields(old: Shape, new: Shape, place: str) -> Iterator[Difference]:
    before: Mapping[str, Shape] = old.get("properties", {})
    after: Mapping[str, Shape] = new.get("properties", {})
    needed, written = set(new.get("required", [])), set(old.get("required", []))
    for name in before.keys() | after.keys():
        field = f"{place}.{name}" if place else name
        if name not in before:
            need = "which it needs" if name in needed else "which it does not need"
            yield Difference(f"field {field} is new, {need}", name not in needed)
        elif name not in after:
            yield Difference(f"field {field} is not read any more", True)
        else:
            yield from differences(before[name], after[name], field)
            if name in needed - written:
                yield Difference(f"field {field} may be missing, and would be needed", False)


def _places(old: Shape, new: Shape, where: str) -> Iterator[Difference]:
    """Of tuples, and of structs that are written as arrays."""
    was, is_ = old.get("prefixItems", []), new.get("prefixItems", [])
    for number, (one, other) in enumerate(zip(was, is_, strict=False)):
        yield from differences(one, other, f"{where}[{number}]")
    if len(was) != len(is_):
        readable = new.get("minItems", 0) <= len(was)
        yield Difference(f"{where} has {len(is_)} places instead of {len(was)}", readable)


def _arms(old: Shape, new: Shape, where: str) -> Difference:
    """Types that are not the same: readable if each of the old ones is among the new ones."""
    was, is_ = old.get("anyOf", [old]), new.get("anyOf", [new])
    readable = all(any(_reads(each, other) for other in is_) for each in was)
    return Difference(f"{where} was {_told(old)} and would be {_told(new)}", readable)


def _reads(old: Shape, new: Shape) -> bool:
    """Whether one type reads another."""
    if _rest(old) == _rest(new):
        return all(each.readable for each in differences(old, new))
    # Whole numbers are read as numbers.
    return new.get("type") == "number" and _rest(old) == {**_rest(new), "type": "integer"}


def _rest(shape: Shape) -> Shape:
    return {name: value for name, value in shape.items() if name not in _INSIDE}


def _told(shape: Any) -> str:
    if not isinstance(shape, dict):
        return "nothing else" if shape is False else "anything"
    if "anyOf" in shape:
        return " or ".join(map(_told, shape["anyOf"]))
    bounds = {name: value for name, value in _rest(shape).items() if name != "type"}
    kind = str(shape.get("type", "one of its values"))
    return f"{kind} ({', '.join(f'{n} {v}' for n, v in bounds.items())})" if bounds else kind


def _plain(schema: Any, named: Mapping[str, Any], within: tuple[str, ...]) -> Any:
    if isinstance(schema, list):
        return [_plain(each, named, within) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        # A type that holds itself is told by how far up it stands, and so without its name.
        if name in within:
            return {"type": f"the type {len(within) - within.index(name)} above"}
        return _plain(named[name], named, (*within, name))
    plain = {
        name: _plain(value, named, within)
        for name, value in schema.items()
        if name not in _WORDS and name not in ("$defs", "properties")
    }
    if "properties" in schema:
        plain["properties"] = {
            name: _plain(value, named, within) for name, value in schema["properties"].items()
        }
    return plain
