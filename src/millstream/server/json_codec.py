"""Conversion of keys and values to JSON, and of keys from URLs."""

from __future__ import annotations

import base64
import binascii
import math
import re
import uuid
from collections.abc import Callable, Mapping, Set
from functools import partial
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
from millstream.server.parameters import Parameter, bad_request, in_path
from millstream.server.request_routing import HttpRequest
from millstream.state.queries.codec import StoreCodec
from millstream.windowed import Windowed

#: The formats of keys.
KEY_FORMS: Final = ("text", "json", "base64")
_MAX_DEPTH: Final = 64
#: The bound of integers in JSON: larger ones exceed 64 bits and are written as strings.
_MAX_INTEGER: Final = 2**63
_MAX_REPR_LENGTH: Final = 1_000

_INTEGER_PATTERN: Final = re.compile(r"-?[0-9]+")
_FLOAT_PATTERN: Final = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|-?(inf|nan)")
_UUID_PATTERN: Final = re.compile(r"[0-9a-fA-F]{8}(-?)([0-9a-fA-F]{4}\1){3}[0-9a-fA-F]{12}")


def _parser_for(pattern: re.Pattern[str], read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a parser that requires the pattern.

    Python's parsers also accept blanks and `1_0`.
    """

    def checked(text: str) -> Any:
        if pattern.fullmatch(text) is None:
            raise ValueError("invalid format")
        return read(text)

    return checked


_parse_integer = _parser_for(_INTEGER_PATTERN, int)
_parse_float = _parser_for(_FLOAT_PATTERN, float)
_BOOLEANS: Final = {"true": True, "false": False}
#: Parsers of keys in text form, by key serde.
_TEXT_PARSERS: Final[Mapping[Serde[Any], Callable[[str], Any]]] = {
    STRING: str,
    BYTES: str.encode,
    LONG: _parse_integer,
    INTEGER: _parse_integer,
    SHORT: _parse_integer,
    DOUBLE: _parse_float,
    FLOAT: _parse_float,
    UUID: _parser_for(_UUID_PATTERN, uuid.UUID),
    BOOLEAN: _BOOLEANS.__getitem__,
}


def parse_key(text: str, form: str, serde: Serde[Any], topic: str) -> Any:
    """Parse a key from a URL in one of `KEY_FORMS`.

    Depending on the serde, text is a string, a number, a UUID, `true` or `false`; other serdes get
    the text itself if they accept strings, and otherwise the parsed JSON. JSON serdes deserialize
    JSON themselves. Base64, URL-safe or not, contains the stored bytes.
    """
    try:
        key = _key(text, form, serde, topic)
        if serde.serialize(topic, key) is None:
            raise ValueError("the key is null")
    except Exception as error:
        # A custom serde may raise any exception; in all cases the text is invalid.
        shown = text if len(text) <= 80 else f"{text[:80]}..."
        raise bad_request(
            f"The key {shown!r} as {form} is not valid for the store's key serde {serde.name}: "
            f"{error}. Set the format with key_as: {', '.join(KEY_FORMS)}."
        ) from None
    return key


def _key(text: str, form: str, serde: Serde[Any], topic: str) -> Any:
    if form == "base64":
        return serde.deserialize(topic, from_base64(text))
    if form == "text" and serde in _TEXT_PARSERS:
        return _TEXT_PARSERS[serde](text)
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
    """Decode URL-safe or standard base64, with or without padding.

    Raises ValueError if the text is not base64.
    """
    plain = text.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64 ({error})") from None


def to_base64(data: bytes) -> str:
    """Encode as URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def to_json_value(value: Any, depth: int = 0) -> Any:
    """Convert a key or value to a JSON document.

    Bytes become `{"base64": ...}`; integers beyond 64 bits and non-finite numbers become strings;
    windowed keys become `{"key", "start_ms", "end_ms"}`; dataclasses, structs and pydantic models
    become objects; dates, UUIDs and decimals become strings; anything else becomes `{"repr": ...}`.
    """
    match value:
        case None | bool():
            return value
        case str():
            return value.encode(errors="replace").decode()
        case int():
            return int(value) if -_MAX_INTEGER <= value < _MAX_INTEGER else str(value)
        case float():
            return float(value) if math.isfinite(value) else str(value)
        case bytes() | bytearray() | memoryview():
            return {"base64": base64.b64encode(value).decode()}
        case ValueAndTimestamp():
            return {"value": to_json_value(value.value, depth), "timestamp": value.timestamp}
        case Windowed():
            window = value.window
            key = to_json_value(value.key, depth)
            return {"key": key, "start_ms": window.start_ms, "end_ms": window.end_ms}
    if depth >= _MAX_DEPTH:
        return {"repr": "..."}
    if isinstance(value, Mapping):
        return {_mapping_key(key): to_json_value(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple | Set) and not hasattr(value, "_asdict"):
        return [to_json_value(each, depth + 1) for each in value]
    return _object_value(value, depth)


def _mapping_key(key: Any) -> str:
    """Convert a mapping key to a string, as JSON requires."""
    name = to_json_value(key)
    return name if isinstance(name, str) else orjson.dumps(name).decode()


def _object_value(value: Any, depth: int) -> Any:
    if hasattr(value, "_asdict"):
        return to_json_value(value._asdict(), depth + 1)
    dump = getattr(value, "model_dump", None)
    try:
        # Types that `to_json_value` handles are passed through.
        types = (bytes, bytearray, memoryview)
        to_plain = partial(msgspec.to_builtins, value, str_keys=True, builtin_types=types)
        made = to_plain() if dump is None else dump()
    except Exception:
        # A custom class that has only a repr.
        return {"repr": _safe_repr(value)}
    return to_json_value(made, depth + 1)


def _safe_repr(value: Any) -> str:
    try:
        return repr(value)[:_MAX_REPR_LENGTH]
    except Exception:
        return f"a {type(value).__name__}"


STORE: Final = in_path("store", "The store's name.")
KEY: Final = in_path("key", "The key; may contain slashes.")
KEY_AS: Final = Parameter(
    "key_as",
    "The format of keys in this URL: text that the store's key serde accepts (a number, a UUID, "
    "JSON for serdes of objects), JSON, or base64 of the serialized key.",
    default="text",
    choices=KEY_FORMS,
)


def given_key(request: HttpRequest, codec: StoreCodec, name: str = "key") -> Any:
    return parse_key(request.values[name], request.values["key_as"], codec.key_serde, codec.topic)
