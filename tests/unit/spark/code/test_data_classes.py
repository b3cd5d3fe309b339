"""Classes with generated serdes work in a worker that cannot import them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: A user's script: it makes serdes of its own classes, tests them, and ships the test.
SCRIPT = """
import enum, sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Generic, NamedTuple, Optional
from typing import Required, TypedDict, TypeVar, Union

import msgspec

from millstream.serdes import json_of, msgpack_of
from millstream.spark.code.shipping import ship

T = TypeVar("T")

class Colour(enum.Enum):
    RED = "red"

class Line(msgspec.Struct, frozen=True, order=True):
    item: str
    count: Annotated[int, msgspec.Meta(ge=0)] = 1
    colour: Colour = Colour.RED

class Event(msgspec.Struct, tag=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    KIND: ClassVar[str] = "event"
    order_id: str

    def __post_init__(self):
        self.order_id = self.order_id.upper()

class Order(Event, omit_defaults=True, dict=True):
    lines: list[Line] = []
    parent: Optional["Order"] = None
    number: int = msgspec.field(name="no", default=0)
    tags: set[str] = msgspec.field(default_factory=lambda: {"new"})

    def copied(self):
        return SERDE.deserialize("t", SERDE.serialize("t", self))

class Cancelled(Event):
    why: str

    def __post_init__(self):
        super().__post_init__()
        self.why = self.why.strip()

class Box(msgspec.Struct, Generic[T], array_like=True, gc=False):
    content: T

@dataclass(frozen=True, slots=True)
class Basket:
    lines: Mapping[str, Line] = field(default_factory=dict)
    within: "Basket | None" = None

class Pair(NamedTuple):
    line: Line
    count: int = 2

class Row(TypedDict, total=False):
    id: Required[int]
    line: Line

SERDE = json_of(Order)

def attempt():
    line = Line("tea", colour=Colour.RED)
    order = Order(order_id="a", lines=[line], parent=Order(order_id="b"), number=3)
    samples = [
        (Line, line), (Union[Order, Cancelled], order), (Box[int], Box(3)), (Colour, Colour.RED),
        (Union[Order, Cancelled], Cancelled(order_id="c", why=" no ")),
        (Basket, Basket({"k": line}, Basket())), (Pair, Pair(line)), (Row, {"id": 1, "line": line}),
    ]
    results = []
    for kind, value in samples:
        for serde in (json_of(kind), msgpack_of(kind)):
            data = serde.serialize("t", value)
            assert serde.deserialize("t", data) == value, (kind, data)
            results.append(data)
    assert order.copied() == order and order.tags == {"new"} and Order.KIND == "event"
    assert sorted([Line("b"), Line("a")])[0] == Line("a") and hash(line) == hash(Line("tea"))
    try:
        json_of(Line).deserialize("t", b'{"item":"tea","count":-1}')
    except Exception as error:
        results.append(str(error))
    return results

if __name__ == "__main__":
    print(attempt())
    with open(sys.argv[1], "wb") as file:
        file.write(ship(attempt, "attempt"))
"""

LOAD = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb'))())"


def run(*arguments: str) -> str:
    command = [sys.executable, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.extended
@pytest.mark.parametrize("first", ["", "from __future__ import annotations"], ids=["types", "text"])
def test_classes_of_the_main_script_work_in_a_worker(first: str, tmp_path: Path) -> None:
    """Goal: a serde behaves in a worker as in the driver.

    Method: a script with all kinds of classes that msgspec supports, with options, defaults, and
    references to each other and to themselves; a new process that cannot import it must produce the
    same output.
    """
    (tmp_path / "script.py").write_text(first + SCRIPT)
    output = run(str(tmp_path / "script.py"), str(tmp_path / "attempt.pickle"))
    assert "Expected `int` >= 0" in output
    assert run("-I", "-c", LOAD, str(tmp_path / "attempt.pickle")) == output
