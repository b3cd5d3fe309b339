"""The examples in docstrings: found, run, and demanded of what is public."""

from __future__ import annotations

import doctest
import enum
import inspect
import re
from collections.abc import Iterator
from datetime import timedelta
from types import ModuleType
from typing import Any

import millstream
from millstream import assignment, lake, parallel, serdes, testing
from millstream.query.at_hand import view_of
from support.tasks.opened_alone import opened_alone

#: The modules whose `__all__` is public.
PUBLIC = (millstream, serdes, testing, assignment, parallel, lake)


def at_hand() -> dict[str, Any]:
    """What examples in docstrings may use without importing it: everything public, and a bit more.

    `topology` and `config` are some application, for what can be done with any; `counts`, `clicks`
    and `visits` are views of stores, as a running one gives them.
    """
    builder = millstream.StreamsBuilder()
    builder.stream("in", key=serdes.STRING, value=serdes.STRING).to("out")
    config = millstream.StreamsConfig(
        application_id="millstream-examples", bootstrap_servers="localhost:9092"
    )
    names = {each: getattr(module, each) for module in PUBLIC for each in module.__all__}
    given = {"config": config, "re": re, "timedelta": timedelta, "topology": builder.build()}
    return names | given | _views()


def _views() -> dict[str, Any]:
    """Views of a store of each kind, with a few values."""
    stores = millstream.Stores
    types = millstream.QueryableStoreTypes
    hour, minute = timedelta(hours=1), timedelta(minutes=1)
    counts = stores.key_value_builder(
        stores.in_memory_key_value("counts"), serdes.STRING, serdes.LONG
    )
    clicks = stores.window_builder(
        stores.in_memory_window("clicks", hour, minute), serdes.STRING, serdes.LONG
    )
    visits = stores.session_builder(
        stores.in_memory_session("visits", hour), serdes.STRING, serdes.LONG
    )
    views: dict[str, Any] = {}
    kinds: list[tuple[Any, millstream.QueryableStoreType[Any]]] = [
        (counts, types.key_value()),
        (clicks, types.window()),
        (visits, types.session()),
    ]
    for builder, kind in kinds:
        opened, codec = opened_alone(builder)
        views[builder.name] = view_of(opened, codec, kind)
        store = opened.store
        if builder is counts:
            store.put_all([("ann", 3), ("bob", 1)])
        elif builder is clicks:
            for key, value, start in (("ann", 2, 0), ("ann", 3, 60_000), ("bob", 1, 60_000)):
                store.put(key, value, start)
        else:
            store.put(millstream.Windowed("ann", millstream.Window(0, 1_000)), 2)
            store.put(millstream.Windowed("bob", millstream.Window(60_000, 90_000)), 5)
    return views


def examples_of(module: ModuleType) -> list[doctest.DocTest]:
    """The docstrings of a module that have examples."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [test for test in finder.find(module, extraglobs=at_hand()) if test.examples]


def compare(test: doctest.DocTest) -> None:
    """Run examples and compare with what they should show.

    Raises:
        AssertionError: one shows something else; it says what.
    """
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    told: list[str] = []
    runner.run(test, out=told.append, clear_globs=False)
    assert not runner.failures, "".join(told)


def has_example(thing: Any) -> bool:
    """Whether the docstring of a class or function shows something that runs."""
    examples = doctest.DocTestParser().get_examples(thing.__doc__ or "")
    return any(not each.options.get(doctest.SKIP) for each in examples)


def public_code() -> Iterator[tuple[str, Any]]:
    """Public classes, functions and methods by name.

    Left out are properties, which the examples of their classes use; and errors, which are caught
    rather than made: docs/build/errors.md has to tell of each when it is raised and what to do.
    """
    for module in PUBLIC:
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isfunction(thing):
                yield name, thing
            elif inspect.isclass(thing) and not issubclass(thing, Exception):
                yield name, thing
                yield from _methods(name, thing)


def public_data() -> Iterator[str]:
    """The public names that are neither classes nor functions, such as `LONG`."""
    for module in PUBLIC:
        for name in module.__all__:
            thing = getattr(module, name)
            if not (inspect.isclass(thing) or inspect.isfunction(thing)):
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
