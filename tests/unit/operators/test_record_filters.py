"""Records without a key or a value are dropped; other values need no special methods."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from millstream.operators.aggregates.aggregate import StreamReduceOperator
from millstream.serdes import STRING, Serde
from millstream.testing import TopologyTestDriver
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.options.windows import SlidingWindows


class Array:
    """Like an array of numpy: a comparison returns an array, which is neither true nor false."""

    def __init__(self, text: str) -> None:
        self.text = text

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise ValueError("The truth value of an array is ambiguous.")


ARRAY: Serde[Array] = Serde(
    lambda _, array: array.text.encode(), lambda _, data: Array(data.decode())
)


def newest(_: Array, value: Array) -> Array:
    return value


def reduced(builder: StreamsBuilder) -> Any:
    stream = builder.stream("in", key=STRING, value=ARRAY)
    return stream.group_by_key().reduce(newest).to_stream()


def in_windows(builder: StreamsBuilder) -> Any:
    groups = builder.stream("in", key=STRING, value=ARRAY).group_by_key()
    windows = groups.windowed_by(SlidingWindows(timedelta(0))).reduce(newest)
    return windows.to_stream(lambda window, _: window.key)


def joined(builder: StreamsBuilder) -> Any:
    table = builder.table("table", key=STRING, value=ARRAY)
    stream = builder.stream("in", key=STRING, value=ARRAY)
    return stream.left_join(table, lambda value, _: value)


@pytest.mark.parametrize("program", [reduced, in_windows, joined])
def test_values_need_no_comparison(program: Callable[[StreamsBuilder], Any]) -> None:
    builder = StreamsBuilder()
    program(builder).to("out", key=STRING, value=ARRAY)
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", key=STRING, value=ARRAY)
        topic.pipe_input("k", Array("1"), timestamp=1)
        topic.pipe_input("k", None, timestamp=2)
        out = driver.create_output_topic("out", key=STRING, value=STRING)
        assert len(out.read_values()) == 1


def test_incomplete_records_are_counted(make_bench: Any) -> None:
    run = make_bench(StreamReduceOperator("S", lambda one, other: one + other), store=STRING)
    assert [
        emitted.value for emitted in run.feed(("a", "1", 1), (None, "2", 2), ("a", None, 3))
    ] == ["1"]
    assert run.drops.total == 2
