"""The examples in docstrings: finds and runs them, and lists the public names that need one."""

from __future__ import annotations

import doctest
import enum
import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import ModuleType
from typing import Any

import millstream
from millstream import assignment, lake, parallel, serdes, testing
from support.tasks.standalone_store import local_view, open_standalone_store

#: Modules with a public `__all__`.
PUBLIC = (millstream, serdes, testing, assignment, parallel, lake)


def doctest_globals() -> dict[str, Any]:
    """Names that examples in docstrings can use without an import: all public names and a few more.

    `topology` and `config` are a minimal application; `counts`, `clicks` and `visits` are views of
    stores, as in a running application.
    """
    topology, config = _application()
    names = {each: getattr(module, each) for module in PUBLIC for each in module.__all__}
    extras = {"config": config, "re": re, "timedelta": timedelta, "topology": topology}
    return names | extras | _views()


def _application() -> tuple[millstream.Topology, millstream.StreamsConfig]:
    builder = millstream.StreamsBuilder()
    builder.stream("in", key=serdes.STRING, value=serdes.STRING).to("out")
    return builder.build(), millstream.StreamsConfig(
        application_id="millstream-examples", bootstrap_servers="localhost:9092"
    )


@contextmanager
def shared_objects(name: str) -> Iterator[dict[str, Any]]:
    """Objects that the examples of a docstring use without creating them; its class shows them.

    Each docstring gets new ones.

    Args:
        name: the full name of the class or function with the docstring.
    """
    if name.startswith("millstream.app.KafkaStreams."):
        yield {"streams": millstream.KafkaStreams(*_application())}
    elif name.startswith("millstream.topology.dsl."):
        yield _streams_and_tables()
    elif name.startswith("millstream.testing.driver.TopologyTestDriver."):
        builder = millstream.StreamsBuilder()
        stream = builder.stream("clicks", key=serdes.STRING, value=serdes.STRING)
        stream.group_by_key().count(store="counts").to_stream().to("out")
        with testing.TopologyTestDriver(builder.build(), initial_wall_clock_ms=0) as driver:
            clicks = driver.create_input_topic("clicks", key=serdes.STRING, value=serdes.STRING)
            yield {"driver": driver, "clicks": clicks}
    elif name.startswith("millstream.testing.driver_topics.Test"):
        builder = millstream.StreamsBuilder()
        builder.stream("in", key=serdes.STRING, value=serdes.LONG).to("out")
        with testing.TopologyTestDriver(builder.build(), initial_wall_clock_ms=0) as driver:
            numbers = driver.create_input_topic("in", key=serdes.STRING, value=serdes.LONG)
            out = driver.create_output_topic("out", key=serdes.STRING, value=serdes.LONG)
            yield {"numbers": numbers, "out": out}
    elif name.startswith("millstream.processor.handlers."):
        record = millstream.SourceRecord("clicks", 0, 42, 1_000, (), None, b"?")
        context = millstream.ErrorContext.of(record, "read", millstream.TaskId(0, 0))
        yield {"record": record, "context": context}
    elif name.startswith(("millstream.processor.", "millstream.testing.mock_context.")):
        with testing.MockProcessorContext[Any, Any]() as mock:
            yield {"context": mock}
    elif name.startswith("millstream.state."):
        with testing.MockProcessorContext[Any, Any]() as mock:
            yield _empty_store(name.split(".")[-2], mock)
    else:
        yield {}


def _empty_store(owner: str, context: testing.MockProcessorContext[Any, Any]) -> dict[str, Any]:
    """The store that the examples of a store's methods use, by the class of the methods."""
    stores, hour, minute = millstream.Stores, timedelta(hours=1), timedelta(minutes=1)
    serde_pair = (serdes.STRING, serdes.LONG)
    builder: Any
    match owner:
        case "KeyValueStore" | "TypedStore" | "KeyValueIterator":
            supplier = stores.in_memory_key_value("visits")
            builder = stores.key_value_builder(supplier, *serde_pair)
        case "SessionStore":
            sessions = stores.in_memory_session("visits", hour)
            builder = stores.session_builder(sessions, *serde_pair)
        case "WindowStore":
            windows = stores.in_memory_window("clicks", hour, minute)
            builder = stores.window_builder(windows, *serde_pair)
        case "VersionedKeyValueStore":
            versions = stores.persistent_versioned("prices", hour)
            builder = stores.versioned_builder(versions, *serde_pair)
        case _:
            return {}
    return {builder.name: context.add_state_store(builder)}


def _streams_and_tables() -> dict[str, Any]:
    """Streams and tables of one builder."""
    builder, text = millstream.StreamsBuilder(), serdes.STRING
    return {
        "clicks": builder.stream("clicks", key=text, value=text),
        "orders": builder.stream("orders", key=text, value=serdes.LONG),
        "prices": builder.table("prices", key=text, value=serdes.LONG),
        "names": builder.table("names", key=text, value=text),
        "cities": builder.table("city-of-user", key=text, value=text),
    }


def _views() -> dict[str, Any]:
    """Views of a store of each kind, with a few values."""
    stores, types = millstream.Stores, millstream.QueryableStoreTypes
    hour, minute = timedelta(hours=1), timedelta(minutes=1)
    text, number = serdes.STRING, serdes.LONG
    ann = millstream.Windowed("ann", millstream.Window(0, 1_000))
    bob = millstream.Windowed("bob", millstream.Window(60_000, 90_000))
    kinds: list[tuple[Any, millstream.QueryableStoreType[Any], list[tuple[Any, ...]]]] = [
        (
            stores.key_value_builder(stores.in_memory_key_value("counts"), text, number),
            types.key_value(),
            [("ann", 3), ("bob", 1)],
        ),
        (
            stores.window_builder(stores.in_memory_window("clicks", hour, minute), text, number),
            types.window(),
            [("ann", 2, 0), ("ann", 3, 60_000), ("bob", 1, 60_000)],
        ),
        (
            stores.session_builder(stores.in_memory_session("visits", hour), text, number),
            types.session(),
            [(ann, 2), (bob, 5)],
        ),
    ]
    views: dict[str, Any] = {}
    for builder, kind, puts in kinds:
        opened, codec = open_standalone_store(builder)
        views[builder.name] = local_view(opened, codec, kind)
        for arguments in puts:
            opened.store.put(*arguments)
    return views


def examples_of(module: ModuleType) -> list[doctest.DocTest]:
    """Docstrings of a module that contain examples."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [test for test in finder.find(module, extraglobs=doctest_globals()) if test.examples]


def compare(test: doctest.DocTest) -> None:
    """Run examples and compare them with their expected output.

    Raises:
        AssertionError: an output differs; the message shows the difference.
    """
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    output: list[str] = []
    with shared_objects(test.name) as shared:
        test.globs.update(shared)
        runner.run(test, out=output.append, clear_globs=False)
    assert not runner.failures, "".join(output)


def has_example(target: Any) -> bool:
    """Whether the docstring of a class or function contains an executable example."""
    examples = doctest.DocTestParser().get_examples(target.__doc__ or "")
    return any(not each.options.get(doctest.SKIP) for each in examples)


def public_code() -> Iterator[tuple[str, Any]]:
    """Public classes, functions and methods by name.

    Without properties, which the examples of their classes use, and errors, which users catch
    rather than create: docs/build/errors.md must explain when each is raised and what to do.
    """
    for module in PUBLIC:
        for name in module.__all__:
            member = getattr(module, name)
            if inspect.isfunction(member):
                yield name, member
            elif inspect.isclass(member) and not issubclass(member, Exception):
                yield name, member
                yield from _methods(name, member)


def public_data() -> Iterator[str]:
    """Public names that are neither classes nor functions, such as `LONG`."""
    for module in PUBLIC:
        for name in module.__all__:
            member = getattr(module, name)
            if not (inspect.isclass(member) or inspect.isfunction(member)):
                yield name


def _methods(name: str, kind: type) -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    for base in kind.__mro__:
        if not base.__module__.startswith("millstream") or issubclass(kind, enum.Enum):
            continue
        for member, value in vars(base).items():
            code = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            if not member.startswith("_") and inspect.isfunction(code) and member not in seen:
                seen.add(member)
                yield f"{name}.{member}", code
