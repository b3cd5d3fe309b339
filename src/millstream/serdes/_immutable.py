"""Tells whether the decoded values of a type can be changed in place."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect

_SCALARS = (
    inspect.NoneType,
    inspect.BoolType,
    inspect.IntType,
    inspect.FloatType,
    inspect.StrType,
    inspect.BytesType,
    inspect.DateTimeType,
    inspect.TimeType,
    inspect.DateType,
    inspect.TimeDeltaType,
    inspect.UUIDType,
    inspect.DecimalType,
    inspect.EnumType,
    inspect.LiteralType,
)


def is_immutable(of: Any) -> bool:
    """Whether no part of a decoded value can change: frozen structs of scalars, tuples of them.

    A frozen struct with a list in it can change, so it is not.
    """
    try:
        return _is_immutable(inspect.type_info(of), seen=set())
    except Exception:
        # A type that msgspec decodes but cannot describe: False is always safe.
        return False


def _is_immutable(info: Any, seen: set[type]) -> bool:
    if isinstance(info, _SCALARS):
        return True
    if isinstance(info, inspect.Metadata):
        return _is_immutable(info.type, seen)
    if isinstance(info, inspect.UnionType):
        return all(_is_immutable(arm, seen) for arm in info.types)
    if isinstance(info, inspect.TupleType):
        return all(_is_immutable(item, seen) for item in info.item_types)
    if isinstance(info, (inspect.VarTupleType, inspect.FrozenSetType)):
        return _is_immutable(info.item_type, seen)
    if isinstance(info, (inspect.StructType, inspect.DataclassType)):
        if info.cls in seen:
            return True  # Inside itself: decided by the other fields.
        seen.add(info.cls)
        return _is_frozen(info.cls) and all(_is_immutable(f.type, seen) for f in info.fields)
    return False


def _is_frozen(cls: type) -> bool:
    if issubclass(cls, msgspec.Struct):
        return bool(cls.__struct_config__.frozen)
    return bool(getattr(getattr(cls, "__dataclass_params__", None), "frozen", False))
