"""Bytes that a serde cannot read."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

from bad_inputs.case import (
    LETTERS,
    Accepted,
    Case,
    Dropped,
    Family,
    In,
    Letter,
    Outcome,
    Refused,
    ms,
    serdes,
    through,
)
from millstream.errors import SerializationError


@dataclasses.dataclass
class Order:
    """What `json_of` and `msgpack_of` read."""

    item: str
    count: int


def read(serde: Any, data: bytes | None, **settings: Any) -> Any:
    """A record with these bytes as its value."""

    def build(builder: Any) -> None:
        stream = builder.stream("in", key=serdes.STRING, value=serde)
        stream.map_values(str).to("out", value=serdes.STRING)

    return through(build, In(data), **settings)


def refused(text: str) -> Refused:
    return Refused(SerializationError, ["could not be deserialized", text, "value=..."])


def case(id: str, what: str, serde: Any, data: bytes, outcome: Outcome | str) -> Case:
    told = refused(outcome) if isinstance(outcome, str) else outcome
    return Case(id, what, read(serde, data), told)


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
    "Bytes that cannot be read",
    "The deserialization handler decides; by default the thread ends.",
    [
        case("short-short", "3 bytes as SHORT", serdes.SHORT, b"abc", "exactly 2 bytes"),
        case("integer-text", "digits as INTEGER", serdes.INTEGER, b"12345", "exactly 4 bytes"),
        case("long-empty", "no bytes as LONG", serdes.LONG, b"", "exactly 8 bytes"),
        case("long-of-integer", "an INTEGER read as LONG", serdes.LONG, bytes(4), "exactly 8"),
        case("float-double", "a DOUBLE read as FLOAT", serdes.FLOAT, bytes(8), "exactly 4 bytes"),
        case("double-text", "text as DOUBLE", serdes.DOUBLE, b"3.14", "exactly 8 bytes"),
        case("boolean-long", "several bytes as BOOLEAN", serdes.BOOLEAN, b"\0\1", "0 or 1"),
        case("boolean-two", "the byte 2 as BOOLEAN", serdes.BOOLEAN, b"\2", "0 or 1"),
        case("uuid-form", "a UUID without dashes", serdes.UUID, b"0" * 32, "it takes text like"),
        case("uuid-bytes", "a UUID as its 16 bytes", serdes.UUID, bytes(16), "it takes text like"),
        case("void-bytes", "bytes as VOID", serdes.VOID, b"x", "(null) only"),
        case("json-text", "text that is no JSON", serdes.JSON, b"one", "JSON"),
        case("json-cut", "JSON that ends early", serdes.JSON, b'{"a": [1,', "JSON"),
        case("json-empty", "no bytes as JSON", serdes.JSON, b"", "JSON"),
        case("json-not-utf8", "JSON that is not UTF-8", serdes.JSON, b'"\xff"', "JSON"),
        case(
            "typed-missing", "JSON without a field of the class", JSON_OF, b'{"item": "a"}', "count"
        ),
        case(
            "typed-wrong",
            "JSON with a field of another type",
            JSON_OF,
            b'{"item": "a", "count": "b"}',
            "count",
        ),
        case("typed-array", "a JSON array where an object belongs", JSON_OF, b"[]", "json_of"),
        case(
            "typed-more",
            "JSON with a field that the class has not",
            JSON_OF,
            b'{"item": "a", "count": 1, "more": 2}',
            Accepted([("k", "Order(item='a', count=1)")]),
        ),
        case("msgpack-cut", "MessagePack that ends early", MSGPACK_OF, b"\x82\xa4item", "msgpack"),
        case("msgpack-wrong", "MessagePack of another type", MSGPACK_OF, b"\x01", "msgpack"),
        case("list-empty", "no bytes as a list", LIST, b"", "list"),
        case("list-flag", "a list with an unknown flag", LIST, b"\x09" + bytes(8), "flag"),
        case(
            "list-cut",
            "a list that ends early",
            LIST,
            struct.pack(">bii", 1, 2, 9) + b"ab",
            "in the middle of the list",
        ),
        case(
            "list-count",
            "a list of fewer elements than it says",
            NUMBERS,
            struct.pack(">bii", 0, 0, 3) + bytes(8),
            "does not fit",
        ),
        case("windowed-short", "a windowed key without its window", WINDOWED, b"k", "at least"),
        case(
            "avro-magic",
            "Avro without the registry's first byte",
            serdes.avro(None, {"schema.registry.url": "http://none:1"}),
            b"abcdefgh",
            "avro",
        ),
        case(
            "string-not-utf8",
            "STRING that is not UTF-8",
            serdes.STRING,
            b"a\xff",
            Accepted([("k", "a\N{REPLACEMENT CHARACTER}")]),
        ),
        case(
            "bytes",
            "BYTES of any kind",
            serdes.BYTES,
            b"\0\xff",
            Accepted([("k", "b'\\x00\\xff'")]),
        ),
        Case(
            "key",
            "a key that cannot be read",
            through(pair, In(bytes(8), b"k")),
            Refused(SerializationError, ["The key of a record", "key=..."]),
        ),
        Case(
            "key-and-value",
            "a key and a value that cannot be read",
            through(pair, In(b"v", b"k")),
            Refused(SerializationError, "The key of a record"),
        ),
        Case(
            "continue",
            "bytes that cannot be read, with LogAndContinueExceptionHandler",
            through(pair, In(b"v", bytes(8)), **CONTINUES),
            Dropped(1, []),
        ),
        Case(
            "queue",
            "the same, with a dead-letter queue",
            through(pair, In(b"v", b"k"), errors_dead_letter_queue_topic_name=LETTERS, **CONTINUES),
            Letter(1, []),
        ),
        Case(
            "null",
            "a missing value, whatever the serde",
            read(serdes.LONG, None),
            Accepted([("k", "None")]),
        ),
    ],
)
