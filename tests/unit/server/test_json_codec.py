"""Keys and values as JSON, and keys as text in URLs."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import math
import uuid
from typing import Any, NamedTuple

import msgspec
import orjson
import pytest

from millstream.record import ValueAndTimestamp
from millstream.serdes import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    INTEGER,
    JSON,
    LONG,
    STRING,
    UUID,
    Serde,
    json_of,
    list_of,
    msgpack_of,
)
from millstream.server.json_codec import from_base64, parse_key, to_base64, to_json_value
from millstream.server.responses import HttpError
from millstream.windowed import unchecked_windowed


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass(frozen=True)
class Order:
    number: int
    colours: tuple[Colour, ...] = ()


class Point(NamedTuple):
    x: int
    y: bytes


class Struct(msgspec.Struct, frozen=True):
    name: str
    data: bytes


class Opaque:
    def __repr__(self) -> str:
        return "<opaque>"


class Broken:
    def __repr__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (2**63 - 1, 2**63 - 1),
        (-(2**63), -(2**63)),
        (2**63, "9223372036854775808"),
        (10**400, "1" + "0" * 400),
        (1.5, 1.5),
        (math.inf, "inf"),
        (math.nan, "nan"),
        ("nöö\0", "nöö\0"),
        ("\ud800", "?"),
        (b"\xff\0", {"base64": "/wA="}),
        (bytearray(b"a"), {"base64": "YQ=="}),
        ([1, (2, b"a")], [1, [2, {"base64": "YQ=="}]]),
        ({"a": {1: 2}}, {"a": {"1": 2}}),
        ({(1, 2): 3, None: 4}, {"[1,2]": 3, "null": 4}),
        ({3}, [3]),
        (unchecked_windowed("ann", 5, 9), {"key": "ann", "start_ms": 5, "end_ms": 9}),
        (ValueAndTimestamp(3, 4), {"value": 3, "timestamp": 4}),
        (Order(3, (Colour.RED,)), {"number": 3, "colours": ["red"]}),
        (Point(1, b"a"), {"x": 1, "y": {"base64": "YQ=="}}),
        (Struct("a", b"a"), {"name": "a", "data": {"base64": "YQ=="}}),
        (datetime.date(2026, 11, 23), "2026-11-23"),
        (decimal.Decimal("1.10"), "1.10"),
        (uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (Opaque(), {"repr": "<opaque>"}),
        (Broken(), {"repr": "a Broken"}),
        ([Opaque()], [{"repr": "<opaque>"}]),
    ],
)
def test_values_are_converted_to_json(value: Any, expected: Any) -> None:
    """Every possible value of a serde can be written, and lossy conversions are visible."""
    assert to_json_value(value) == expected
    assert orjson.loads(orjson.dumps(to_json_value(value))) == expected


def test_deep_values_are_truncated() -> None:
    """Detects a list that contains itself and crashes the server's thread."""
    endless: list[Any] = []
    endless.append(endless)
    assert "..." in orjson.dumps(to_json_value(endless)).decode()


UPPER = Serde[str](lambda _, value: value.upper().encode(), lambda _, data: data.decode())


@pytest.mark.parametrize(
    ("serde", "form", "text", "key"),
    [
        (STRING, "text", "7", "7"),
        (STRING, "text", "", ""),
        (STRING, "json", '"a/b"', "a/b"),
        (BYTES, "text", "ä", "ä".encode()),
        (BYTES, "base64", "_w", b"\xff"),
        (LONG, "text", "-7", -7),
        (LONG, "json", "7", 7),
        (DOUBLE, "text", "1.5", 1.5),
        (DOUBLE, "text", "-.5e-3", -0.0005),
        (DOUBLE, "text", "1e+16", 1e16),
        (DOUBLE, "text", "-inf", -math.inf),
        (BOOLEAN, "text", "true", True),
        (UUID, "text", "00000000-0000-0000-0000-000000000007", uuid.UUID(int=7)),
        (JSON, "text", '{"a": 1}', {"a": 1}),
        (JSON, "json", "[1]", [1]),
        (json_of(Order), "text", '{"number": 3}', Order(3)),
        (json_of(Order), "json", '{"number": 3}', Order(3)),
        (msgpack_of(Order), "base64", to_base64(msgspec.msgpack.encode(Order(3))), Order(3)),
        (list_of(LONG), "text", "[1, 2]", [1, 2]),
        (UPPER, "text", "a", "a"),
    ],
)
def test_keys_are_read_by_their_serde(serde: Serde[Any], form: str, text: str, key: Any) -> None:
    assert parse_key(text, form, serde, "topic") == key


@pytest.mark.parametrize(
    ("serde", "form", "text"),
    [
        (LONG, "text", "1.0"),
        (LONG, "text", "1_0"),
        (LONG, "text", " 7"),
        (LONG, "text", "7\n"),
        (LONG, "text", "+7"),
        (LONG, "text", "\uff11\uff12"),
        (LONG, "text", "9" * 5_000),
        (DOUBLE, "text", "1_0.5"),
        (DOUBLE, "text", "1.5 "),
        (DOUBLE, "text", "infinity"),
        (DOUBLE, "text", "."),
        (UUID, "text", "{00000000-0000-0000-0000-000000000007}"),
        (UUID, "text", "urn:uuid:00000000-0000-0000-0000-000000000007"),
        (UUID, "text", "0000-0000000000000000000000000007"),
        (INTEGER, "text", str(2**31)),
        (BOOLEAN, "text", "yes"),
        (UUID, "text", "x"),
        (STRING, "json", "7"),
        (STRING, "json", "{"),
        (STRING, "json", "null"),
        (LONG, "base64", "AAAA"),
        (BYTES, "base64", "a b"),
        (JSON, "text", "{"),
        (JSON, "text", "null"),
        (json_of(Order), "text", '{"number": "x"}'),
        (msgpack_of(Order), "text", '{"number": 3}'),
        (list_of(LONG), "text", "[" * 5_000),
    ],
)
def test_invalid_keys_are_rejected(serde: Serde[Any], form: str, text: str) -> None:
    """As a mistake of the client, with the serde's name."""
    with pytest.raises(HttpError) as caught:
        parse_key(text, form, serde, "topic")
    assert caught.value.status == 400
    assert serde.name in caught.value.message
    assert len(caught.value.message) < 1_000


def test_base64_is_decoded_in_all_variants() -> None:
    """URL-safe or not, padded or not."""
    for size in range(9):
        data = bytes(range(250, 250 - size, -1))
        assert from_base64(to_base64(data)) == data
        assert "=" not in to_base64(data)
    assert from_base64("-_8=") == from_base64("+/8") == b"\xfb\xff"
