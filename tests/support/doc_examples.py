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
from millstream import assignment, parallel, serdes, testing

#: The modules whose `__all__` is public.
PUBLIC = (millstream, serdes, testing, assignment, parallel)


def at_hand() -> dict[str, Any]:
    """What examples in docstrings may use without importing it: everything public, and a bit more.

    `topology` and `config` are some application, for what can be done with any.
    """
    builder = millstream.StreamsBuilder()
    builder.stream("in", key=serdes.STRING, value=serdes.STRING).to("out")
    config = millstream.StreamsConfig(
        application_id="millstream-examples", bootstrap_servers="localhost:9092"
    )
    names = {each: getattr(module, each) for module in PUBLIC for each in module.__all__}
    given = {"config": config, "re": re, "timedelta": timedelta, "topology": builder.build()}
    return names | given


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
    rather than made: docs/errors.md has to tell of each when it is raised and what to do.
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
