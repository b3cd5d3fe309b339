"""What is public: sorted, importable, documented."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "millstream"
PUBLIC = (
    "millstream",
    "millstream.assignment",
    "millstream.lake",
    "millstream.parallel",
    "millstream.serdes",
    "millstream.testing",
)


def source_of(module: str) -> Path:
    return PACKAGE.joinpath(*module.split(".")[1:], "__init__.py")


def written() -> list[str]:
    """The public modules that exist and say something."""
    return [name for name in PUBLIC if source_of(name).exists() and source_of(name).read_text()]


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
            # getdoc() of the attribute counts what an overriding method inherits.
            if (
                is_code
                and not member.startswith("_")
                and not inspect.getdoc(getattr(thing, member))
            ):
                yield f"{name}.{member}"


@pytest.mark.parametrize("name", written())
def test_public_names_are_sorted_and_there(name: str) -> None:
    """`__all__` is sorted, without repetition, and every name in it can be imported."""
    module = importlib.import_module(name)
    names = list(module.__all__)
    assert names in (sorted(set(names)), sorted(set(names), key=str.casefold))
    assert [each for each in names if not hasattr(module, each)] == []


@pytest.mark.parametrize("name", written())
def test_everything_public_is_documented(name: str) -> None:
    """No public class, function, method or property is without a docstring."""
    assert list(undocumented(importlib.import_module(name))) == []
