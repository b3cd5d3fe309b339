"""Serdes as columns: Spark's types, and lossless conversion of bytes."""

from __future__ import annotations

import enum
import json
import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple, Required, TypedDict

import msgspec
import pyarrow as pa
import pytest

from millstream.errors import SerializationError
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
    avro,
    json_of,
    json_schema,
    list_of,
    msgpack_of,
    protobuf,
    session_windowed,
    time_windowed,
)
from millstream.spark.columns.serde_columns import column_of
from millstream.windowed import Window, Windowed


class Color(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    SMALL = 1


class Place(msgspec.Struct, rename="camel", frozen=True):
    street_name: str
    floor: int | None = None


class Point(NamedTuple):
    x: int
    y: float


class Options(TypedDict, total=False):
    gift: Required[bool]
    note: str


class Tree(msgspec.Struct):
    name: str
    children: list[Tree] = []


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    name: str


PET: Any = Cat | Dog


class Pair(msgspec.Struct, array_like=True, tag="pair"):
    left: int
    right: str


@dataclass
class Everything:
    number: int
    ratio: float
    text: str
    data: bytes
    yes: bool
    when: datetime
    day: date
    hour: time
    span: timedelta
    price: Decimal
    who: uuid.UUID
    color: Color
    size: Size
    odd: Literal["a", 2]
    level: Literal["low", "high"]
    place: Place
    options: Options
    point: Point
    pair: tuple[int, str]
    packed: Pair
    tree: Tree
    pet: Cat | Dog
    mixed: int | float
    anything: Any
    maybe: str | None = None
    many: list[Place | None] = field(default_factory=list)
    by_name: dict[str, Place] = field(default_factory=dict)
    lists: dict[str, list[int]] = field(default_factory=dict)
    tags: set[str] = field(default_factory=set)
    naive: datetime | None = None
    quiet: int = 7


EVERYTHING = Everything(
    number=-5,
    ratio=1.5,
    text="Straße",
    data=b"\x00\xff",
    yes=True,
    when=datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC),
    day=date(2026, 1, 2),
    hour=time(3, 4, 5),
    span=timedelta(days=1, milliseconds=3),
    price=Decimal("12.50"),
    who=uuid.UUID(int=7),
    color=Color.RED,
    size=Size.SMALL,
    odd=2,
    level="low",
    place=Place("Main", 3),
    options={"gift": True},
    point=Point(1, 2.5),
    pair=(1, "a"),
    packed=Pair(3, "x"),
    tree=Tree("root", [Tree("leaf")]),
    pet=Dog("Rex"),
    mixed=2,
    anything={"n": [1, None]},
    many=[Place("A"), None],
    by_name={"home": Place("Home", 1)},
    lists={"a": [1, 2], "b": []},
    tags={"x"},
)

SHOP = {
    "type": "record",
    "name": "Shop",
    "namespace": "a.b",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "maybe", "type": ["null", "long"], "default": None},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "again", "type": "Kind"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "stock", "type": {"type": "map", "values": "float"}},
        {"name": "either", "type": ["int", "string"]},
        {"name": "next", "type": ["null", "Shop"], "default": None},
    ],
}

TYPES = [
    (STRING, "string"),
    (UUID, "string"),
    (JSON, "string"),
    (BYTES, "binary"),
    (LONG, "bigint"),
    (INTEGER, "int"),
    (SHORT, "smallint"),
    (DOUBLE, "double"),
    (FLOAT, "float"),
    (BOOLEAN, "boolean"),
    (VOID, "void"),
    (Serde(lambda topic, v: v, lambda topic, data: data), "binary"),
    (list_of(list_of(STRING)), "array<array<string>>"),
    (json_of(dict[str, list[float]]), "map<string,array<double>>"),
    (msgpack_of(int), "bigint"),
    (json_of(Place), "struct<street_name:string,floor:bigint>"),
    (json_of(Tree), "struct<name:string,children:array<string>>"),
    (json_of(PET), "string"),
    (
        time_windowed(LONG, timedelta(minutes=1)),
        "struct<key:bigint,window_start:timestamp,window_end:timestamp>",
    ),
    (
        session_windowed(json_of(Place)),
        "struct<key:struct<street_name:string,floor:bigint>,"
        "window_start:timestamp,window_end:timestamp>",
    ),
    (
        avro(SHOP, "mock://columns"),
        "struct<n:int,maybe:bigint,kind:string,again:string,at:timestamp,price:decimal(9,2),"
        "tags:array<string>,stock:map<string,float>,either:string,next:string>",
    ),
    (avro(None, "mock://columns"), "binary"),
    (avro("long", "mock://columns"), "bigint"),
]


@pytest.mark.parametrize(("serde", "expected"), TYPES, ids=lambda each: str(each)[:60])
def test_serdes_have_types(serde: Serde[Any], expected: str) -> None:
    """The Spark type of each serde, and the type of its columns for conversion."""
    column = column_of(serde)
    assert column.spark_type.simpleString() == expected
    array = column.decode("topic", [None, None])
    assert array.type == column.arrow_type
    assert array.to_pylist() == [None, None]


VALUES: list[tuple[Serde[Any], list[Any], list[Any] | None]] = [
    (STRING, ["a", None, "Straße"], ["a", None, "Straße"]),
    (BYTES, [b"a", None, b""], [b"a", None, b""]),
    (LONG, [2**63 - 1, None, -1], [2**63 - 1, None, -1]),
    (SHORT, [1, -1], [1, -1]),
    (DOUBLE, [1.5, None], [1.5, None]),
    (BOOLEAN, [True, None, False], [True, None, False]),
    (UUID, [uuid.UUID(int=7), None], ["00000000-0000-0000-0000-000000000007", None]),
    (JSON, [{"b": 1, "a": [1.5]}, None, "x"], ['{"b":1,"a":[1.5]}', None, '"x"']),
    (list_of(LONG), [[1, None], [], None], [[1, None], [], None]),
    (
        time_windowed(STRING, timedelta(minutes=1)),
        [Windowed("k", Window(60_000, 120_000))],
        [
            {
                "key": "k",
                "window_start": datetime(1970, 1, 1, 0, 1, tzinfo=UTC),
                "window_end": datetime(1970, 1, 1, 0, 2, tzinfo=UTC),
            }
        ],
    ),
    (
        json_of(Place),
        [Place("Main", 3), None, Place("Side")],
        [{"street_name": "Main", "floor": 3}, None, {"street_name": "Side", "floor": None}],
    ),
    (msgpack_of(dict[str, int]), [{"a": 1}, {}, None], [[("a", 1)], [], None]),
    (json_of(PET), [Cat(9), Dog("Rex")], None),
]


@pytest.mark.parametrize(("serde", "values", "expected"), VALUES, ids=lambda each: str(each)[:40])
def test_bytes_survive_the_conversion_to_columns(
    serde: Serde[Any], values: list[Any], expected: list[Any] | None
) -> None:
    """Bytes of a serde become a column, and the column the same bytes."""
    datas = serde.serialize_many("topic", values)
    column = column_of(serde)
    array = column.decode("topic", datas)
    if expected is not None:
        assert array.to_pylist() == expected
    assert column.encode("topic", array) == datas
    assert column.decode("topic", pa.array(datas, pa.large_binary())) == array
    part = pa.array([b"x", *datas], pa.binary()).slice(1)
    assert column.decode("topic", part) == array
    # Also for a slice of a column, and for one with several chunks.
    assert column.encode("topic", array.slice(1)) == datas[1:]
    assert column.encode("topic", pa.chunked_array([array.slice(0, 1), array.slice(1)])) == datas


def test_invalid_text_is_decoded_as_by_the_serde() -> None:
    """Bytes that are not UTF-8 are decoded as STRING does."""
    datas = [b"a", b"\xff", None]
    array = column_of(STRING).decode("words", datas)
    assert array.to_pylist() == STRING.deserialize_many("words", datas)


@pytest.mark.parametrize("maker", [json_of, msgpack_of])
def test_a_class_with_all_annotations_survives_the_conversion(maker: Any) -> None:
    """Every kind of annotation has a column, and the conversion back yields an equal object."""
    serde = maker(Everything)
    column = column_of(serde)
    datas = serde.serialize_many("topic", [EVERYTHING, None])
    array = column.decode("topic", datas)
    (row, nothing) = array.to_pylist()
    assert nothing is None
    assert row["when"] == EVERYTHING.when
    assert row["price"] == Decimal("12.5")
    assert (row["color"], row["size"], row["odd"]) == ("red", 1, "2")
    assert row["pair"] == {"_1": 1, "_2": "a"}
    assert row["pet"] == '{"type":"Dog","name":"Rex"}'
    assert row["anything"] == '{"n":[1,null]}'
    assert row["many"] == [{"street_name": "A", "floor": None}, None]
    back = serde.deserialize("topic", column.encode("topic", array)[0])
    assert back == EVERYTHING


def test_a_null_leaves_out_a_field_with_a_default() -> None:
    """If a field with a default does not accept None, a null leaves the field out."""
    column = column_of(json_of(Options))
    array = pa.array([{"gift": True, "note": None}], column.arrow_type)
    assert column.encode("topic", array) == [b'{"gift":true}']


@pytest.mark.parametrize(
    "given",
    [
        avro(SHOP, "mock://columns"),
        json_schema(
            {
                "title": "Shop",
                "type": "object",
                "required": ["n"],
                "properties": {
                    "n": {"type": "integer"},
                    "note": {"type": "string"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "stock": {"type": "object", "additionalProperties": {"type": "number"}},
                    "part": {"$ref": "#/$defs/part"},
                },
                "$defs": {"part": {"type": "object", "properties": {"x": {"type": "number"}}}},
            },
            "mock://columns",
        ),
    ],
)
def test_schema_values_survive_the_conversion(given: Serde[Any]) -> None:
    """Values of Avro and JSON Schema become columns, and the same values again."""
    values: list[Any] = [
        {
            "n": 1,
            "maybe": None,
            "kind": "A",
            "again": "B",
            "at": datetime(2026, 1, 2, tzinfo=UTC),
            "price": Decimal("1.25"),
            "tags": ["x"],
            "stock": {"a": 1.5},
            "either": "text",
            "next": None,
        },
        {"n": 2, "tags": [], "stock": {}, "part": {"x": 1.5}},
    ]
    value = values[0] if given.name.startswith("avro") else values[1]
    column = column_of(given)
    datas = given.serialize_many("columns", [value, None])
    array = column.decode("columns", datas)
    assert array.to_pylist()[0]["n"] == value["n"]
    assert given.deserialize_many("columns", column.encode("columns", array)) == [value, None]


def test_protobuf_messages_survive_the_conversion() -> None:
    """Protobuf messages become columns by their descriptor, and equal messages again."""
    from google.protobuf.struct_pb2 import Value
    from google.protobuf.timestamp_pb2 import Timestamp
    from google.protobuf.type_pb2 import Enum, EnumValue

    message = Enum(name="Kind", enumvalue=[EnumValue(name="A", number=1)], syntax="SYNTAX_PROTO3")
    column = column_of(protobuf(Enum, "mock://columns"))
    array = column.array_of("enums", [message, None])
    row = array.to_pylist()[0]
    assert (row["name"], row["syntax"]) == ("Kind", "SYNTAX_PROTO3")
    assert row["enumvalue"] == [{"name": "A", "number": 1, "options": []}]
    assert row["source_context"] is None
    assert column.values("enums", array) == [message, None]

    time_column = column_of(protobuf(Timestamp, "mock://columns"))
    assert time_column.spark_type.simpleString() == "struct<seconds:bigint,nanos:int>"
    assert "struct_value:string" in column_of(
        protobuf(Value, "mock://columns")
    ).spark_type.simpleString().replace("struct<fields:map<string,string>>", "string")


@pytest.mark.parametrize(
    ("serde", "datas", "pattern"),
    [
        (LONG, [b"a"], "LONG cannot deserialize 1 bytes"),
        (json_of(Place), [b"{}"], "missing required field `streetName`"),
        (json_of(int), [str(2**63).encode()], "do not fit the column's type bigint"),
        (json_of(Decimal), [json.dumps("1e30").encode()], r"the column's type decimal\(38,18\)"),
    ],
)
def test_invalid_bytes_are_reported(
    serde: Serde[Any], datas: list[bytes | None], pattern: str
) -> None:
    """The error names the serde, the invalid bytes, and the topic."""
    with pytest.raises(SerializationError, match=pattern) as caught:
        column_of(serde).decode("words", datas)
    assert caught.value.topic == "words"


@pytest.mark.parametrize(
    ("serde", "array", "pattern"),
    [
        (LONG, pa.array(["x"]), "a column of type string does not fit LONG"),
        (SHORT, pa.array([70_000]), "requires smallint"),
        (BOOLEAN, pa.array([[1]]), "requires boolean"),
        (JSON, pa.array(["{"]), "does not fit JSON"),
        (
            json_of(Place),
            pa.array([{"street_name": None, "floor": 1}]),
            r"Expected `str`, got `null`",
        ),
    ],
)
def test_columns_of_the_wrong_type_are_reported(
    serde: Serde[Any], array: Any, pattern: str
) -> None:
    """The error names the serde, the column's type, and the required type."""
    with pytest.raises(SerializationError, match=pattern):
        column_of(serde).encode("words", array)
