"""JSON and MessagePack of one declared type: structs of msgspec, dataclasses, typed dicts."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Final, TypeVar, overload

import msgspec
from msgspec import inspect

from millstream.serdes._constant import must_be
from millstream.serdes._immutable import is_immutable
from millstream.serdes._models import ModelSerde, is_model
from millstream.serdes._serde import Serde

T = TypeVar("T")


@overload
def json_of(type: type[T]) -> Serde[T]: ...


# Of a union of types, `A | B`, nobody can say yet in the language of types what it is of.
@overload
def json_of(type: types.UnionType) -> Serde[Any]: ...


def json_of(type: Any) -> Serde[Any]:
    """JSON that is checked against a type when it is read, and decoded to it.

    Two to three times as fast as `JSON` and then some for structs, as only declared fields are
    decoded. Fields are written in the order of their declaration. Names in dicts and members of
    sets are written sorted, so that equal values have equal bytes: records are partitioned, joined
    and grouped by the bytes of their keys.

    A model of pydantic is read by `model_validate_json` and written by
    `model_dump_json(by_alias=True)`. pydantic does not sort dicts and sets in it: as a key take a
    model without them.

    Args:
        type: a `msgspec.Struct`, a dataclass, a `TypedDict`, a class of pydantic's models (pydantic
            2), or any type that msgspec supports, such as `list[int]`, or a union of structs with
            tags.

    Raises:
        TypeError: the type is not supported, or has a field of such a type.

    Example:
        >>> class Order(msgspec.Struct, frozen=True):
        ...     user: str
        ...     amount: int
        >>> json_of(Order).serialize("orders", Order("alice", 5))
        b'{"user":"alice","amount":5}'
    """
    return _made(json_of, type)


@overload
def msgpack_of(type: type[T]) -> Serde[T]: ...


@overload
def msgpack_of(type: types.UnionType) -> Serde[Any]: ...


def msgpack_of(type: Any) -> Serde[Any]:
    """MessagePack that is checked against a type when it is read, and decoded to it.

    Smaller and faster to read than JSON. Equal values have equal bytes, as with `json_of`.

    Args:
        type: a `msgspec.Struct`, a dataclass, a `TypedDict`, or any type that msgspec supports.

    Raises:
        TypeError: the type is not supported, or has a field of such a type.

    Example:
        >>> msgpack_of(dict[str, int]).serialize("counts", {"a": 1})
        b'\\x81\\xa1a\\x01'
    """
    return _made(msgpack_of, type)


class TypedSerde(Serde[T]):
    """The serde of one type, made by `json_of` or `msgpack_of`.

    Two serdes of the same format and type are equal. It pickles as what it is made of, since the
    encoders cannot be pickled, and makes these when they are first used: a class that travels as
    code may refer to a serde of itself, which then arrives before the class is complete.
    """

    def __init__(
        self, maker: Callable[[type[T]], Serde[T]], of: type[T], immutable: bool, name: str
    ) -> None:
        self._maker = maker
        self._of = of
        self._taken = _classes_of(of)
        super().__init__(self._encode_checked, self._decode_one, immutable=immutable, name=name)

    @property
    def of(self) -> Any:
        """The type of its values."""
        return self._of

    @cached_property
    def _encode(self) -> Callable[[Any], bytes]:
        encode: Callable[[Any], bytes] = self._codec.Encoder(order="deterministic").encode
        return encode

    @cached_property
    def _decode(self) -> Callable[[bytes], T]:
        decode: Callable[[bytes], T] = self._codec.Decoder(self._of).decode
        return decode

    @property
    def _codec(self) -> Any:
        return msgspec.json if self._maker is json_of else msgspec.msgpack

    def __reduce__(self) -> tuple[Any, ...]:
        return TypedSerde, (self._maker, self._of, self.immutable, self.name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TypedSerde):
            return NotImplemented
        return self._maker is other._maker and self._of == other._of

    def __hash__(self) -> int:
        return hash((self._maker, self._of))

    def serialize_many(self, topic: str, values: Sequence[T | None]) -> list[bytes | None]:
        # 115 ns a struct of four fields, of which looking at the types is 20; one by one 240.
        kinds = set(map(type, values))
        if not all(issubclass(kind, self._taken) for kind in kinds - {types.NoneType}):
            return super().serialize_many(topic, values)
        encode = self._encode
        try:
            if types.NoneType in kinds:
                return [None if value is None else encode(value) for value in values]
            return list(map(encode, values))
        except Exception:
            # Encoding a struct calls no function of the user's, so it may be done again.
            return super().serialize_many(topic, values)

    def deserialize_many(self, topic: str, datas: Sequence[bytes | None]) -> list[T | None]:
        # 150 ns a struct of four fields, of which the loop is 15; one by one 240.
        try:
            return list(map(self._decode, datas))  # type: ignore[arg-type]
        except TypeError:
            pass  # There is a None.
        except Exception:
            return super().deserialize_many(topic, datas)
        decode = self._decode
        try:
            return [None if data is None else decode(data) for data in datas]
        except Exception:
            return super().deserialize_many(topic, datas)

    def _encode_checked(self, topic: str, value: T) -> bytes:
        must_be(value, self._taken)
        return self._encode(value)

    def _decode_one(self, topic: str, data: bytes) -> T:
        return self._decode(data)


def _made(maker: Callable[[type[T]], Serde[T]], of: type[T]) -> Serde[T]:
    if is_model(of):
        if maker is not json_of:
            raise TypeError(
                f"{of.__qualname__} is a model of pydantic, which reads and writes JSON: use "
                f"json_of({of.__qualname__})."
            )
        return ModelSerde(of)
    name = f"{maker.__name__}({of.__qualname__ if isinstance(of, type) else of})"
    _check_supported(maker.__name__, of, name)
    return TypedSerde(maker, of, is_immutable(of), name)


def _check_supported(maker: str, of: Any, name: str) -> None:
    """Refuse a type here that would fail at the first record.

    Raises:
        TypeError: the type is not supported, or has a field of such a type.
    """
    if isinstance(of, str):
        raise TypeError(f"{maker}() takes a type, and {of!r} is its name: give the class itself.")
    try:
        (msgspec.json.Decoder if maker == "json_of" else msgspec.msgpack.Decoder)(of)
    except (TypeError, NameError) as error:
        problem = str(error).rstrip(".")
        raise TypeError(f"{name}: the type cannot be read and written: {problem}.") from error
    try:
        unsupported = _unsupported(inspect.type_info(of), set())
    except Exception:
        return  # a type that msgspec decodes, but cannot describe
    if unsupported is None:
        return
    title = unsupported.__qualname__
    if is_model(unsupported):
        advice = (
            f"{title} is a model of pydantic, which can only be the whole value. Make the type a "
            f"model as well, for example pydantic.RootModel[list[{title}]]."
        )
    else:
        advice = (
            f"{title} is a class without declared fields. Make it a dataclass, a msgspec.Struct, "
            "a TypedDict or a model of pydantic, or take Serde(serialize, deserialize) with your "
            "own functions."
        )
    where = "" if unsupported is of else f", which has {title} in it,"
    raise TypeError(f"{name}: the type{where} cannot be read and written. {advice}")


#: What JSON and MessagePack are read as. A field of a class above any of these takes such values.
_READ_AS: Final = (dict, list, str, int, float, bool, bytes, types.NoneType)


def _unsupported(info: Any, seen: set[int]) -> type | None:
    """The first class in a type whose fields msgspec does not find; None if there is none."""
    if isinstance(info, inspect.CustomType):
        supported = any(issubclass(kind, info.cls) for kind in _READ_AS)
        return None if supported else info.cls
    if id(info) in seen:
        return None
    seen.add(id(info))
    if isinstance(info, tuple):
        parts: Iterable[Any] = info
    elif isinstance(info, inspect.Type | inspect.Field):
        parts = (getattr(info, name) for name in info.__struct_fields__)
    else:
        return None
    found = (_unsupported(part, seen) for part in parts)
    return next((each for each in found if each is not None), None)


def _classes_of(of: Any) -> tuple[type, ...]:
    """The classes whose instances are values of a type; `object` where that cannot be told.

    Only the outermost class is checked when a value is serialized: looking into every list and
    field would cost more than encoding it.
    """
    origin = typing.get_origin(of)
    if origin is typing.Annotated:
        return _classes_of(typing.get_args(of)[0])
    if origin in (typing.Union, types.UnionType):
        return tuple(kind for arm in typing.get_args(of) for kind in _classes_of(arm))
    if origin is not None:
        return (origin,) if isinstance(origin, type) else (object,)
    if of is None:
        return (types.NoneType,)
    if typing.is_typeddict(of):
        return (dict,)
    if of is float:
        return (float, int)
    return (of,) if isinstance(of, type) else (object,)
