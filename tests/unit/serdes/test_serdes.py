"""All serdes: None, errors with index and reason, and constants after pickling."""

from __future__ import annotations

import copy
import dataclasses
import enum
import pickle
import subprocess
import sys
import uuid
from typing import Any, TypedDict

import cloudpickle
import msgspec
import pytest

import millstream.serdes as serdes
from millstream.errors import BatchSerializationError, SerializationError
from millstream.serdes import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    FLOAT,
    INTEGER,
    JSON,
    LONG,
    SHORT,
    STRING,
    UUID,
    VOID,
    Serde,
    json_of,
    list_of,
    msgpack_of,
)

_CONSTANTS = [
    STRING, BYTES, LONG, INTEGER, SHORT, DOUBLE, FLOAT, BOOLEAN, UUID, VOID, JSON,
]  # fmt: skip


class Order(msgspec.Struct, frozen=True):
    user: str
    amount: int
    note: str | None = None


class Basket(msgspec.Struct, frozen=True):
    items: list[str]


class Open(msgspec.Struct):
    user: str


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: float


class Click(TypedDict):
    user: str
    count: int


def test_exports_are_sorted_and_defined() -> None:
    assert serdes.__all__ == sorted(serdes.__all__)
    assert all(hasattr(serdes, name) for name in serdes.__all__)


@pytest.mark.parametrize("serde", [*_CONSTANTS, json_of(Order), list_of(STRING)])
def test_none_stays_none_in_both_directions(serde: Serde[Any]) -> None:
    """Deletions stay deletions in all serdes, single and in batches."""
    assert serde.serialize("t", None) is None
    assert serde.deserialize("t", None) is None
    assert serde.serialize_many("t", [None, None]) == [None, None]
    assert serde.deserialize_many("t", [None, None]) == [None, None]
    assert serde.serialize_many("t", []) == []
    assert serde.deserialize_many("t", []) == []


@pytest.mark.parametrize("serde", _CONSTANTS)
def test_pickled_constants_are_identical(serde: Serde[Any]) -> None:
    """`is` and `==` hold in other processes, so nodes may check whether a serde is STRING."""
    assert pickle.loads(pickle.dumps(serde)) is serde
    assert cloudpickle.loads(cloudpickle.dumps(serde)) is serde
    assert copy.deepcopy(serde) is serde


def test_a_serde_of_lambdas_runs_in_another_process() -> None:
    """User functions reach Spark's workers. The serde is unpickled by a new interpreter."""
    suffix = b"!"
    serde: Serde[str] = Serde(
        lambda topic, value: value.encode() + suffix, lambda topic, data: data.decode()
    )
    code = (
        "import sys, pickle; a, b = pickle.loads(sys.stdin.buffer.read());"
        "from millstream.serdes import LONG; assert b is LONG;"
        "sys.stdout.buffer.write(a.serialize('t', 'x'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=cloudpickle.dumps((serde, LONG)),
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == b"x!"


def test_pickled_typed_serdes_are_equal() -> None:
    for serde in (json_of(Order), msgpack_of(Order), list_of(json_of(Order)), list_of(LONG)):
        again = cloudpickle.loads(cloudpickle.dumps(serde))
        assert again == serde
        assert hash(again) == hash(serde)
    assert json_of(Order) != msgpack_of(Order)
    other: Any = json_of(Open)
    assert json_of(Order) != other
    assert list_of(LONG) != list_of(DOUBLE)


@pytest.mark.parametrize(
    ("serde", "value", "reason"),
    [
        (STRING, 5, "it requires str"),
        (STRING, b"x", "it requires str"),
        (BYTES, "x", "it requires bytes"),
        (LONG, "1", "it requires int"),
        (LONG, True, "it requires int"),
        (LONG, 1.0, "it requires int"),
        (LONG, 2**63, "from -9223372036854775808 to 9223372036854775807"),
        (INTEGER, -(2**31) - 1, "from -2147483648 to 2147483647"),
        (SHORT, 40_000, "from -32768 to 32767"),
        (DOUBLE, "1", "it requires float"),
        (DOUBLE, False, "it requires float"),
        (DOUBLE, 10**400, "too large for 64 bits"),
        (FLOAT, 1e300, "too large for 32 bits"),
        (BOOLEAN, 1, "it requires bool"),
        (UUID, "123e4567-e89b-12d3-a456-426614174000", "it requires UUID"),
        (VOID, "x", "only None"),
        (JSON, {1: 2}, "str"),
        (JSON, object(), "not JSON serializable"),
        (json_of(Order), {"user": "a", "amount": 1}, "it requires Order"),
        (msgpack_of(Click), 5, "it requires dict"),
        (list_of(STRING), "abc", "it requires list"),
        (list_of(STRING), ["a", 5], "it requires str"),
    ],
)
def test_values_of_the_wrong_type_are_rejected(serde: Serde[Any], value: Any, reason: str) -> None:
    """The error contains the reason and, for batches, the index."""
    with pytest.raises(SerializationError) as one:
        serde.serialize("orders", value)
    assert reason in str(one.value)
    assert serde.name in str(one.value)
    assert one.value.topic == "orders"
    assert one.value.__cause__ is not None
    with pytest.raises(BatchSerializationError) as many:
        serde.serialize_many("orders", [None, value, None])
    assert reason in str(many.value)
    assert many.value.index == 1
    assert many.value.done == [None]


@pytest.mark.parametrize(
    ("serde", "data", "reason"),
    [
        (LONG, b"\x00" * 7, "exactly 8 bytes"),
        (INTEGER, b"", "exactly 4 bytes"),
        (DOUBLE, b"\x00" * 9, "exactly 8 bytes"),
        (BOOLEAN, b"\x02", "one byte, 0 or 1"),
        (BOOLEAN, b"\x00\x00", "one byte, 0 or 1"),
        (UUID, b"123e4567e89b12d3a456426614174000", "text like"),
        (UUID, b"123e4567-e89b-12d3-a456-42661417400g", "ValueError"),
        (VOID, b"", "null"),
        (JSON, b"{", "JSONDecodeError"),
        (JSON, b"", "JSONDecodeError"),
        (json_of(Order), b'{"user":"a"}', "amount"),
        (json_of(Order), b'{"user":"a","amount":"1"}', "amount"),
        (msgpack_of(Order), b"\xc1", "DecodeError"),
        (list_of(LONG), b"", "middle of the list"),
        (list_of(LONG), b"\x07\x00", "first byte is 7"),
        (list_of(LONG), bytes.fromhex("00000000007fffffff"), "does not fit"),
        (list_of(STRING), bytes.fromhex("010000000100000009"), "middle of the list"),
    ],
)
def test_bytes_of_another_format_are_rejected(serde: Serde[Any], data: bytes, reason: str) -> None:
    """The error contains the reason and, for batches, the index."""
    with pytest.raises(SerializationError) as one:
        serde.deserialize("orders", data)
    assert reason in str(one.value)
    assert one.value.__cause__ is not None
    with pytest.raises(BatchSerializationError) as many:
        serde.deserialize_many("orders", [None, data, None])
    assert reason in str(many.value)
    assert many.value.index == 1
    assert many.value.done == [None]


def test_skipping_a_failing_element_does_not_repeat_calls() -> None:
    """A CONTINUE handler can drop one record and go on with the rest."""
    calls: list[bytes] = []

    def parse(topic: str, data: bytes) -> int:
        calls.append(data)
        return int(data)

    serde: Serde[int] = Serde(lambda topic, value: str(value).encode(), parse)
    payloads: list[bytes | None] = [b"1", None, b"x", b"3", b"y"]
    results: list[int | None] = []
    dropped: list[int] = []
    start = 0
    while start < len(payloads):
        try:
            results += serde.deserialize_many("t", payloads[start:])
            break
        except BatchSerializationError as error:
            results += error.done
            dropped.append(start + error.index)
            start += error.index + 1
    assert results == [1, None, 3]
    assert dropped == [2, 4]
    assert calls == [b"1", b"x", b"3", b"y"]


def test_a_pickled_error_omits_its_results() -> None:
    with pytest.raises(BatchSerializationError) as caught:
        LONG.serialize_many("t", [1, "x"])  # type: ignore[list-item]
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert (again.index, again.done, again.topic) == (1, [], "t")


def test_long_values_are_truncated_in_errors() -> None:
    """A payload of a megabyte does not reach the log."""
    with pytest.raises(SerializationError) as caught:
        JSON.deserialize("t", b"{" * 1_000_000)
    assert len(str(caught.value)) < 500
    with pytest.raises(SerializationError) as caught:
        LONG.serialize("t", "x" * 1_000_000)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("serde", "immutable"),
    [
        (STRING, True),
        (BYTES, True),
        (LONG, True),
        (INTEGER, True),
        (SHORT, True),
        (DOUBLE, True),
        (FLOAT, True),
        (BOOLEAN, True),
        (UUID, True),
        (VOID, True),
        (JSON, False),
        (json_of(Order), True),
        (json_of(Open), False),
        (json_of(Basket), False),  # The struct is frozen, but its list is not.
        (json_of(Point), True),
        (json_of(Click), False),
        (json_of(tuple[int, str]), True),
        (json_of(frozenset[int]), True),
        (json_of(tuple[list[int], ...]), False),
        (json_of(list[int]), False),
        (json_of(int), True),
        (msgpack_of(Order | None), True),
        (list_of(STRING), False),
        (Serde(lambda t, v: b"", lambda t, d: None), False),
    ],
)
def test_immutable(serde: Serde[Any], immutable: bool) -> None:
    """The engine omits protective copies for exactly these serdes."""
    assert serde.immutable is immutable


def test_json_keeps_the_order_of_keys() -> None:
    assert JSON.serialize("t", {"b": 1, "a": None}) == b'{"b":1,"a":null}'
    assert JSON.serialize_many("t", [{"b": 1, "a": [None]}]) == [b'{"b":1,"a":[null]}']


def test_only_none_is_serialized_as_a_deletion() -> None:
    """Batches distinguish None from values that orjson writes as null."""
    nan = float("nan")
    assert JSON.serialize_many("t", [nan, None, {}]) == [b"null", None, b"{}"]
    assert JSON.serialize("t", nan) == b"null"
    assert JSON.deserialize("t", b"null") is None


def test_typed_json_of_equal_values_has_equal_bytes() -> None:
    """`json_of` is suitable for keys, whatever the insertion order of a dict."""
    serde = json_of(dict[str, int])
    assert serde.serialize("t", {"b": 1, "a": 2}) == serde.serialize("t", {"a": 2, "b": 1})
    both: list[dict[str, int] | None] = [{"b": 1, "a": 2}, {"a": 2, "b": 1}]
    one, other = serde.serialize_many("t", both)
    assert one == other


def test_subclasses_are_accepted() -> None:
    class Color(enum.IntEnum):
        RED = 1

    class Name(str):
        pass

    class Special(Order, frozen=True):
        pass

    assert LONG.serialize_many("t", [Color.RED, 2]) == LONG.serialize_many("t", [1, 2])
    assert STRING.serialize_many("t", [Name("a")]) == [b"a"]
    assert json_of(Order).serialize_many("t", [Special("a", 1), Order("a", 1), None]) == [
        b'{"user":"a","amount":1,"note":null}',
        b'{"user":"a","amount":1,"note":null}',
        None,
    ]
    assert DOUBLE.serialize_many("t", [1, 1.0]) == [DOUBLE.serialize("t", 1.0)] * 2


def test_mutable_buffers_are_copied() -> None:
    buffer = bytearray(b"ab")
    (data,) = BYTES.serialize_many("t", [buffer])  # type: ignore[list-item]
    buffer[0] = 0
    assert data == b"ab"
    values: list[bytes | None] = [b"a"]
    assert BYTES.serialize_many("t", values) is not values
    assert BYTES.deserialize_many("t", values) is not values


def test_structs_are_decoded_to_their_type() -> None:
    assert json_of(Order).deserialize("t", b'{"user":"a","amount":1,"x":2}') == Order("a", 1)
    assert json_of(Click).deserialize("t", b'{"user":"a","count":1}') == Click(user="a", count=1)
    assert msgpack_of(Point).deserialize(
        "t", msgpack_of(Point).serialize("t", Point(1, 2.0))
    ) == Point(1, 2.0)


def test_reprs_of_serdes() -> None:
    assert repr(STRING) == "STRING"
    assert repr(json_of(Order)) == "json_of(Order)"
    assert repr(list_of(LONG)) == "list_of(LONG)"
    assert repr(msgpack_of(list[int])) == "msgpack_of(list[int])"
    assert uuid.UUID.__name__ in str(UUID)
