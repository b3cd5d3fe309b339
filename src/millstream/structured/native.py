"""Keys and values read and written by expressions of Spark SQL alone, without Python.

Spark's real-time mode takes no Python function. What the bytes of a serde are is said here in
Spark's own functions, for the serdes of which that can be said. Java's functions that turn a
number's bits into a floating-point number are called through Spark's `reflect`.
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
#: As Java and Spark call the floating-point number of so many bytes.
_FLOATING: Final = {8: ("Double", "long", "BIGINT"), 4: ("Float", "int", "INT")}
#: More of a value is not put into an error.
_MOST_SHOWN: Final = 200


class NotNativeError(Exception):
    """Spark's own functions cannot read or write what a serde does; the text says why not."""


@dataclass(frozen=True, slots=True)
class NativeColumn:
    """A serde in expressions of Spark SQL, each a function from one expression to another.

    Args:
        name: of the serde.
        decode: binary → the serde's column; of what is not its bytes, a value that `is_value`
            refuses, or an error.
        encode: the serde's column → binary.
        is_value: the serde's column, not null → whether the serde has such a value.
    """

    name: str
    decode: Callable[[str], str]
    encode: Callable[[str], str]
    is_value: Callable[[str], str]

    def checked(self, column: str, is_null: str, stage: str, what: str) -> str:
        """A decoded column, or an error where it is no value of the serde.

        Args:
            column: the decoded one.
            is_null: whether there were no bytes.
            stage: the DataFrame function, for the error.
            what: `key` or `value`.
        """
        failed = _raised(f"The DataFrame function {stage} cannot read a {what}: no {self.name}")
        return f"CASE WHEN {is_null} OR {self.is_value(column)} THEN {column} ELSE {failed} END"

    def bytes_of(self, column: str, stage: str, what: str) -> str:
        """The bytes of a column, or an error where it is no value of the serde."""
        told = f"The DataFrame function {stage} gave a {what} that is no {self.name}: "
        shown = f"left(CAST({column} AS STRING), {_MOST_SHOWN})"
        return (
            f"CASE WHEN {column} IS NULL THEN NULL WHEN {self.is_value(column)} "
            f"THEN {self.encode(column)} ELSE {_raised(told, shown)} END"
        )


def native_column(serde: Serde[Any], *, exact: bool = False) -> NativeColumn:
    """How Spark itself reads and writes what a serde does.

    Args:
        serde: the serde.
        exact: whether equal values must have the serde's own bytes, as keys must.

    Raises:
        NotNativeError: it cannot; why not.

    Example:
        >>> native_column(STRING).decode("key")
        'CAST(key AS STRING)'
    """
    if serde in _NUMBERS:
        return _number(serde)
    if serde == STRING:
        return _plain("STRING", lambda data: f"CAST({data} AS STRING)", _as_binary)
    if serde == BOOLEAN:
        return NativeColumn(
            "BOOLEAN",
            lambda data: f"CASE {data} WHEN X'01' THEN true WHEN X'00' THEN false END",
            lambda value: f"CASE WHEN {value} THEN X'01' ELSE X'00' END",
            lambda value: f"{value} IS NOT NULL",
        )
    if serde == UUID:
        return NativeColumn(
            "UUID",
            lambda data: f"lower(CAST({data} AS STRING))",
            lambda value: _as_binary(f"lower({value})"),
            lambda value: f"{value} RLIKE '{_UUID_TEXT}'",
        )
    if isinstance(serde, TypedSerde):
        return _json(serde, exact)
    if column_of(serde).serde == BYTES:
        return _plain(serde.name, lambda data: data, lambda value: value)
    raise NotNativeError(f"{serde.name} is read by Python")


def _plain(name: str, decode: Callable[[str], str], encode: Callable[[str], str]) -> NativeColumn:
    return NativeColumn(name, decode, encode, lambda value: "true")


def _as_binary(text: str) -> str:
    return f"CAST({text} AS BINARY)"


_NUMBERS: Final = {LONG: 8, INTEGER: 4, SHORT: 2, DOUBLE: 8, FLOAT: 4}


def _number(serde: Serde[Any]) -> NativeColumn:
    """Big-endian numbers of a fixed size."""
    size = _NUMBERS[serde]
    kind = column_of(serde).spark_type.simpleString()

    def whole(data: str) -> str:
        wide = f"CAST(conv(rpad(hex({data}), 16, '0'), 16, -10) AS BIGINT)"
        return f"shiftright({wide}, {64 - 8 * size})"

    def decode(data: str) -> str:
        value = f"CAST({whole(data)} AS {kind})"
        if serde in (DOUBLE, FLOAT):
            java, bits, type_name = _FLOATING[size]
            call = f"'{bits}BitsTo{java}', CAST({whole(data)} AS {type_name})"
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

    return NativeColumn(serde.name, decode, encode, lambda value: f"{value} IS NOT NULL")


def _json(serde: TypedSerde[Any], exact: bool) -> NativeColumn:
    if serde != json_of(serde.of):
        raise NotNativeError(f"{serde.name} is read by Python")
    if exact:
        raise NotNativeError(
            f"{serde.name} may write other bytes than Spark's to_json(), and a key's bytes say "
            "where it belongs"
        )
    info = inspect.type_info(serde.of)
    kind = _type_of(info, serde.name)
    if not kind.startswith(("STRUCT<", "ARRAY<", "MAP<")):
        raise NotNativeError(f"Spark's from_json() reads structs, lists and dicts, not {kind}")
    return NativeColumn(
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
    """The type of Spark of what JSON of a declared type is.

    Raises:
        NotNativeError: `from_json` reads it otherwise than msgspec.
    """
    info = _present(info)
    if any(getattr(info, name, None) is not None for name in _CONSTRAINTS):
        raise NotNativeError(f"{where} has bounds, which Spark does not check")
    scalar = _SCALARS.get(type(info))
    if scalar is not None:
        return scalar
    if isinstance(info, inspect.ListType):
        return f"ARRAY<{_type_of(info.item_type, f'{where}[]')}>"
    if isinstance(info, inspect.DictType) and type(info.key_type) is inspect.StrType:
        return f"MAP<STRING, {_type_of(info.value_type, f'{where}[]')}>"
    if not isinstance(info, inspect.StructType | inspect.DataclassType):
        raise NotNativeError(
            f"{where} is no str, int, float, bool, list, dict[str, ...], struct or dataclass"
        )
    if isinstance(info, inspect.StructType) and (
        info.array_like or info.forbid_unknown_fields or info.tag is not None
    ):
        raise NotNativeError(f"{where} is tagged, a list of its fields, or forbids unknown fields")
    fields = ", ".join(_field_of(field, f"{where}.{field.name}") for field in info.fields)
    return f"STRUCT<{fields}>"


_CONSTRAINTS: Final = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern")


def _field_of(field: inspect.Field, where: str) -> str:
    if field.encode_name != field.name:
        raise NotNativeError(f"{where} is called {field.encode_name!r} in JSON")
    has_default = not field.required
    if has_default and not (field.default is None and _may_be_none(field.type)):
        raise NotNativeError(f"{where} has a default, which Spark does not know")
    return f"`{field.name}`: {_type_of(field.type, where)}"


def _present(info: inspect.Type) -> inspect.Type:
    """The type of what is not None."""
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
    """Whether an expression is a value of a type: nothing is null that must not be."""
    if _may_be_none(info):
        return f"({value} IS NULL OR {_is_valid(_present(info), value, depth)})"
    parts = [f"{value} IS NOT NULL"]
    if isinstance(info, inspect.FloatType):
        # JSON has no other numbers.
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


def _raised(told: str, shown: str = "''") -> str:
    quoted = told.replace("\\", "\\\\").replace("'", "\\'")
    return f"raise_error(concat('{quoted}', {shown}))"
