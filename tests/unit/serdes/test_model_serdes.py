"""`json_of` for pydantic models, and unsupported types."""

from __future__ import annotations

import dataclasses
import numbers
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec
import pydantic
import pytest

from millstream import Materialized, StreamsBuilder
from millstream.errors import BatchSerializationError, SerializationError
from millstream.serdes import STRING, json_of, msgpack_of
from millstream.testing import TopologyTestDriver
from millstream.tools.serde_shapes import differences, shape_of


class Line(pydantic.BaseModel):
    item: str
    count: int = pydantic.Field(gt=0)


class Order(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)

    user: str
    lines: list[Line] = []
    placed_by: str = pydantic.Field(default="-", alias="placedBy")


class Orders(pydantic.RootModel[list[Order]]):
    pass


class Plain:
    def __init__(self, user: str) -> None:
        self.user = user


@dataclasses.dataclass
class Holder:
    plain: Plain | None


class Listing(msgspec.Struct):
    orders: dict[str, list[Order]]


_ORDER = Order(user="ann", lines=[Line(item="tea", count=2)], placedBy="bob")
_BYTES = b'{"user":"ann","lines":[{"item":"tea","count":2}],"placedBy":"bob"}'


def test_pydantic_models_are_read_and_written() -> None:
    """With the aliases of their fields."""
    serde = json_of(Order)
    assert serde.serialize("orders", _ORDER) == _BYTES
    assert serde.deserialize("orders", _BYTES) == _ORDER
    assert serde.serialize_many("orders", [_ORDER, None]) == [_BYTES, None]
    assert serde.deserialize_many("orders", [None, _BYTES]) == [None, _ORDER]
    assert repr(serde) == "json_of(Order)"
    whole = json_of(Orders)
    assert whole.deserialize("t", whole.serialize("t", Orders([_ORDER]))) == Orders([_ORDER])


def test_models_are_validated() -> None:
    """A validation error is a SerializationError with the reason and the location."""
    serde = json_of(Order)
    with pytest.raises(
        SerializationError,
        match=r"json_of\(Order\).*: lines.0.count: Input should be greater than 0\. The data",
    ):
        serde.deserialize("orders", b'{"user":"ann","lines":[{"item":"tea","count":0}]}')
    with pytest.raises(BatchSerializationError, match=r"json_of\(Order\).*user") as caught:
        serde.deserialize_many("orders", [_BYTES, b"{}"])
    assert (caught.value.index, caught.value.done) == (1, [_ORDER])
    other: Any = Line(item="tea", count=1)
    with pytest.raises(SerializationError, match="it requires Order"):
        serde.serialize("orders", other)


def test_serdes_of_models_are_equal_and_picklable() -> None:
    other: Any = json_of(Line)
    assert json_of(Order) == json_of(Order)
    assert json_of(Order) != other
    assert len({json_of(Order), json_of(Order), other}) == 2
    for module in (pickle, cloudpickle):
        assert module.loads(module.dumps(json_of(Order))) == json_of(Order)


def test_a_model_of_the_main_script_reaches_another_process(tmp_path: Path) -> None:
    """Classes of the main script are pickled by value, and pydantic builds their validators
    again."""
    script = tmp_path / "main.py"
    script.write_text(
        "import sys, cloudpickle, pydantic\n"
        "from millstream.serdes import json_of\n"
        "class Order(pydantic.BaseModel):\n"
        "    user: str\n"
        "    amount: int = pydantic.Field(gt=0)\n"
        "sys.stdout.buffer.write(cloudpickle.dumps(json_of(Order)))\n"
    )
    sent = subprocess.run([sys.executable, script], capture_output=True, check=True, timeout=60)
    serde = cloudpickle.loads(sent.stdout)
    assert serde.deserialize("t", b'{"user":"ann","amount":"5"}').amount == 5
    with pytest.raises(SerializationError, match="greater than 0"):
        serde.deserialize("t", b'{"user":"ann","amount":0}')


def test_models_in_a_topology() -> None:
    """Aggregates that change in place are stored as they were written."""
    builder = StreamsBuilder()
    orders = builder.stream("in", key=STRING, value=json_of(Line))

    def added(key: str, line: Line, order: Order) -> Order:
        order.lines.append(line)
        return order

    store = Materialized("o", key=STRING, value=json_of(Order))
    orders.group_by_key().aggregate(lambda: Order(user="-"), added, store=store)
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", key=STRING, value=json_of(Line))
        for count in (1, 2):
            topic.pipe_input("ann", Line(item="tea", count=count))
        kept = driver.get_state_store("o").get("ann")
    assert [line.count for line in kept.value.lines] == [1, 2]


def test_the_upgrade_check_compares_models() -> None:
    """The fields of models have a shape, like those of structs."""

    class Later(pydantic.BaseModel):
        user: str
        lines: list[Line] = []
        placed_by: int = pydantic.Field(alias="placedBy")

    old, new = shape_of(json_of(Order)), shape_of(json_of(Later))
    assert old is not None
    assert new is not None
    found = {each.what: each.readable for each in differences(old, new)}
    assert found["placedBy was string and would be integer"] is False
    assert found["field placedBy may be missing, but would be required"] is False


@pytest.mark.parametrize("maker", [json_of, msgpack_of])
@pytest.mark.parametrize(
    ("of", "reason"),
    [
        ("Order", r"requires a type, but 'Order' is a name: pass the class itself"),
        (5, r"\(5\): the type cannot be read and written: Type '5' is not supported"),
        (Plain, r"\(Plain\): the type cannot .* Plain is a class without declared fields"),
        (list[Plain], r"which contains Plain, cannot .* Make it a dataclass"),
        (Holder, r"\(Holder\): the type, which contains Plain, cannot"),
        (Listing, r"which contains Order, cannot .* example pydantic.RootModel\[list\[Order\]\]"),
        (list[Order], r"which contains Order, cannot"),
        (complex, r"complex is a class without declared fields"),
    ],
)
def test_unsupported_types_are_rejected(maker: Callable[..., Any], of: Any, reason: str) -> None:
    """When the serde is created, not at the first record."""
    with pytest.raises(TypeError, match=reason):
        maker(of)


def test_general_types_are_accepted() -> None:
    """They are read as the JSON value's own type."""
    for of in (object, numbers.Number, list[Any]):
        value: Any = [1] if of == list[Any] else 1
        serde: Any = json_of(of)
        assert serde.deserialize("t", serde.serialize("t", value)) == value


def test_recursive_types_are_accepted() -> None:
    """The search for unsupported fields terminates."""
    assert json_of(Tree).deserialize("t", b'{"below":[{"below":[]}]}') == Tree([Tree([])])


class Tree(msgspec.Struct):
    below: list[Tree]


def test_messagepack_of_a_model_is_rejected() -> None:
    with pytest.raises(TypeError, match=r"only supports JSON: use json_of\(Order\)"):
        msgpack_of(Order)


def test_pydantic_1_models_are_rejected() -> None:
    base = type("BaseModel", (), {"__module__": "pydantic.main"})
    with pytest.raises(TypeError, match=r"Old is a pydantic 1 model"):
        json_of(type("Old", (base,), {}))
