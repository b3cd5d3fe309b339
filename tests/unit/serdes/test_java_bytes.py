"""The built-in serdes write the same bytes as Kafka's Java serdes.

The hex strings were printed by the serializers of kafka-clients 4.3.1.
"""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest

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
    list_of,
)

_VECTORS: list[tuple[Serde[Any], Any, str]] = [
    (LONG, 0, "0000000000000000"),
    (LONG, -1, "ffffffffffffffff"),
    (LONG, 258, "0000000000000102"),
    (LONG, 2**63 - 1, "7fffffffffffffff"),
    (LONG, -(2**63), "8000000000000000"),
    (INTEGER, -1, "ffffffff"),
    (INTEGER, 2**31 - 1, "7fffffff"),
    (INTEGER, -(2**31), "80000000"),
    (SHORT, -1, "ffff"),
    (SHORT, 32767, "7fff"),
    (SHORT, -32768, "8000"),
    (DOUBLE, -0.0, "8000000000000000"),
    (DOUBLE, 1.5, "3ff8000000000000"),
    (DOUBLE, -2.25e300, "fe4ae0c41900844f"),
    (DOUBLE, float("inf"), "7ff0000000000000"),
    (FLOAT, 1.5, "3fc00000"),
    (FLOAT, float("-inf"), "ff800000"),
    (BOOLEAN, True, "01"),
    (BOOLEAN, False, "00"),
    (STRING, "", ""),
    (STRING, "héllo €", "68c3a96c6c6f20e282ac"),
    (STRING, "😀", "f09f9880"),
    (BYTES, b"\x00\xff", "00ff"),
    (
        UUID,
        uuid.UUID("123E4567-e89b-12d3-a456-426614174000"),
        "31323365343536372d653839622d313264332d613435362d343236363134313734303030",
    ),
    (list_of(LONG), [7, None, -1], "000000000100000001000000030000000000000007ffffffffffffffff"),
    (list_of(LONG), [], "000000000000000000"),
    (list_of(INTEGER), [1, None], "0000000001000000010000000200000001"),
    (list_of(SHORT), [1], "0000000000000000010001"),
    (list_of(DOUBLE), [1.0], "0000000000000000013ff0000000000000"),
    (list_of(FLOAT), [1.0], "0000000000000000013f800000"),
    (list_of(BOOLEAN), [True, None], "01000000020000000101ffffffff"),
    (list_of(BYTES), [b"x", None], "01000000020000000178ffffffff"),
    (
        list_of(STRING),
        ["a", None, "", "bc"],
        "01000000040000000161ffffffff00000000000000026263",
    ),
    (
        list_of(UUID),
        [uuid.UUID(int=(1 << 64) | 2), None],
        "0000000001000000010000000230303030303030302d303030302d303030312d303030302d"
        "303030303030303030303032",
    ),
]


@pytest.mark.parametrize(("serde", "value", "expected"), _VECTORS)
def test_bytes_equal_those_of_java(serde: Serde[Any], value: Any, expected: str) -> None:
    """For single values and batches, in both directions."""
    data = bytes.fromhex(expected)
    assert serde.serialize("t", value) == data
    assert serde.serialize_many("t", [value, value]) == [data, data]
    assert serde.serialize_many("t", [None, value]) == [None, data]
    assert repr(serde.deserialize("t", data)) == repr(value)
    assert repr(serde.deserialize_many("t", [data, data])) == repr([value, value])
    assert repr(serde.deserialize_many("t", [data, None])) == repr([value, None])


def test_all_nans_are_written_as_the_canonical_nan() -> None:
    """As DoubleSerializer does; arithmetic can produce NaNs with other bits."""
    odd_nan = struct.unpack(">d", bytes.fromhex("fff8000000000001"))[0]
    nan = bytes.fromhex("7ff8000000000000")
    assert DOUBLE.serialize("t", odd_nan) == nan
    assert DOUBLE.serialize_many("t", [1.0, odd_nan])[1] == nan
    assert DOUBLE.serialize_many("t", [None, 1.0, odd_nan])[2] == nan
    infinity = float("inf")
    assert DOUBLE.serialize_many("t", [infinity, -infinity])[1] == DOUBLE.serialize("t", -infinity)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("41ff42", "A�B"),
        ("c0af", "��"),
        ("e282", "�"),
        ("eda080", "�"),  # Python alone would decode three.
        ("eda0", "�"),
        ("eda041", "�A"),
        ("edbfbfeda0bd41", "��A"),
        ("f0908080", "\U00010000"),
        ("f5808080", "����"),
    ],
)
def test_malformed_text_is_replaced_as_in_java(data: str, expected: str) -> None:
    """Invalid UTF-8 becomes the String that Java's decoder returns."""
    raw = bytes.fromhex(data)
    assert STRING.deserialize("t", raw) == expected
    assert STRING.deserialize_many("t", [b"ok", raw, None]) == ["ok", expected, None]


def test_an_unpaired_surrogate_becomes_a_question_mark() -> None:
    """As in String.getBytes(UTF_8)."""
    assert STRING.serialize("t", "a\ud800b") == b"a?b"
    assert STRING.serialize_many("t", [None, "a\ud800b", "c"]) == [None, b"a?b", b"c"]
