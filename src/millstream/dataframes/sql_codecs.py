"""Decodes and encodes keys and values with Spark SQL expressions, without Python.

Spark's real-time mode does not support Python functions. Where possible, this module implements the
formats of serdes with Spark functions. Java's functions that convert between bits and
floating-point numbers are called through Spark's `reflect`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from msgspec import inspect

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
from millstream.serdes._typed import TypedSerde
from millstream.spark.columns.serde_columns import column_of

_UUID_TEXT: Final = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
#: The Java and Spark type names for floating-point numbers, by size in bytes.
_FLOATING: Final = {8: ("Double", "long", "BIGINT"), 4: ("Float", "int", "INT")}
#: The maximum number of characters of a value in an error message.
_MAX_SHOWN_CHARS: Final = 200


class NoSqlCodecError(Exception):
    """Spark functions cannot implement a serde. The message is the reason."""


@dataclass(frozen=True, slots=True)
class SqlCodec:
    """A serde as Spark SQL expressions. Each function maps one expression to another."""

    name: str
    #: Converts binary data to the serde's column. For invalid bytes, Spark returns a value that
    #: `is_value` rejects, or raises an error.
    decode: Callable[[str], str]
    encode: Callable[[str], str]
    #: Whether a non-null column is a valid value of the serde.
    is_value: Callable[[str], str]

    def validate(self, column: str, is_null: str, stage: str, what: str) -> str:
        """Return an expression that validates a decoded column, or raises an error.

        `is_null` is an expression that is true if the bytes were null. The error contains `stage`
        and `what` (`key` or `value`).
        """
        failed = _raise_error(
            f"The DataFrame function {stage} cannot read a {what}: it is not a valid {self.name}"
        )
        return f"CASE WHEN {is_null} OR {self.is_value(column)} THEN {column} ELSE {failed} END"

    def encode_validated(self, column: str, stage: str, what: str) -> str:
        """Return an expression that validates and encodes a column, or raises an error."""
        message = (
            f"The DataFrame function {stage} returned a {what} that is not a valid {self.name}: "
        )
        shown = f"left(CAST({column} AS STRING), {_MAX_SHOWN_CHARS})"
        return (
            f"CASE WHEN {column} IS NULL THEN NULL WHEN {self.is_value(column)} "
            f"THEN {self.encode(column)} ELSE {_raise_error(message, shown)} END"
        )


def sql_codec(serde: Serde[Any], *, exact: bool = False) -> SqlCodec:
    """Return a serde's SQL expressions, or raise a `NoSqlCodecError`.

    With `exact`, the encoded bytes must be identical to the serde's, as is required for keys.
    """
    if serde in _NUMBERS:
        return _number(serde)
    if serde == STRING:
        return _plain("STRING", lambda data: f"CAST({data} AS STRING)", _as_binary)
    if serde == BOOLEAN:
        return SqlCodec(
            "BOOLEAN",
            lambda data: f"CASE {data} WHEN X'01' THEN true WHEN X'00' THEN false END",
            lambda value: f"CASE WHEN {value} THEN X'01' ELSE X'00' END",
            lambda value: f"{value} IS NOT NULL",
        )
    if serde == UUID:
        return SqlCodec(
            "UUID",
            lambda data: f"lower(CAST({data} AS STRING))",
            lambda value: _as_binary(f"lower({value})"),
            lambda value: f"{value} RLIKE '{_UUID_TEXT}'",
        )
    if isinstance(serde, TypedSerde):
        return _json(serde, exact)
    if column_of(serde).serde == BYTES:
        return _plain(serde.name, lambda data: data, lambda value: value)
    raise NoSqlCodecError(f"{serde.name} needs Python")


def _plain(name: str, decode: Callable[[str], str], encode: Callable[[str], str]) -> SqlCodec:
    return SqlCodec(name, decode, encode, lambda value: "true")


def _as_binary(text: str) -> str:
    return f"CAST({text} AS BINARY)"


_NUMBERS: Final = {LONG: 8, INTEGER: 4, SHORT: 2, DOUBLE: 8, FLOAT: 4}


def _number(serde: Serde[Any]) -> SqlCodec:
    """Return the expressions for big-endian numbers of a fixed size."""
    size = _NUMBERS[serde]
    kind = column_of(serde).spark_type.simpleString()

    def integer(data: str) -> str:
        wide = f"CAST(conv(rpad(hex({data}), 16, '0'), 16, -10) AS BIGINT)"
        return f"shiftright({wide}, {64 - 8 * size})"

    def decode(data: str) -> str:
        value = f"CAST({integer(data)} AS {kind})"
        if serde in (DOUBLE, FLOAT):
            java, bits, type_name = _FLOATING[size]
            call = f"'{bits}BitsTo{java}', CAST({integer(data)} AS {type_name})"
            value = f"CAST(reflect('java.lang.{java}', {call}) AS {kind})"
        return f"CASE WHEN octet_length({data}) = {size} THEN {value} END"

    def encode(value: str) -> str:
        number = value
        if serde in (DOUBLE, FLOAT):
            java, bits, _ = _FLOATING[size]
            call = f"'{java.lower()}ToRaw{bits.capitalize()}Bits', {value}"
            number = f"reflect('java.lang.{java}', {call})"
        wide = f"lpad(hex(CAST({number} AS BIGINT)), 16, '0')"
        return f"unhex(right({wide}, {2 * size}))"

    return SqlCodec(serde.name, decode, encode, lambda value: f"{value} IS NOT NULL")


def _json(serde: TypedSerde[Any], exact: bool) -> SqlCodec:
    if serde != json_of(serde.of):
        raise NoSqlCodecError(f"{serde.name} needs Python")
    if exact:
        raise NoSqlCodecError(
            f"{serde.name} may write different bytes than Spark's to_json(), but the bytes of a "
            "key determine its partition"
        )
    info = inspect.type_info(serde.of)
    kind = _type_of(info, serde.name)
    if not kind.startswith(("STRUCT<", "ARRAY<", "MAP<")):
        raise NoSqlCodecError(f"Spark's from_json() reads structs, lists and dicts, not {kind}")
    return SqlCodec(
        serde.name,
        lambda data: f"from_json(CAST({data} AS STRING), '{kind}', map('mode', 'FAILFAST'))",
        lambda value: _as_binary(f"to_json({value}, map('ignoreNullFields', 'false'))"),
        lambda value: _is_valid(info, value, 0),
    )


_SCALARS: Final = {
    inspect.StrType: "STRING",
    inspect.IntType: "BIGINT",
    inspect.FloatType: "DOUBLE",
    inspect.BoolType: "BOOLEAN",
}


def _type_of(info: inspect.Type, where: str) -> str:
    """Return the Spark type for the JSON representation of a declared type.

    Raises a `NoSqlCodecError` if `from_json` and msgspec decode the type differently.
    """
    info = _without_none(info)
    if any(getattr(info, name, None) is not None for name in _CONSTRAINTS):
        raise NoSqlCodecError(f"{where} has constraints, which Spark does not check")
    scalar = _SCALARS.get(type(info))
    if scalar is not None:
        return scalar
    if isinstance(info, inspect.ListType):
        return f"ARRAY<{_type_of(info.item_type, f'{where}[]')}>"
    if isinstance(info, inspect.DictType) and type(info.key_type) is inspect.StrType:
        return f"MAP<STRING, {_type_of(info.value_type, f'{where}[]')}>"
    if not isinstance(info, inspect.StructType | inspect.DataclassType):
        raise NoSqlCodecError(
            f"{where} is not a str, int, float, bool, list, dict[str, ...], struct or dataclass"
        )
    if isinstance(info, inspect.StructType) and (
        info.array_like or info.forbid_unknown_fields or info.tag is not None
    ):
        raise NoSqlCodecError(
            f"{where} is tagged, is encoded as a list of its fields, or forbids unknown fields"
        )
    fields = ", ".join(_field_of(field, f"{where}.{field.name}") for field in info.fields)
    return f"STRUCT<{fields}>"


_CONSTRAINTS: Final = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern")


def _field_of(field: inspect.Field, where: str) -> str:
    if field.encode_name != field.name:
        raise NoSqlCodecError(f"{where} is named {field.encode_name!r} in JSON")
    has_default = not field.required
    if has_default and not (field.default is None and _may_be_none(field.type)):
        raise NoSqlCodecError(f"{where} has a default, which Spark does not support")
    return f"`{field.name}`: {_type_of(field.type, where)}"


def _without_none(info: inspect.Type) -> inspect.Type:
    if isinstance(info, inspect.UnionType):
        arms = [arm for arm in info.types if not isinstance(arm, inspect.NoneType)]
        if len(arms) == 1:
            return arms[0]
    return info


def _may_be_none(info: inspect.Type) -> bool:
    return isinstance(info, inspect.UnionType) and any(
        isinstance(arm, inspect.NoneType) for arm in info.types
    )


def _is_valid(info: inspect.Type, value: str, depth: int) -> str:
    """Return an expression that validates a value.

    Only optional parts of the value may be null.
    """
    if _may_be_none(info):
        return f"({value} IS NULL OR {_is_valid(_without_none(info), value, depth)})"
    parts = [f"{value} IS NOT NULL"]
    if isinstance(info, inspect.FloatType):
        # JSON has neither infinity nor NaN.
        parts.append(f"abs({value}) < double('infinity')")
    elif isinstance(info, inspect.ListType):
        parts.append(_all_valid(info.item_type, value, depth))
    elif isinstance(info, inspect.DictType):
        parts.append(_all_valid(info.value_type, f"map_values({value})", depth))
    elif isinstance(info, inspect.StructType | inspect.DataclassType):
        parts += [_is_valid(each.type, f"{value}.`{each.name}`", depth) for each in info.fields]
    return f"({' AND '.join(parts)})"


def _all_valid(info: inspect.Type, items: str, depth: int) -> str:
    item = f"_{depth}"
    return f"forall({items}, {item} -> {_is_valid(info, item, depth + 1)})"


def _raise_error(message: str, shown: str = "''") -> str:
    quoted = message.replace("\\", "\\\\").replace("'", "\\'")
    return f"raise_error(concat('{quoted}', {shown}))"
