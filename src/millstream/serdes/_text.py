"""Text and bytes: STRING (UTF-8), BYTES (as they are), UUID (its text), as Java's serdes do."""

from __future__ import annotations

import codecs
import uuid
from collections.abc import Sequence
from typing import Any, Final

from millstream.serdes._constant import ConstantSerde, all_are, must_be
from millstream.serdes._serde import Serde, WrongValueError


def _encode(topic: str, value: str) -> bytes:
    must_be(value, (str,))
    # Follows Java: half a surrogate pair, which UTF-8 has no bytes for, becomes a question mark.
    return value.encode("utf-8", "replace")


def _decode(topic: str, data: bytes) -> str:
    # Follows Java: what is not UTF-8 becomes U+FFFD, and a record is never refused for it.
    return data.decode("utf-8", _JAVA_REPLACE)


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    """One U+FFFD for malformed bytes, and the position to go on from.

    Python and Java agree on how many bytes that is, but for an encoded surrogate (ED A0..BF
    80..BF), even one that is cut short: Java writes one for all its bytes.
    """
    if not isinstance(error, UnicodeDecodeError):
        raise error
    size = _surrogate_size(error.object[error.start : error.start + 3])
    return "\N{REPLACEMENT CHARACTER}", error.start + size if size else error.end


# A codec's error handler, not a loop over the errors: that would be quadratic in binary data.
_JAVA_REPLACE: Final = "millstream.java_replace"
codecs.register_error(_JAVA_REPLACE, _replace_as_java)


def _surrogate_size(data: bytes) -> int:
    """How many of up to three bytes are a surrogate or the start of one; 0 if they are not."""
    if len(data) < 2 or data[0] != 0xED or not 0xA0 <= data[1] <= 0xBF:
        return 0
    return 3 if len(data) == 3 and 0x80 <= data[2] <= 0xBF else 2


class StringSerde(ConstantSerde[str]):
    """Text as UTF-8."""

    def serialize_many(self, topic: str, values: Sequence[str | None]) -> list[bytes | None]:
        # 27 ns a record, 33 with Nones in between; one by one: 170.
        try:
            return list(map(str.encode, values))  # type: ignore[arg-type]
        except (TypeError, UnicodeEncodeError):
            pass  # A None, another type or half a surrogate pair.
        try:
            encode = str.encode
            return [None if value is None else encode(value) for value in values]
        except (TypeError, UnicodeEncodeError):
            return super().serialize_many(topic, values)

    def deserialize_many(self, topic: str, datas: Sequence[bytes | None]) -> list[str | None]:
        # 31 ns a record, 36 with Nones in between; one by one: 110.
        try:
            return list(map(bytes.decode, datas))  # type: ignore[arg-type]
        except (TypeError, UnicodeDecodeError):
            pass  # A None, or not UTF-8.
        try:
            decode = bytes.decode
            return [None if data is None else decode(data) for data in datas]
        except (TypeError, UnicodeDecodeError):
            return super().deserialize_many(topic, datas)


def _same_bytes(topic: str, value: bytes) -> bytes:
    # A bytearray could still change while the producer or a cache holds it.
    must_be(value, (bytes, bytearray, memoryview))
    return bytes(value)


def _same_data(topic: str, data: bytes) -> bytes:
    return data


class BytesSerde(ConstantSerde[bytes]):
    """Bytes as they are."""

    def serialize_many(self, topic: str, values: Sequence[bytes | None]) -> list[bytes | None]:
        # 20 ns a record.
        if set(map(type, values)) <= {bytes, type(None)}:
            return list(values)
        return super().serialize_many(topic, values)

    def deserialize_many(self, topic: str, datas: Sequence[bytes | None]) -> list[bytes | None]:
        return list(datas)


def _encode_uuid(topic: str, value: uuid.UUID) -> bytes:
    must_be(value, (uuid.UUID,))
    return str(value).encode()


def _decode_uuid(topic: str, data: bytes) -> uuid.UUID:
    # The places of the four hyphens are five apart.
    if len(data) != 36 or data[8:24:5] != b"----":
        raise WrongValueError("it takes text like 123e4567-e89b-12d3-a456-426614174000")
    number = bytes.fromhex(data.replace(b"-", b"").decode("ascii"))
    if len(number) != 16:
        raise WrongValueError("it has too few hexadecimal digits")
    return uuid.UUID(int=int.from_bytes(number, "big"))


class UuidSerde(ConstantSerde[uuid.UUID]):
    """UUIDs as their text of 36 characters."""

    def serialize_many(self, topic: str, values: Sequence[uuid.UUID | None]) -> list[bytes | None]:
        # 650 ns a record, nearly all of it str(UUID); one by one: 830.
        if all_are(uuid.UUID, values):
            return list(map(str.encode, map(str, values)))
        return super().serialize_many(topic, values)


def _encode_boolean(topic: str, value: bool) -> bytes:
    must_be(value, (bool,))
    return b"\x01" if value else b"\x00"


_BOOLEANS: Final[dict[Any, bool | None]] = {b"\x00": False, b"\x01": True, None: None}
_BOOLEAN_BYTES: Final = {False: b"\x00", True: b"\x01", None: None}


def _decode_boolean(topic: str, data: bytes) -> bool:
    value = _BOOLEANS.get(data)
    if value is None:
        raise WrongValueError("it takes one byte, 0 or 1")
    return value


class BooleanSerde(ConstantSerde[bool]):
    """True and False as one byte, 1 and 0."""

    def serialize_many(self, topic: str, values: Sequence[bool | None]) -> list[bytes | None]:
        # 35 ns a record; one by one: 130.
        if set(map(type, values)) <= {bool, type(None)}:  # 1 == True, so a look-up would take 1.
            return list(map(_BOOLEAN_BYTES.__getitem__, values))
        return super().serialize_many(topic, values)

    def deserialize_many(self, topic: str, datas: Sequence[bytes | None]) -> list[bool | None]:
        # 17 ns a record; one by one: 100.
        try:
            return list(map(_BOOLEANS.__getitem__, datas))
        except KeyError:
            return super().deserialize_many(topic, datas)


def _encode_nothing(topic: str, value: None) -> None:
    raise WrongValueError("it takes None only")


def _decode_nothing(topic: str, data: bytes) -> None:
    raise WrongValueError("it takes a missing key or value (null) only")


STRING: Final[Serde[str]] = StringSerde("STRING", _encode, _decode, immutable=True)
BYTES: Final[Serde[bytes]] = BytesSerde("BYTES", _same_bytes, _same_data, immutable=True)
UUID: Final[Serde[uuid.UUID]] = UuidSerde("UUID", _encode_uuid, _decode_uuid, immutable=True)
BOOLEAN: Final[Serde[bool]] = BooleanSerde(
    "BOOLEAN", _encode_boolean, _decode_boolean, immutable=True
)
VOID: Final[Serde[None]] = ConstantSerde("VOID", _encode_nothing, _decode_nothing, immutable=True)
