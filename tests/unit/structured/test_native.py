"""Which serdes Spark's own functions can stand in for, and why others not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pytest

from millstream.serdes import BYTES, JSON, STRING, Serde, json_of, list_of, msgpack_of
from millstream.structured.native import NotNativeError, native_column


class Plain(msgspec.Struct):
    """All that it may have."""

    text: str
    count: int | None = None


@dataclass
class Nested:
    """A dataclass is as good as a struct."""

    plain: Plain
    numbers: dict[str, list[float]]


class Tagged(msgspec.Struct, tag="t"):
    """Has one field more in JSON."""

    text: str


class Defaulted(msgspec.Struct):
    """Spark does not know the default."""

    count: int = 3


class Renamed(msgspec.Struct, rename="camel"):
    """JSON calls the field otherwise."""

    item_count: int


class Bounded(msgspec.Struct):
    """Nobody would look at the bound."""

    count: Annotated[int, msgspec.Meta(ge=0)]


class Chosen(msgspec.Struct):
    """Nobody would look whether it is one of them."""

    color: Literal["red", "blue"]


OWN = Serde(lambda topic, value: value, lambda topic, data: data, name="own")


@pytest.mark.parametrize(
    "serde", [STRING, BYTES, OWN, json_of(Plain), json_of(Nested), json_of(list[Plain])]
)
def test_spark_itself_knows(serde: Serde[Any]) -> None:
    assert "data" in native_column(serde).decode("data")


@pytest.mark.parametrize(
    ("serde", "told"),
    [
        (JSON, "is read by Python"),
        (list_of(STRING), "is read by Python"),
        (msgpack_of(Plain), "is read by Python"),
        (json_of(int), "from_json() reads structs, lists and dicts, not BIGINT"),
        (json_of(Tagged), "is tagged"),
        (json_of(Defaulted), "count has a default"),
        (json_of(Renamed), "item_count is called 'itemCount' in JSON"),
        (json_of(Bounded), "has bounds"),
        (json_of(list[Chosen]), "color is no str, int"),
        (json_of(dict[int, str]), "is no str, int"),
    ],
)
def test_what_only_python_reads_is_refused_with_the_reason(serde: Serde[Any], told: str) -> None:
    with pytest.raises(NotNativeError) as raised:
        native_column(serde)
    assert told in str(raised.value)


def test_a_key_needs_the_bytes_of_the_serde() -> None:
    with pytest.raises(NotNativeError, match="a key's bytes say where it belongs"):
        native_column(json_of(Plain), exact=True)
