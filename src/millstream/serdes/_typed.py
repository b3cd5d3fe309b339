"""JSON and MessagePack of one declared type: structs of msgspec, dataclasses, typed dicts."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar, overload

import msgspec

from millstream.serdes._constant import must_be
from millstream.serdes._immutable import is_immutable
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
    decoded. Keys of dicts and members of sets are written sorted, so that equal values have equal
    bytes: good for keys, too.

    Args:
        type: a `msgspec.Struct`, a dataclass, a `TypedDict`, or any type msgspec knows, such as
            `list[int]`, or a union of structs with tags.

    Raises:
        TypeError: msgspec does not know the type.

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
        type: a `msgspec.Struct`, a dataclass, a `TypedDict`, or any type msgspec knows.

    Raises:
        TypeError: msgspec does not know the type.

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
    # Whether msgspec knows the type shall be told here, not at the first record.
    decoder = msgspec.json.Decoder if maker is json_of else msgspec.msgpack.Decoder
    decoder(of)
    name = f"{maker.__name__}({of.__qualname__ if isinstance(of, type) else of})"
    return TypedSerde(maker, of, is_immutable(of), name)


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
