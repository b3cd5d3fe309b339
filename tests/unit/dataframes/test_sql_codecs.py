"""Serdes that Spark's own functions can replace, and reasons for the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pytest

from millstream.dataframes.sql_codecs import NoSqlCodecError, sql_codec
from millstream.serdes import BYTES, JSON, STRING, Serde, json_of, list_of, msgpack_of


class Plain(msgspec.Struct):
    """Supported fields only."""

    text: str
    count: int | None = None


@dataclass
class Nested:
    """Dataclasses are supported like structs."""

    plain: Plain
    numbers: dict[str, list[float]]


class Tagged(msgspec.Struct, tag="t"):
    """Has an additional field in JSON."""

    text: str


class Defaulted(msgspec.Struct):
    """Spark does not apply the default."""

    count: int = 3


class Renamed(msgspec.Struct, rename="camel"):
    """The field has another name in JSON."""

    item_count: int


class Bounded(msgspec.Struct):
    """Spark would not check the bound."""

    count: Annotated[int, msgspec.Meta(ge=0)]


class Choice(msgspec.Struct):
    """Spark would not check the choice."""

    color: Literal["red", "blue"]


CUSTOM = Serde(lambda topic, value: value, lambda topic, data: data, name="custom")


@pytest.mark.parametrize(
    "serde", [STRING, BYTES, CUSTOM, json_of(Plain), json_of(Nested), json_of(list[Plain])]
)
def test_supported_serdes(serde: Serde[Any]) -> None:
    assert "data" in sql_codec(serde).decode("data")


@pytest.mark.parametrize(
    ("serde", "reason"),
    [
        (JSON, "needs Python"),
        (list_of(STRING), "needs Python"),
        (msgpack_of(Plain), "needs Python"),
        (json_of(int), "from_json() reads structs, lists and dicts, not BIGINT"),
        (json_of(Tagged), "is tagged"),
        (json_of(Defaulted), "count has a default"),
        (json_of(Renamed), "item_count is named 'itemCount' in JSON"),
        (json_of(Bounded), "has constraints"),
        (json_of(list[Choice]), "color is not a str, int"),
        (json_of(dict[int, str]), "is not a str, int"),
    ],
)
def test_unsupported_serdes_are_rejected_with_a_reason(serde: Serde[Any], reason: str) -> None:
    with pytest.raises(NoSqlCodecError) as raised:
        sql_codec(serde)
    assert reason in str(raised.value)


def test_a_key_needs_the_bytes_of_the_serde() -> None:
    with pytest.raises(NoSqlCodecError, match="the bytes of a key determine its partition"):
        sql_codec(json_of(Plain), exact=True)
