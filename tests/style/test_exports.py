"""Public modules: `__all__` is sorted, its names exist, and everything in it has a docstring."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from types import ModuleType

PUBLIC = (
    "millstream",
    "millstream.assignment",
    "millstream.lake",
    "millstream.parallel",
    "millstream.serdes",
    "millstream.testing",
)


def undocumented(module: ModuleType) -> Iterator[str]:
    """The public classes, functions and methods of a module that have no docstring."""
    for name in module.__all__:
        thing = getattr(module, name)
        if not (inspect.isclass(thing) or inspect.isroutine(thing)):
            continue
        if not thing.__doc__:
            yield name
        for member, value in vars(thing).items() if inspect.isclass(thing) else ():
            is_code = inspect.isroutine(value) or isinstance(
                value, (property, classmethod, staticmethod)
            )
            # getdoc() of the attribute includes inherited docstrings.
            if (
                is_code
                and not member.startswith("_")
                and not inspect.getdoc(getattr(thing, member))
            ):
                yield f"{name}.{member}"


def test_all_is_sorted_and_its_names_exist() -> None:
    unsorted, missing = [], []
    for name in PUBLIC:
        module = importlib.import_module(name)
        names = list(module.__all__)
        if names not in (sorted(set(names)), sorted(set(names), key=str.casefold)):
            unsorted.append(name)
        missing += [f"{name}.{each}" for each in names if not hasattr(module, each)]
    assert (unsorted, missing) == ([], [])


def test_every_public_name_has_a_docstring() -> None:
    assert [
        f"{name}: {each}" for name in PUBLIC for each in undocumented(importlib.import_module(name))
    ] == []
