"""The recipes of the cookbook work, and its pages are current."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import generate_cookbook
import pytest

pytestmark = pytest.mark.extended

RECIPES = sorted(generate_cookbook.RECIPES.glob("*/*.py"))


def own_tests(path: Path) -> dict[str, Callable[[], None]]:
    """The tests of a recipe, by name."""
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
    """The recipe's own tests pass."""
    found = own_tests(path)
    assert found, f"{path} has no test"
    for test in found.values():
        test()


def test_there_are_enough_recipes_in_known_chapters() -> None:
    """Goal: at least 25 recipes, each in a chapter of the cookbook."""
    assert len(RECIPES) >= 25
    assert {path.parent.name for path in RECIPES} == generate_cookbook.CHAPTERS.keys()


def test_the_pages_are_current() -> None:
    """Detects a recipe that was changed without its page."""
    for path, text in generate_cookbook.pages():
        assert path.read_text(encoding="utf-8") == text, (
            "run: python docs/generators/generate_cookbook.py"
        )


def test_pytest_runs_a_recipe_with_the_documented_command() -> None:
    """The command in the cookbook works in a checkout."""
    command = [sys.executable, "-m", "pytest", "-q", str(RECIPES[0])]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "[100%]" in ran.stdout
