"""Hints for names of Faust, Quix Streams, pandas and Java's Kafka Streams."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pytest

from millstream import GlobalKTable, KStream, KTable, StreamsBuilder, TimeWindows
from millstream.serdes import STRING
from millstream.topology.dsl import migration_hints

_TEXT: Any = {"key": STRING, "value": STRING}


def builder() -> Any:
    return StreamsBuilder()


def stream() -> Any:
    return StreamsBuilder().stream("in", **_TEXT)


def table() -> Any:
    return StreamsBuilder().table("in", **_TEXT)


@pytest.mark.parametrize(
    ("use", "advice"),
    [
        (lambda: stream().count(), r"group the stream first: stream.group_by_key\(\).count\("),
        (lambda: stream().apply(str), r"stream.map_values\(lambda value"),
        (lambda: stream().mapValues(str), r"in Python the name is map_values\(\)"),
        (lambda: stream().tumbling_window(5), r"group_by_key\(\).windowed_by\(TimeWindows"),
        (lambda: stream().to_topic("x"), r"use stream.to\(topic\)"),
        (lambda: table().to("x"), r"use table.to_stream\(\)"),
        (lambda: table().peek(print), r"use table.to_stream\(\)"),
        (lambda: table().count(), r"group the table first"),
        (lambda: table().get("k"), r"streams.store\(name\)"),
        (lambda: stream().group_by_key().sum("x"), r"fold values with .reduce\("),
        (lambda: stream().group_by_key().to("x"), r"aggregate it first"),
        (lambda: stream().group_by_key().windowedBy(1), r"the name is windowed_by\(\)"),
        (lambda: builder().topic("x"), r"use builder.stream\(topic\)"),
        (lambda: builder().globalTable("x"), r"the name is global_table\(\)"),
        (
            lambda: StreamsBuilder().global_table("x", store="x", **_TEXT).to_stream(),  # type: ignore[attr-defined]
            r"can only be joined",
        ),
    ],
)
def test_hints_for_names_of_other_libraries(use: Callable[[], Any], advice: str) -> None:
    """The AttributeError contains our equivalent."""
    with pytest.raises(AttributeError, match=f"has no attribute .*: .*{advice}"):
        use()


def test_hints_for_subscripts_and_loops() -> None:
    """`stream["column"]`, `table[key]` and `for record in stream` raise errors with advice."""
    with pytest.raises(TypeError, match=r"no columns: .*map_values\(.*value\['price'\]"):
        stream()["price"]
    with pytest.raises(TypeError, match=r"read rows with streams.store\(name\)"):
        table()["key"]
    with pytest.raises(TypeError, match=r"KStream objects cannot be iterated: use for_each"):
        list(stream())
    assert not isinstance(stream(), Iterable)


def test_unknown_names_raise_ordinary_errors() -> None:
    """hasattr, getattr with a default, copy and inspection work as on other objects."""
    for each in (stream(), table(), stream().group_by_key(), builder()):
        assert not hasattr(each, "nonsense")
        assert getattr(each, "count_all", None) is None
        assert not hasattr(each, "__len__")
        with pytest.raises(AttributeError, match=r"has no attribute 'nonsense'$") as caught:
            _ = each.nonsense
        assert (caught.value.name, caught.value.obj) == ("nonsense", each)
        assert "filter" in dir(each) or not isinstance(each, KStream | KTable)
        copy.copy(each)
        inspect.getmembers(each)


def test_a_failing_property_of_a_subclass_keeps_its_error() -> None:
    class Shop(StreamsBuilder):
        @property
        def orders(self) -> Any:
            return self.missing  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="'Shop' object has no attribute 'missing'"):
        _ = Shop().orders


def test_no_hint_has_the_name_of_a_method() -> None:
    """A hint for an attribute that exists would never be shown."""
    windowed = stream().group_by_key().windowed_by(TimeWindows(timedelta(minutes=1)))
    kinds: list[tuple[type, Any]] = [
        (KStream, migration_hints.STREAM_HINTS),
        (KTable, migration_hints.TABLE_HINTS),
        (GlobalKTable, migration_hints.GLOBAL_TABLE_HINTS),
        (StreamsBuilder, migration_hints.BUILDER_HINTS),
        (type(stream().group_by_key()), migration_hints.GROUP_HINTS),
        (type(windowed), migration_hints.GROUP_HINTS),
    ]
    for kind, hints in kinds:
        assert [name for name in hints if hasattr(kind, name)] == []
