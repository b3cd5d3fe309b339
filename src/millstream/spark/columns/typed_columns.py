"""Python's types as types of Arrow: what a column of such values is, there and back.

A `Kind` knows one type. The kinds of declared types (structs, dataclasses, typed dicts, and
whatever else msgspec knows) are made by `kind_of_type`. What Arrow has no type for, such as unions
and types that hold themselves, is text of JSON.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Final

import msgspec
from msgspec import inspect

from millstream.operators.arrow import imported_pyarrow

_NEEDED_BY: Final = "Serdes as columns of Spark"
#: Decimals without a declared precision, as Spark takes them.
_PRECISION: Final = 38
_SCALE: Final = 18


class Kind:
    """How values of one type are a column. This one: as Arrow itself takes them.

    Args:
        arrow_type: the type of the column, a `pyarrow.DataType`.
    """

    def __init__(self, arrow_type: Any) -> None:
        self.arrow_type = arrow_type

    def array(self, values: Sequence[Any]) -> Any:
        """The column of these values, a `pyarrow.Array`.

        Raises:
            ValueError, TypeError, OverflowError: a value does not fit the type.
        """
        return imported_pyarrow(_NEEDED_BY).array(values, self.arrow_type)

    def values(self, array: Any) -> list[Any]:
        """The values of a column, of builtin types, from which `msgspec.convert` makes others."""
        listed: list[Any] = array.to_pylist()
        return listed


class MappedKind(Kind):
    """Values that are converted one by one, None excepted."""

    def __init__(
        self, arrow_type: Any, there: Callable[[Any], Any], back: Callable[[Any], Any]
    ) -> None:
        super().__init__(arrow_type)
        self._there = there
        self._back = back

    def array(self, values: Sequence[Any]) -> Any:
        there = self._there
        return super().array([None if value is None else there(value) for value in values])

    def values(self, array: Any) -> list[Any]:
        back = self._back
        return [None if value is None else back(value) for value in array.to_pylist()]


class ConvertedKind(Kind):
    """Values that another kind takes, and that are made of what it gives.

    Args:
        inner: the other kind.
        back: makes a value of what `inner` gives.
        there: makes what `inner` takes of a value; None if it takes the value itself.
    """

    def __init__(
        self,
        inner: Kind,
        back: Callable[[Any], Any],
        there: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(inner.arrow_type)
        self._inner = inner
        self._back = back
        self._there = there

    def array(self, values: Sequence[Any]) -> Any:
        there = self._there
        if there is not None:
            values = [None if value is None else there(value) for value in values]
        return self._inner.array(values)

    def values(self, array: Any) -> list[Any]:
        back = self._back
        return [None if value is None else back(value) for value in self._inner.values(array)]


class ListKind(Kind):
    """Lists, sets and tuples of any length."""

    def __init__(self, element: Kind) -> None:
        arrow = imported_pyarrow(_NEEDED_BY)
        super().__init__(arrow.list_(element.arrow_type))
        self._element = element

    def array(self, values: Sequence[Any]) -> Any:
        arrow = imported_pyarrow(_NEEDED_BY)
        flat = [item for value in values if value is not None for item in value]
        offsets = _offsets(arrow, values)
        return arrow.ListArray.from_arrays(offsets, self._element.array(flat), type=self.arrow_type)

    def values(self, array: Any) -> list[Any]:
        items = self._element.values(array.values)
        return [None if cut is None else items[cut] for cut in _cuts(array)]


class MapKind(Kind):
    """Dicts."""

    def __init__(self, key: Kind, value: Kind) -> None:
        arrow = imported_pyarrow(_NEEDED_BY)
        super().__init__(arrow.map_(key.arrow_type, value.arrow_type))
        self._key = key
        self._value = value

    def array(self, values: Sequence[Any]) -> Any:
        arrow = imported_pyarrow(_NEEDED_BY)
        keys = [key for value in values if value is not None for key in value]
        items = [item for value in values if value is not None for item in value.values()]
        return arrow.MapArray.from_arrays(
            _offsets(arrow, values), self._key.array(keys), self._value.array(items)
        ).cast(self.arrow_type)

    def values(self, array: Any) -> list[Any]:
        keys, items = self._key.values(array.keys), self._value.values(array.items)
        return [
            None if cut is None else dict(zip(keys[cut], items[cut], strict=True))
            for cut in _cuts(array)
        ]


class Field:
    """A field of a struct.

    Args:
        name: of the column.
        kind: of its values.
        get: takes it out of a struct.
        written: what msgspec calls it, in `values`.
        may_be_none: whether None is a value of it; where it is not, and it has a default, a null
            leaves it out.
        has_default: whether it may be left out.
    """

    def __init__(
        self,
        name: str,
        kind: Kind,
        get: Callable[[Any], Any],
        *,
        written: str | None = None,
        may_be_none: bool = True,
        has_default: bool = False,
    ) -> None:
        self.name = name
        self.kind = kind
        self.get = get
        self.written = written or name
        self.is_left_out_as_null = has_default and not may_be_none


class StructKind(Kind):
    """Values with fields.

    Args:
        fields: its fields; a struct without any has no type in Arrow.
        extra: what a value has beside them, such as its tag.
        as_list: whether msgspec takes such a value as a list of its fields.
    """

    def __init__(
        self,
        fields: Sequence[Field],
        *,
        extra: Mapping[str, Any] | None = None,
        as_list: bool = False,
    ) -> None:
        arrow = imported_pyarrow(_NEEDED_BY)
        super().__init__(arrow.struct([(field.name, field.kind.arrow_type) for field in fields]))
        self._fields = fields
        self._extra = extra or {}
        self._as_list = as_list

    def array(self, values: Sequence[Any]) -> Any:
        arrow = imported_pyarrow(_NEEDED_BY)
        missing = [value is None for value in values]
        is_any_missing = any(missing)
        columns = []
        for field in self._fields:
            get = field.get
            if is_any_missing:
                column = [None if value is None else get(value) for value in values]
            else:
                column = list(map(get, values))
            columns.append(_of_field(field, column))
        mask = arrow.array(missing, arrow.bool_()) if is_any_missing else None
        return arrow.StructArray.from_arrays(columns, fields=list(self.arrow_type), mask=mask)

    def values(self, array: Any) -> list[Any]:
        columns = [
            field.kind.values(column)
            for field, column in zip(self._fields, array.flatten(), strict=True)
        ]
        present = array.is_valid().to_pylist()
        rows = zip(*columns, strict=True)
        return [
            self._built(row) if is_there else None
            for row, is_there in zip(rows, present, strict=True)
        ]

    def _built(self, row: tuple[Any, ...]) -> Any:
        if self._as_list:
            return [*self._extra.values(), *row]
        built = dict(self._extra)
        for field, value in zip(self._fields, row, strict=True):
            if value is not None or not field.is_left_out_as_null:
                built[field.written] = value
        return built


def _of_field(field: Field, values: Sequence[Any]) -> Any:
    try:
        return field.kind.array(values)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"field '{field.name}': {error}") from error


def _offsets(arrow: Any, values: Sequence[Any]) -> Any:
    """Where each list begins, with a null for one that is none, as Arrow takes it."""
    offsets: list[int | None] = []
    place = 0
    for value in values:
        if value is None:
            offsets.append(None)
        else:
            offsets.append(place)
            place += len(value)
    offsets.append(place)
    return arrow.array(offsets, arrow.int32())


def _cuts(array: Any) -> list[slice | None]:
    """Where each list of an array lies in the array of all their elements."""
    offsets = array.offsets.to_pylist()
    return [
        slice(start, end) if is_there else None
        for start, end, is_there in zip(
            offsets[:-1], offsets[1:], array.is_valid().to_pylist(), strict=True
        )
    ]


def json_text(value: Any) -> str:
    """A value of whatever type as text of JSON."""
    return msgspec.json.encode(value, enc_hook=str).decode()


def json_kind() -> Kind:
    """Values that Arrow has no type for."""
    return MappedKind(imported_pyarrow(_NEEDED_BY).string(), json_text, msgspec.json.decode)


def uuid_kind() -> Kind:
    """UUIDs, as their text: msgspec makes them of it."""
    return MappedKind(imported_pyarrow(_NEEDED_BY).string(), str, str)


def utc_timestamps() -> Any:
    """The type of points in time: Spark's `TimestampType`."""
    return imported_pyarrow(_NEEDED_BY).timestamp("us", "UTC")


def kind_of_type(of: Any) -> Kind:
    """The kind of a declared type, whatever `json_of` and `msgpack_of` take.

    Example:
        >>> print(kind_of_type(list[int]).arrow_type)
        list<item: int64>
    """
    return _of_info(inspect.type_info(of), ())


def _of_info(info: Any, within: tuple[Any, ...]) -> Kind:
    arrow = imported_pyarrow(_NEEDED_BY)
    if isinstance(info, inspect.Metadata):
        return _of_info(info.type, within)
    plain = _plain_type(arrow, info)
    if plain is not None:
        return Kind(plain)
    if isinstance(info, inspect.UUIDType):
        return uuid_kind()
    if isinstance(info, inspect.EnumType):
        return _of_values([member.value for member in info.cls])
    if isinstance(info, inspect.LiteralType):
        return _of_values(info.values)
    if isinstance(info, inspect.UnionType):
        arms = [arm for arm in info.types if not isinstance(arm, inspect.NoneType)]
        kinds = {type(arm) for arm in arms}
        if kinds == {inspect.IntType, inspect.FloatType}:
            return Kind(arrow.float64())
        return _of_info(arms[0], within) if len(arms) == 1 else json_kind()
    if isinstance(
        info,
        inspect.ListType
        | inspect.VarTupleType
        | inspect.SetType
        | inspect.FrozenSetType
        | inspect.CollectionType,
    ):
        return ListKind(_of_info(info.item_type, within))
    if isinstance(info, inspect.DictType):
        return MapKind(_of_info(info.key_type, within), _of_info(info.value_type, within))
    if isinstance(info, inspect.TupleType) and info.item_types:
        # As Spark calls the fields of tuples.
        places = [
            Field(f"_{number + 1}", _of_info(item, within), itemgetter(number))
            for number, item in enumerate(info.item_types)
        ]
        return StructKind(places, as_list=True)
    return _of_fields(info, within) or json_kind()


def _plain_type(arrow: Any, info: Any) -> Any:
    """The type of Arrow for values that it takes as they are; None if they are none."""
    if isinstance(info, inspect.DateTimeType):
        return arrow.timestamp("us") if info.tz is False else utc_timestamps()
    types = {
        inspect.NoneType: arrow.null(),
        inspect.BoolType: arrow.bool_(),
        inspect.IntType: arrow.int64(),
        inspect.FloatType: arrow.float64(),
        inspect.StrType: arrow.string(),
        inspect.BytesType: arrow.binary(),
        inspect.ByteArrayType: arrow.binary(),
        inspect.MemoryViewType: arrow.binary(),
        inspect.DateType: arrow.date32(),
        inspect.TimeType: arrow.time64("us"),
        inspect.TimeDeltaType: arrow.duration("us"),
        inspect.DecimalType: arrow.decimal128(_PRECISION, _SCALE),
    }
    return types.get(type(info))


def _of_values(values: Sequence[Any]) -> Kind:
    """Enums and literals: their values, if these are all text or all whole numbers."""
    arrow = imported_pyarrow(_NEEDED_BY)
    kinds = {type(value) for value in values if value is not None}
    if kinds == {str}:
        return MappedKind(arrow.string(), _value_of, str)
    if kinds == {int}:
        return MappedKind(arrow.int64(), _value_of, int)
    return json_kind()


def _value_of(value: Any) -> Any:
    return value.value if isinstance(value, enum.Enum) else value


def _of_fields(info: Any, within: tuple[Any, ...]) -> Kind | None:
    """Structs, dataclasses, typed dicts and named tuples; None for others, and for empty ones."""
    known = (
        inspect.StructType | inspect.DataclassType | inspect.TypedDictType | inspect.NamedTupleType
    )
    if not isinstance(info, known) or not info.fields or info.cls in within:
        return None
    within = (*within, info.cls)
    is_dict = isinstance(info, inspect.TypedDictType)
    fields = [
        Field(
            field.name,
            _of_info(field.type, within),
            _getter(field.name) if is_dict else attrgetter(field.name),
            written=field.encode_name,
            may_be_none=_takes_none(field.type),
            has_default=not field.required,
        )
        for field in info.fields
    ]
    extra: dict[str, Any] = {}
    as_list = isinstance(info, inspect.NamedTupleType)
    if isinstance(info, inspect.StructType):
        as_list = info.array_like
        if info.tag_field is not None:
            extra = {info.tag_field: info.tag}
    return StructKind(fields, extra=extra, as_list=as_list)


def _getter(name: str) -> Callable[[Any], Any]:
    """Of a typed dict, whose keys may be missing."""
    return lambda value: value.get(name)


def _takes_none(info: Any) -> bool:
    if isinstance(info, inspect.Metadata):
        return _takes_none(info.type)
    if isinstance(info, inspect.UnionType):
        return any(map(_takes_none, info.types))
    return isinstance(info, inspect.NoneType | inspect.AnyType)
