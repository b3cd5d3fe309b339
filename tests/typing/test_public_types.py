"""The types of the public API are complete, so no type checker has to infer them."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from generate_api import MODULES

ROOT = Path(__file__).parents[2]


def public_names() -> set[str]:
    """The public names, and those of the classes and functions where they are defined."""
    names = set[str]()
    for module in map(importlib.import_module, MODULES):
        exported = getattr(module, "__all__", None) or vars(module)
        for name in exported:
            value = getattr(module, name)
            names.add(f"{module.__name__}.{name}")
            if inspect.isclass(value) or inspect.isfunction(value):
                # Base classes define members of a class too.
                owners = inspect.getmro(value) if inspect.isclass(value) else (value,)
                names |= {f"{each.__module__}.{each.__qualname__}" for each in owners}
    return {name for name in names if name.startswith("millstream.")}


def problem(diagnostic: dict[str, Any]) -> str | None:
    """Return the message of an error; None for a consequence of types that are not public.

    Parameters of internal classes are called partially unknown if an attribute of the class has no
    annotation.
    """
    message = str(diagnostic["message"])
    if diagnostic["severity"] != "error":
        return None
    first, _, rest = message.partition("\n")
    return None if "partially unknown" in first and "Unknown" not in rest else message


def verified() -> list[dict[str, Any]]:
    """All symbols of the package with the diagnostics of pyright."""
    program = Path(sys.executable).with_name("basedpyright")
    found = subprocess.run(
        [program, "--verifytypes", "millstream", "--ignoreexternal", "--outputjson"],
        cwd=ROOT,
        # Without a virtual environment, the package would be searched in that of the program.
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    symbols: list[dict[str, Any]] = json.loads(found.stdout)["typeCompleteness"]["symbols"]
    return symbols


@pytest.mark.extended
def test_the_types_of_the_public_api_are_complete() -> None:
    """Detects missing annotations and types without arguments, such as `list`."""
    public = public_names()
    checked, wrong = set[str](), list[str]()
    for symbol in verified():
        name = symbol["name"]
        parent = name.rpartition(".")[0]
        if name in public or parent in public:
            checked.add(name)
            wrong += [f"{name}: {each}" for each in map(problem, symbol["diagnostics"]) if each]
    assert "millstream.topology.dsl.streams_and_tables.KStream.filter" in checked
    assert len(checked) > 1_000
    assert wrong == []
