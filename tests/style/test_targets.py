"""Every test that is too slow for `make test` is run by another target."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"


def slow_files() -> list[Path]:
    """The files with tests that `make test` excludes."""
    return [
        path
        for folder in (TESTS, ROOT / "examples")
        for path in sorted(folder.rglob("*.py"))
        if path != Path(__file__) and "mark.slow" in path.read_text()
    ]


def runs_slow(recipe: str, file: Path) -> bool:
    """Whether a line of the Makefile runs the slow tests of a file."""
    options = shlex.split(recipe.partition("-m pytest")[2])
    named, ignored = list[Path](), list[Path]()
    for option in options:
        if option.startswith("--ignore="):
            ignored.append(ROOT / option.removeprefix("--ignore="))
        elif option.startswith("tests"):
            named += ROOT.glob(option)
    within = any(file.is_relative_to(path) for path in named)
    return within and "not slow" not in options and file not in ignored


def test_every_slow_test_is_run_by_some_target() -> None:
    """Detects tests that no target runs."""
    recipes = re.findall(r"^\t.*-m pytest.*", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert len(recipes) > 3
    left = [
        str(path.relative_to(ROOT))
        for path in slow_files()
        if not any(runs_slow(recipe, path) for recipe in recipes)
    ]
    assert left == [], "give them a target in the Makefile"
