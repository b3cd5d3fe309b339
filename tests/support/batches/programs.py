"""Random topologies as data, for both the engine's topology and the oracle's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from millstream.record import Headers


@dataclass(frozen=True)
class Op:
    """One operation: its name, its parents (by index), and the function that it uses."""

    name: str
    parents: tuple[int, ...]
    function: int = 0
    text: str = ""


@dataclass(frozen=True)
class Event:
    """An input record."""

    topic: str
    key: str | None
    value: str | None
    timestamp: int
    headers: Headers = ()


Program = tuple[Op, ...]

PREDICATES: list[Callable[[Any, Any], bool]] = [
    lambda k, v: v is not None and len(v) % 2 == 0,
    lambda k, v: k is not None and "a" in k,
    lambda k, v: v is None or not v.startswith("b"),
]
VALUE_MAPPERS: list[Callable[[Any], Any]] = [
    lambda v: None if v is None else v.upper(),
    lambda v: f"<{v}>",
    lambda v: None if v == "b" else v,
]
FLAT_VALUE_MAPPERS: list[Callable[[Any], list[Any]]] = [
    lambda v: [] if v is None else list(v)[:3],
    lambda v: [v, f"{v}'"],
    lambda v: [] if v == "a" else [v],
]
PAIR_MAPPERS: list[Callable[[Any, Any], tuple[Any, Any]]] = [
    lambda k, v: (v, k),
    lambda k, v: (k, f"{k}{v}"),
    lambda k, v: ("x", v),
]
KEY_SELECTORS: list[Callable[[Any, Any], Any]] = [
    lambda k, v: v,
    lambda k, v: None if k == "b" else k,
    lambda k, v: "x",
]
FLAT_PAIR_MAPPERS: list[Callable[[Any, Any], list[tuple[Any, Any]]]] = [
    lambda k, v: [(k, v), (v, k)],
    lambda k, v: [] if k is None else [(k + "1", v), (k + "2", v), (k, None)],
    lambda k, v: [(c, v) for c in (v or "")[:2]],
]
REDUCERS: list[Callable[[str, str], str | None]] = [
    lambda a, v: a + v,
    lambda a, v: None if v.startswith("b") else a + v,
    lambda a, v: max(a, v),
]


def collect_in_place(key: Any, value: str, aggregate: list[str]) -> list[str]:
    """An aggregator that modifies the aggregate in place, as Python code often does."""
    aggregate.append(value)
    return aggregate


TOPICS = ("in-0", "in-1")
STATELESS = ("filter", "map_values", "flat_map_values", "peek", "map", "select_key", "flat_map")
STATEFUL = ("count", "reduce", "aggregate")
KEY_CHANGING = frozenset({"map", "select_key", "flat_map"})


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """A topology whose paths fork, merge and end in several sinks on few topics."""
    ops: list[Op] = [Op("stream", (), text=topic) for topic in TOPICS[: draw(st.integers(1, 2))]]
    keyed = [True] * len(ops)
    for _ in range(draw(st.integers(1, 8))):
        parent = draw(st.integers(0, len(ops) - 1))
        kind = draw(st.sampled_from([*STATELESS, *STATELESS, "merge", "branch", *STATEFUL]))
        number = draw(st.integers(0, 2))
        if kind == "merge":
            other = draw(st.integers(0, len(ops) - 1))
            ops.append(Op("merge", (parent, other)))
            keyed.append(keyed[parent] and keyed[other])
        elif kind == "branch":
            ops.append(Op("branch", (parent,), number))
            ops.append(Op("otherwise", (len(ops) - 1,), number))
            keyed += [keyed[parent]] * 2
        elif kind in STATEFUL and not keyed[parent]:
            continue
        else:
            ops.append(Op(kind, (parent,), number))
            keyed.append(keyed[parent] and kind not in KEY_CHANGING)
    ends = draw(st.lists(st.integers(0, len(ops) - 1), min_size=1, max_size=4))
    ops += [Op("to", (end,), text=draw(st.sampled_from(["out-0", "out-1"]))) for end in ends]
    return tuple(ops)


@st.composite
def events(draw: st.DrawFn) -> list[Event]:
    """Input records with few keys, close and equal timestamps, nulls, and sometimes headers."""
    words = st.sampled_from(["a", "b", "ab", "ba", "abc", "bbb", None])
    keys = st.sampled_from(["a", "b", "ab", "a", "b", None])
    headers = st.sampled_from([(), (), (), (("h", b"1"),), (("h", b"2"), ("n", None))])
    event = st.builds(Event, st.sampled_from(TOPICS), keys, words, st.integers(0, 6), headers)
    # With a predetermined size, lists are longer than if they may end at any element.
    size = draw(st.integers(0, 30))
    return draw(st.lists(event, min_size=size, max_size=size))
