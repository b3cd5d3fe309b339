"""Keys and values as JSON, and keys as the text of a URL."""

from __future__ import annotations

import base64
import binascii
import math
import re
import uuid
from collections.abc import Callable, Mapping, Set
from typing import Any, Final

import msgspec
import orjson

from millstream.record import ValueAndTimestamp
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
)
from millstream.server.parameters import bad_request
from millstream.windowed import Windowed

#: How a key may be written.
KEY_FORMS: Final = ("text", "json", "base64")
_DEEPEST: Final = 64
#: What JSON's readers take as a whole number; larger ones are written as texts.
_WHOLE_MOST: Final = 2**63
_SHOWN_MOST: Final = 1_000

_WHOLE: Final = re.compile(r"-?[0-9]+")
_NUMBER: Final = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|-?(inf|nan)")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-?)([0-9a-fA-F]{4}\1){3}[0-9a-fA-F]{12}")


def _written_as(pattern: re.Pattern[str], read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Reads what is written just so: Python's own readers take blanks and `1_0`, too."""

    def checked(text: str) -> Any:
        if pattern.fullmatch(text) is None:
            raise ValueError("it is not written as one")
        return read(text)

    return checked


_whole = _written_as(_WHOLE, int)
_number = _written_as(_NUMBER, float)
_BOOLEANS: Final = {"true": True, "false": False}
#: What the text of a key becomes, by the serde of keys.
_OF_TEXT: Final[Mapping[Serde[Any], Callable[[str], Any]]] = {
    STRING: str,
    BYTES: str.encode,
    LONG: _whole,
    INTEGER: _whole,
    SHORT: _whole,
    DOUBLE: _number,
    FLOAT: _number,
    UUID: _written_as(_UUID, uuid.UUID),
    BOOLEAN: _BOOLEANS.__getitem__,
}


def key_of(text: str, form: str, serde: Serde[Any], topic: str) -> Any:
    """The key that a text of a URL stands for.

    Args:
        text: what was written.
        form: one of `KEY_FORMS`: as what. A text is a string, a number, a UUID, `true` or `false`,
            as the serde wants it, and JSON for all other serdes. JSON is read by serdes of JSON
            themselves. Base64 is of the bytes that the store has, URL-safe or not.
        serde: of the store's keys.
        topic: handed to the serde.

    Raises:
        HttpError: it stands for none, or for one that the serde does not take.
    """
    try:
        key = _key(text, form, serde, topic)
        if serde.serialize(topic, key) is None:
            raise ValueError("it is null")
    except Exception as error:
        # A serde of the user's may raise anything; whatever it is, the text is what is wrong.
        shown = text if len(text) <= 80 else f"{text[:80]}..."
        raise bad_request(
            f"The key {shown!r} as {form} is none of the store's, whose keys are {serde.name}: "
            f"{error}. Say with key_as how it is written: {', '.join(KEY_FORMS)}."
        ) from None
    return key


def _key(text: str, form: str, serde: Serde[Any], topic: str) -> Any:
    if form == "base64":
        return serde.deserialize(topic, from_base64(text))
    if form == "text" and serde in _OF_TEXT:
        return _OF_TEXT[serde](text)
    if serde.name == "JSON" or serde.name.startswith("json_of("):
        return serde.deserialize(topic, text.encode())
    if form == "json":
        return orjson.loads(text)
    try:
        serde.serialize(topic, text)
    except Exception:
        return orjson.loads(text)
    return text


def from_base64(text: str) -> bytes:
    """The bytes of URL-safe or plain base64, with or without its padding.

    Raises:
        ValueError: it is none.
    """
    plain = text.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError(f"it is no base64 ({error})") from None


def to_base64(data: bytes) -> str:
    """URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def plain(value: Any, depth: int = 0) -> Any:
    """A key or a value as JSON has it.

    Bytes become `{"base64": ...}`, numbers beyond 64 bits and those that are none texts, windowed
    keys `{"key", "start_ms", "end_ms"}`; dataclasses, structs and models of pydantic objects;
    dates, UUIDs and decimals texts; whatever else `{"repr": ...}`.
    """
    match value:
        case None | bool():
            return value
        case str():
            return value.encode(errors="replace").decode()
        case int():
            return int(value) if -_WHOLE_MOST <= value < _WHOLE_MOST else str(value)
        case float():
            return float(value) if math.isfinite(value) else str(value)
        case bytes() | bytearray() | memoryview():
            return {"base64": base64.b64encode(value).decode()}
        case ValueAndTimestamp():
            return {"value": plain(value.value, depth), "timestamp": value.timestamp}
        case Windowed():
            window = value.window
            key = plain(value.key, depth)
            return {"key": key, "start_ms": window.start_ms, "end_ms": window.end_ms}
    if depth >= _DEEPEST:
        return {"repr": "..."}
    if isinstance(value, Mapping):
        return {_name(key): plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple | Set) and not hasattr(value, "_asdict"):
        return [plain(each, depth + 1) for each in value]
    return _object(value, depth)


def _name(key: Any) -> str:
    """A key of a mapping, which JSON wants as a text."""
    name = plain(key)
    return name if isinstance(name, str) else orjson.dumps(name).decode()


def _object(value: Any, depth: int) -> Any:
    if hasattr(value, "_asdict"):
        return plain(value._asdict(), depth + 1)
    dump = getattr(value, "model_dump", None)
    try:
        made = dump() if dump is not None else _builtins(value)
    except Exception:
        # A class of the user's, of which nothing is known but how it shows itself.
        return {"repr": _shown(value)}
    return plain(made, depth + 1)


def _builtins(value: Any) -> Any:
    # What is left to `plain` comes out as it went in.
    return msgspec.to_builtins(value, str_keys=True, builtin_types=(bytes, bytearray, memoryview))


def _shown(value: Any) -> str:
    try:
        return repr(value)[:_SHOWN_MOST]
    except Exception:
        return f"a {type(value).__name__}"
