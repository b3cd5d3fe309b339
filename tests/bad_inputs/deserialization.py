"""Bytes that a serde cannot deserialize."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

from bad_inputs.case import (
    LETTERS,
    Accepted,
    Case,
    DeadLettered,
    Dropped,
    Family,
    Input,
    Outcome,
    Raises,
    ms,
    process,
    serdes,
)
from millstream.errors import SerializationError


@dataclasses.dataclass
class Order:
    """The class for `json_of` and `msgpack_of`."""

    item: str
    count: int


def read(serde: Any, data: bytes | None, **settings: Any) -> Any:
    """Process a record with these bytes as its value."""

    def build(builder: Any) -> None:
        stream = builder.stream("in", key=serdes.STRING, value=serde)
        stream.map_values(str).to("out", value=serdes.STRING)

    return process(build, Input(data), **settings)


def raises(text: str) -> Raises:
    return Raises(SerializationError, ["could not be deserialized", text, "value=..."])


def case(id: str, description: str, serde: Any, data: bytes, outcome: Outcome | str) -> Case:
    expected = raises(outcome) if isinstance(outcome, str) else outcome
    return Case(id, description, read(serde, data), expected)


JSON_OF = serdes.json_of(Order)
MSGPACK_OF = serdes.msgpack_of(Order)
LIST = serdes.list_of(serdes.STRING)
NUMBERS = serdes.list_of(serdes.LONG)

WINDOWED = serdes.session_windowed(serdes.STRING)
CONTINUES = {"deserialization_exception_handler": ms.LogAndContinueExceptionHandler()}


def pair(builder: Any) -> None:
    stream = builder.stream("in", key=serdes.LONG, value=serdes.LONG)
    stream.map_values(str).to("out", key=serdes.LONG, value=serdes.STRING)


FAMILY = Family(
    "Unreadable bytes",
    "The deserialization handler is called. By default, the thread ends.",
    [
        case("short-short", "3 bytes as SHORT", serdes.SHORT, b"abc", "exactly 2 bytes"),
        case("integer-text", "digits as INTEGER", serdes.INTEGER, b"12345", "exactly 4 bytes"),
        case("long-empty", "zero bytes as LONG", serdes.LONG, b"", "exactly 8 bytes"),
        case("long-of-integer", "an INTEGER read as LONG", serdes.LONG, bytes(4), "exactly 8"),
        case("float-double", "a DOUBLE read as FLOAT", serdes.FLOAT, bytes(8), "exactly 4 bytes"),
        case("double-text", "text as DOUBLE", serdes.DOUBLE, b"3.14", "exactly 8 bytes"),
        case("boolean-long", "several bytes as BOOLEAN", serdes.BOOLEAN, b"\0\1", "0 or 1"),
        case("boolean-two", "the byte 2 as BOOLEAN", serdes.BOOLEAN, b"\2", "0 or 1"),
        case("uuid-form", "a UUID without dashes", serdes.UUID, b"0" * 32, "it requires text like"),
        case(
            "uuid-bytes", "a UUID as its 16 bytes", serdes.UUID, bytes(16), "it requires text like"
        ),
        case(
            "void-bytes", "bytes as VOID", serdes.VOID, b"x", "only a missing key or value (null)"
        ),
        case("json-text", "text that is not JSON", serdes.JSON, b"one", "JSON"),
        case("json-cut", "truncated JSON", serdes.JSON, b'{"a": [1,', "JSON"),
        case("json-empty", "zero bytes as JSON", serdes.JSON, b"", "JSON"),
        case("json-not-utf8", "JSON that is not UTF-8", serdes.JSON, b'"\xff"', "JSON"),
        case("typed-missing", "JSON without a required field", JSON_OF, b'{"item": "a"}', "count"),
        case(
            "typed-wrong",
            "JSON with a field of the wrong type",
            JSON_OF,
            b'{"item": "a", "count": "b"}',
            "count",
        ),
        case("typed-array", "a JSON array instead of an object", JSON_OF, b"[]", "json_of"),
        case(
            "typed-more",
            "JSON with an unknown field",
            JSON_OF,
            b'{"item": "a", "count": 1, "more": 2}',
            Accepted([("k", "Order(item='a', count=1)")]),
        ),
        case("msgpack-cut", "truncated MessagePack", MSGPACK_OF, b"\x82\xa4item", "msgpack"),
        case("msgpack-wrong", "MessagePack of the wrong type", MSGPACK_OF, b"\x01", "msgpack"),
        case("list-empty", "zero bytes as a list", LIST, b"", "list"),
        case("list-flag", "a list with an unknown flag", LIST, b"\x09" + bytes(8), "flag"),
        case(
            "list-cut",
            "a truncated list",
            LIST,
            struct.pack(">bii", 1, 2, 9) + b"ab",
            "in the middle of the list",
        ),
        case(
            "list-count",
            "a list with fewer elements than declared",
            NUMBERS,
            struct.pack(">bii", 0, 0, 3) + bytes(8),
            "does not fit",
        ),
        case("windowed-short", "a windowed key without its window", WINDOWED, b"k", "at least"),
        case(
            "avro-magic",
            "Avro without the registry's magic byte",
            serdes.avro(None, {"schema.registry.url": "http://none:1"}),
            b"abcdefgh",
            "avro",
        ),
        case(
            "string-not-utf8",
            "invalid UTF-8 as STRING",
            serdes.STRING,
            b"a\xff",
            Accepted([("k", "a\N{REPLACEMENT CHARACTER}")]),
        ),
        case(
            "bytes",
            "any bytes as BYTES",
            serdes.BYTES,
            b"\0\xff",
            Accepted([("k", "b'\\x00\\xff'")]),
        ),
        Case(
            "key",
            "an unreadable key",
            process(pair, Input(bytes(8), b"k")),
            Raises(SerializationError, ["The key of a record", "key=..."]),
        ),
        Case(
            "key-and-value",
            "an unreadable key and value",
            process(pair, Input(b"v", b"k")),
            Raises(SerializationError, "The key of a record"),
        ),
        Case(
            "continue",
            "unreadable bytes, with LogAndContinueExceptionHandler",
            process(pair, Input(b"v", bytes(8)), **CONTINUES),
            Dropped(1, []),
        ),
        Case(
            "queue",
            "the same, with a dead-letter queue",
            process(
                pair, Input(b"v", b"k"), errors_dead_letter_queue_topic_name=LETTERS, **CONTINUES
            ),
            DeadLettered(1, []),
        ),
        Case(
            "null",
            "a missing value, with any serde",
            read(serdes.LONG, None),
            Accepted([("k", "None")]),
        ),
    ],
)
