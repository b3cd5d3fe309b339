"""Invalid arguments raise at their declaration, and valid arguments are accepted."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from millstream import (
    BufferConfig,
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    Processor,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    UnlimitedWindows,
)
from millstream.errors import ConfigError, TopologyError
from millstream.runtime.start.topology_checks import check_build_settings
from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver
from millstream.topology.argument_checks import accepts_arguments

LOCATION = r"\(.*declared at \S*test_arguments\.py:\d+\)$"
SECOND = timedelta(seconds=1)
NEAR = JoinWindows(SECOND)
PLAIN = Stores.in_memory_key_value("plain")
WINDOWS = Stores.in_memory_window("windows", SECOND, SECOND)


def builder() -> Any:
    return StreamsBuilder()


def stream(topic: str = "in", streams_builder: StreamsBuilder | None = None) -> Any:
    result: KStream[str, str] = (streams_builder or StreamsBuilder()).stream(
        topic, key=STRING, value=STRING
    )
    return result


def table(topic: str = "changes") -> Any:
    result: KTable[str, str] = StreamsBuilder().table(topic, key=STRING, value=STRING)
    return result


def joined(**options: Any) -> Any:
    """Join a stream with another one of its builder."""
    shared = StreamsBuilder()
    arguments = {"joiner": lambda one, other: one, "windows": NEAR, **options}
    return stream("left", shared).join(stream("right", shared), **arguments)


class RequiresArgument(Processor[Any, Any, Any, Any]):
    """Cannot be created without an argument."""

    def __init__(self, limit: int) -> None:
        self.limit = limit


#: Invalid arguments and their error messages, by the type of the error.
WRONG: dict[type[Exception], dict[str, tuple[Callable[[], Any], str]]] = {
    TypeError: {
        "one argument": (
            lambda: stream().filter(lambda value: True),
            r"filter\(\) calls its predicate as predicate\(key, value\), but .*<lambda>\(value\) "
            "takes different arguments",
        ),
        "no with_key": (
            lambda: stream().map_values(lambda key, value: value),
            r"mapper\(value\), but .*pass with_key=True",
        ),
        "with_key": (
            lambda: table().map_values(lambda value: value, with_key=True),
            r"mapper\(key, value\), but .*pass with_key=False",
        ),
        "joiner": (lambda: joined(joiner=lambda one: one), r"joiner\(value, other_value\)"),
        "reducer": (lambda: stream().group_by_key().reduce(lambda one: one), "calls its reducer"),
        "initializer": (
            lambda: stream().group_by_key().aggregate(lambda key: 0, lambda k, v, a: a),
            r"initializer\(\)",
        ),
        "a value as initializer": (
            lambda: stream().group_by_key().aggregate(0, lambda k, v, a: a),
            "needs a function as its initializer",
        ),
        "partitioner": (lambda: stream().to("out", partitioner=5), "function as its partitioner"),
        "type as serde": (lambda: builder().stream("in", key=str), "Serde as its key.*<class 'st"),
        "serde of a store": (lambda: Materialized("counts", value="long"), "as its value"),  # type: ignore[arg-type]
        "serde of a join": (lambda: joined(other_value=str), r"join\(\) needs a Serde as its oth"),
        "serde of a source": (lambda: Topology().add_source("s", "t", key=str), "Serde as its k"),  # type: ignore[arg-type]
        "topic": (lambda: builder().stream(5), r"stream\(\) takes a topic, several topics, or a"),
        "store": (
            lambda: stream().group_by_key().count(store=5),
            "such as Stores.persistent_key_v",
        ),
        "builder as store": (
            lambda: stream().to_table(store=Stores.key_value_builder(PLAIN)),
            "but got KeyValueStoreBuilder",
        ),
        "logging": (lambda: joined(logging="no"), "logging= takes True, False, or the config"),
        "caching": (lambda: Materialized("counts", caching="no"), "caching= takes True or False"),  # type: ignore[arg-type]
        "span as windows": (lambda: joined(windows=SECOND), "takes JoinWindows as its windows"),
        "store of a join": (lambda: joined(this_store=PLAIN), "this_store= must be a window store"),
        "merge with a table": (lambda: stream().merge(table()), "takes another KStream"),
        "cogroup with a stream": (
            lambda: stream().group_by_key().cogroup(lambda k, v, a: a).cogroup(stream(), max),
            "takes another KGroupedStream",
        ),
        "stores": (lambda: stream().process(Processor, stores=[PLAIN]), "takes the names of sto"),
        "supplier for builder": (lambda: builder().add_state_store(PLAIN), "added as a builder"),
        "no transform": (lambda: table().transform_values(object), "a method transform"),
        "no buffer": (lambda: Suppressed.until_window_closes(5), "takes a BufferConfig"),  # type: ignore[arg-type]
    },
    TopologyError: {
        "processor with a parameter": (
            lambda: stream().process(RequiresArgument),
            r"without arguments.*lambda: MyPro",
        ),
        "name": (lambda: stream().peek(print, name=5), "must be strings, but got 5"),
        "topics for one topic": (lambda: builder().table(["a", "b"]), "must be strings"),
        "partitions": (lambda: stream().repartition(partitions="3"), "at least 1 partition"),
        "cogroup across builders": (
            lambda: (
                stream()
                .group_by_key()
                .cogroup(lambda k, v, a: a)
                .cogroup(stream().group_by_key(), lambda k, v, a: a)
            ),
            "Only streams and tables of the same StreamsBuilder can be cogrouped",
        ),
    },
}

#: The same for definitions outside of a topology.
OUT_OF_RANGE: dict[str, tuple[Callable[[], Any], str]] = {
    "number of a window": (lambda: JoinWindows(5), "takes a timedelta for time_difference"),  # type: ignore[arg-type]
    "number before": (lambda: JoinWindows(SECOND, before=5), "takes a timedelta for before"),  # type: ignore[arg-type]
    "grace": (lambda: SlidingWindows(SECOND, grace=-SECOND), "must be at least 0"),
    "size": (lambda: TimeWindows(timedelta(0)), "must be at least 1 ms"),
    "start": (lambda: UnlimitedWindows(SECOND), "milliseconds since the epoch"),  # type: ignore[arg-type]
    "retention": (lambda: Materialized("counts", retention=-SECOND), "retention=.* at least 0"),
    "retention of a store": (lambda: Stores.in_memory_session("s", 5), "timedelta for retention"),  # type: ignore[arg-type]
    "entries": (lambda: Stores.lru_map("answers", "3"), "cannot hold '3' entries"),  # type: ignore[arg-type]
    "name of a store": (lambda: Stores.persistent_key_value("a/b"), "is not a valid store name"),
    "kind of a store": (lambda: Stores.key_value_builder(WINDOWS), "takes a KeyValueStoreSupp"),  # type: ignore[arg-type]
    "serde": (lambda: Stores.key_value_builder(PLAIN, str, LONG), "needs a Serde for its keys"),  # type: ignore[arg-type]
    "limit": (lambda: BufferConfig.max_records("3"), "cannot be limited to '3' records"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(
    ("error", "case"), [(error, case) for error, cases in WRONG.items() for case in cases]
)
def test_invalid_argument_raises_at_its_declaration(error: type[Exception], case: str) -> None:
    program, expected = WRONG[error][case]
    with pytest.raises(error, match=expected) as caught:
        program()
    assert re.search(LOCATION, str(caught.value)), caught.value


@pytest.mark.parametrize("case", OUT_OF_RANGE)
def test_definitions_are_checked_at_once(case: str) -> None:
    program, expected = OUT_OF_RANGE[case]
    with pytest.raises(ConfigError, match=expected):
        program()


def test_builder_is_no_topology() -> None:
    """The last call is easy to forget."""
    unfinished: Any = builder()
    with pytest.raises(TypeError, match=r"StreamsBuilder returns one from build\(\)"):
        TopologyTestDriver(unfinished)
    with pytest.raises(TypeError, match="must be a StreamsConfig"):
        check_build_settings(Topology(), {})  # type: ignore[arg-type]


def with_connection(function: Callable[..., Any]) -> Callable[..., Any]:
    """Pass the function an additional argument."""

    @functools.wraps(function)
    def wrapper(*arguments: Any) -> Any:
        return function("connection", *arguments)

    return wrapper


class Callables:
    """Other callables."""

    def method(self, key: str, value: str) -> None: ...

    @classmethod
    def class_method(cls, key: str, value: str) -> None: ...

    def __call__(self, *arguments: Any) -> None: ...


class CustomNew:
    """Has a `__new__` that accepts any arguments."""

    def __new__(cls, *arguments: Any) -> CustomNew:
        return super().__new__(cls)

    def __init__(self, key: str, value: str, more: int = 0) -> None: ...


@pytest.mark.parametrize(
    "function",
    [
        lambda key, value: key,
        lambda key, value, more=1: key,
        lambda *arguments: arguments,
        functools.partial(lambda more, key, value: key, 1),
        with_connection(lambda connection, key, value: key),
        Callables().method,
        Callables.class_method,
        Callables(),
        CustomNew,
        max,
        str.split,
        int,
        len,
    ],
)
def test_possibly_valid_functions_are_accepted(function: Callable[..., Any]) -> None:
    """A function is only rejected if a call would certainly fail."""
    assert accepts_arguments(function, 2)


@pytest.mark.parametrize(
    "function",
    [
        5,
        None,
        lambda key: key,
        lambda key, value, more: key,
        lambda key, value, *, more: key,
        functools.partial(lambda key, value: key, 1),
        Callables.method,
        RequiresArgument,
    ],
)
def test_invalid_functions_are_rejected(function: Any) -> None:
    assert not accepts_arguments(function, 2)
