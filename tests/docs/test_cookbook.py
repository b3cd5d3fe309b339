"""The recipes of the cookbook work, and its pages are made of them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import generate_cookbook
import pytest

RECIPES = sorted(generate_cookbook.RECIPES.glob("*/*.py"))


def own_tests(path: Path) -> dict[str, Callable[[], None]]:
    """A recipe's own tests, by name."""
    name = f"cookbook.{path.parent.name}.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return {key: value for key, value in vars(module).items() if key.startswith("test_")}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_recipe_works(path: Path) -> None:
    """Each brings tests of its own, and they pass."""
    found = own_tests(path)
    assert found, f"{path} has no test"
    for test in found.values():
        test()


def test_there_are_enough_and_none_is_left_out() -> None:
    """Goal: at least 25 recipes, each in a room that the cookbook has."""
    assert len(RECIPES) >= 25
    assert {path.parent.name for path in RECIPES} == generate_cookbook.ROOMS.keys()


def test_the_pages_say_what_the_recipes_say() -> None:
    """A recipe that was changed without its page is noticed."""
    for path, text in generate_cookbook.pages():
        assert path.read_text(encoding="utf-8") == text, (
            "run: python docs/generators/generate_cookbook.py"
        )


def test_pytest_runs_a_recipe_as_the_cookbook_says() -> None:
    """The command that a reader is told works from a checkout."""
    command = [sys.executable, "-m", "pytest", "-q", str(RECIPES[0])]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "[100%]" in ran.stdout
