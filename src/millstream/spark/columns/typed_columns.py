"""Converts values of Python types to Arrow columns and back.

A `ColumnCodec` converts one type. `codec_of_type` creates the codecs of declared types (structs,
dataclasses, typed dicts, and other types that msgspec supports). Types without a counterpart in
Arrow, such as unions and recursive types, become JSON strings.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter, itemgetter
from typing import Any, Final

import msgspec
from msgspec import inspect

from millstream.operators.arrow import import_pyarrow


def load_arrow() -> Any:
    """Return pyarrow, or raise an `ImportError` that explains how to install it."""
    return import_pyarrow("Serdes as columns of Spark")


class ColumnCodec:
    """Converts values of one type to an Arrow column and back.

    This base class uses Arrow's own conversion.
    """

    def __init__(self, arrow_type: Any) -> None:
        self.arrow_type = arrow_type

    def array(self, values: Sequence[Any]) -> Any:
        """Convert values to a `pyarrow.Array`.

        Raises a `ValueError`, `TypeError` or `OverflowError` if a value does not fit the type.
        """
        return load_arrow().array(values, self.arrow_type)

    def values(self, array: Any) -> list[Any]:
        """Convert a column to built-in values, which `msgspec.convert` accepts."""
        return list(array.to_pylist())


class ElementwiseCodec(ColumnCodec):
    """Converts values individually; None stays None."""

    def __init__(
        self, arrow_type: Any, to_arrow: Callable[[Any], Any], from_arrow: Callable[[Any], Any]
    ) -> None:
        super().__init__(arrow_type)
        self._to_arrow = to_arrow
        self._from_arrow = from_arrow

    def array(self, values: Sequence[Any]) -> Any:
        to_arrow = self._to_arrow
        return super().array([None if value is None else to_arrow(value) for value in values])

    def values(self, array: Any) -> list[Any]:
        from_arrow = self._from_arrow
        return [None if value is None else from_arrow(value) for value in array.to_pylist()]


class WrappedCodec(ColumnCodec):
    """Converts values before and after another codec.

    `to_arrow` is None if the inner codec accepts the values without a conversion.
    """

    def __init__(
        self,
        inner: ColumnCodec,
        from_arrow: Callable[[Any], Any],
        to_arrow: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(inner.arrow_type)
        self._inner = inner
        self._from_arrow = from_arrow
        self._to_arrow = to_arrow

    def array(self, values: Sequence[Any]) -> Any:
        to_arrow = self._to_arrow
        if to_arrow is not None:
            values = [None if value is None else to_arrow(value) for value in values]
        return self._inner.array(values)

    def values(self, array: Any) -> list[Any]:
        from_arrow = self._from_arrow
        return [None if value is None else from_arrow(value) for value in self._inner.values(array)]


class ListCodec(ColumnCodec):
    """Converts lists, sets and tuples of variable length."""

    def __init__(self, element: ColumnCodec) -> None:
        arrow = load_arrow()
        super().__init__(arrow.list_(element.arrow_type))
        self._element = element

    def array(self, values: Sequence[Any]) -> Any:
        flat = self._element.array(
            [item for value in values if value is not None for item in value]
        )
        arrays = load_arrow().ListArray
        return arrays.from_arrays(_offsets(values), flat, type=self.arrow_type)

    def values(self, array: Any) -> list[Any]:
        items = self._element.values(array.values)
        return [None if span is None else items[span] for span in _slices(array)]


class MapCodec(ColumnCodec):
    def __init__(self, key: ColumnCodec, value: ColumnCodec) -> None:
        arrow = load_arrow()
        super().__init__(arrow.map_(key.arrow_type, value.arrow_type))
        self._key = key
        self._value = value

    def array(self, values: Sequence[Any]) -> Any:
        keys = [key for value in values if value is not None for key in value]
        items = [item for value in values if value is not None for item in value.values()]
        columns = self._key.array(keys), self._value.array(items)
        return load_arrow().MapArray.from_arrays(_offsets(values), *columns).cast(self.arrow_type)

    def values(self, array: Any) -> list[Any]:
        keys, items = self._key.values(array.keys), self._value.values(array.items)
        return [
            None if span is None else dict(zip(keys[span], items[span], strict=True))
            for span in _slices(array)
        ]


@dataclass(frozen=True, slots=True)
class FieldCodec:
    name: str
    codec: ColumnCodec
    #: Returns the field's value from a struct.
    get: Callable[[Any], Any]
    #: The field's encoded name in built-in values (as in msgspec); None if it is `name`.
    encoded_name: str | None = None
    #: Whether built-in values omit a null, for a field that may be missing but not None.
    omit_null: bool = False


class StructCodec(ColumnCodec):
    """Converts values with at least one field.

    Spark has no use for a struct without fields.

    `extra` contains additional items of a built-in value, such as the struct's tag. `as_list` is
    True if the built-in value is a list of the fields.
    """

    def __init__(
        self,
        fields: Sequence[FieldCodec],
        *,
        extra: Mapping[str, Any] | None = None,
        as_list: bool = False,
    ) -> None:
        arrow = load_arrow()
        super().__init__(arrow.struct([(field.name, field.codec.arrow_type) for field in fields]))
        self._fields = fields
        self._extra = extra or {}
        self._as_list = as_list

    def array(self, values: Sequence[Any]) -> Any:
        arrow = load_arrow()
        missing = [value is None for value in values]
        is_any_missing = any(missing)
        columns = []
        for field in self._fields:
            get = field.get
            if is_any_missing:
                column = [None if value is None else get(value) for value in values]
            else:
                column = list(map(get, values))
            columns.append(_field_array(field, column))
        mask = arrow.array(missing, arrow.bool_()) if is_any_missing else None
        return arrow.StructArray.from_arrays(columns, fields=list(self.arrow_type), mask=mask)

    def values(self, array: Any) -> list[Any]:
        columns = [
            field.codec.values(column)
            for field, column in zip(self._fields, array.flatten(), strict=True)
        ]
        present = array.is_valid().to_pylist()
        rows = zip(zip(*columns, strict=True), present, strict=True)
        return [self._built(row) if is_valid else None for row, is_valid in rows]

    def _built(self, row: tuple[Any, ...]) -> Any:
        if self._as_list:
            return [*self._extra.values(), *row]
        built = dict(self._extra)
        for field, value in zip(self._fields, row, strict=True):
            if value is not None or not field.omit_null:
                built[field.encoded_name or field.name] = value
        return built


def _field_array(field: FieldCodec, values: Sequence[Any]) -> Any:
    try:
        return field.codec.array(values)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"field '{field.name}': {error}") from error


def _offsets(values: Sequence[Any]) -> Any:
    """Return the offsets of lists in Arrow's format, with null for None."""
    offsets: list[int | None] = []
    position = 0
    for value in values:
        if value is None:
            offsets.append(None)
        else:
            offsets.append(position)
            position += len(value)
    offsets.append(position)
    arrow = load_arrow()
    return arrow.array(offsets, arrow.int32())


def _slices(array: Any) -> list[slice | None]:
    """Return the slice of each list in the array of all elements; None for null."""
    bounds = pairwise(array.offsets.to_pylist())
    present = array.is_valid().to_pylist()
    pairs = zip(bounds, present, strict=True)
    return [slice(*ends) if is_valid else None for ends, is_valid in pairs]


def json_text(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def json_codec() -> ColumnCodec:
    return ElementwiseCodec(load_arrow().string(), json_text, msgspec.json.decode)


def utc_timestamps() -> Any:
    """Return the Arrow type of Spark's `TimestampType`."""
    return load_arrow().timestamp("us", "UTC")


def codec_of_type(type_: Any) -> ColumnCodec:
    """Return the codec for a declared type that `json_of` and `msgpack_of` accept."""
    return _codec_of_info(inspect.type_info(type_), ())


_LISTS: Final = (
    *(inspect.ListType, inspect.VarTupleType, inspect.CollectionType),
    *(inspect.SetType, inspect.FrozenSetType),
)


def _codec_of_info(info: Any, enclosing: tuple[Any, ...]) -> ColumnCodec:
    arrow = load_arrow()
    if isinstance(info, inspect.Metadata):
        return _codec_of_info(info.type, enclosing)
    plain = _plain_type(arrow, info)
    if plain is not None:
        return ColumnCodec(plain)
    if isinstance(info, inspect.UUIDType):
        # msgspec converts the strings.
        return ElementwiseCodec(arrow.string(), str, str)
    if isinstance(info, inspect.EnumType):
        return _codec_of_values([member.value for member in info.cls])
    if isinstance(info, inspect.LiteralType):
        return _codec_of_values(info.values)
    if isinstance(info, inspect.UnionType):
        arms = [arm for arm in info.types if not isinstance(arm, inspect.NoneType)]
        kinds = {type(arm) for arm in arms}
        if kinds == {inspect.IntType, inspect.FloatType}:
            return ColumnCodec(arrow.float64())
        return _codec_of_info(arms[0], enclosing) if len(arms) == 1 else json_codec()
    if isinstance(info, _LISTS):
        return ListCodec(_codec_of_info(info.item_type, enclosing))
    if isinstance(info, inspect.DictType):
        return MapCodec(
            _codec_of_info(info.key_type, enclosing), _codec_of_info(info.value_type, enclosing)
        )
    if isinstance(info, inspect.TupleType) and info.item_types:
        # The same names as Spark's for the fields of tuples.
        fields = [
            FieldCodec(f"_{number + 1}", _codec_of_info(item, enclosing), itemgetter(number))
            for number, item in enumerate(info.item_types)
        ]
        return StructCodec(fields, as_list=True)
    return _codec_of_fields(info, enclosing) or json_codec()


def _plain_type(arrow: Any, info: Any) -> Any:
    """Return the Arrow type for values that need no conversion.

    Returns None for other values.
    """
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
        # The precision and scale that Spark uses for decimals without a declared precision.
        inspect.DecimalType: arrow.decimal128(38, 18),
    }
    return types.get(type(info))


def _codec_of_values(values: Sequence[Any]) -> ColumnCodec:
    """Return the codec for the values of an enum or literal.

    The column contains the values themselves if all are str or all are int.
    """
    arrow = load_arrow()
    kinds = {type(value) for value in values if value is not None}
    if kinds == {str}:
        return ElementwiseCodec(arrow.string(), _value_of, str)
    if kinds == {int}:
        return ElementwiseCodec(arrow.int64(), _value_of, int)
    return json_codec()


def _value_of(value: Any) -> Any:
    return value.value if isinstance(value, enum.Enum) else value


def _codec_of_fields(info: Any, enclosing: tuple[Any, ...]) -> ColumnCodec | None:
    """Return the codec for a struct, dataclass, typed dict or named tuple.

    Returns None for other types, types without fields, and recursive references.
    """
    supported = (
        inspect.StructType | inspect.DataclassType | inspect.TypedDictType | inspect.NamedTupleType
    )
    if not isinstance(info, supported) or not info.fields or info.cls in enclosing:
        return None
    enclosing = (*enclosing, info.cls)
    is_dict = isinstance(info, inspect.TypedDictType)
    fields = [
        FieldCodec(
            field.name,
            _codec_of_info(field.type, enclosing),
            item_getter(field.name) if is_dict else attrgetter(field.name),
            encoded_name=field.encode_name,
            omit_null=not field.required and not _takes_none(field.type),
        )
        for field in info.fields
    ]
    extra: dict[str, Any] = {}
    as_list = isinstance(info, inspect.NamedTupleType)
    if isinstance(info, inspect.StructType):
        as_list = info.array_like
        if info.tag_field is not None:
            extra = {info.tag_field: info.tag}
    return StructCodec(fields, extra=extra, as_list=as_list)


def item_getter(name: str) -> Callable[[Any], Any]:
    """Return a getter for dicts in which the key may be missing."""
    return lambda value: value.get(name)


def _takes_none(info: Any) -> bool:
    if isinstance(info, inspect.Metadata):
        return _takes_none(info.type)
    if isinstance(info, inspect.UnionType):
        return any(map(_takes_none, info.types))
    return isinstance(info, inspect.NoneType | inspect.AnyType)
