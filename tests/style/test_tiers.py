"""Both tiers together contain all tests, and the first one covers each area.

`make test` runs the first tier, `make test-extended` the second one.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
LATER = ("slow", "extended")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def marks_of(node: ast.AST) -> set[str]:
    """The names of all marks in a decorator or in the value of `pytestmark`."""
    return {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute)
        if isinstance(each.value, ast.Attribute) and each.value.attr == "mark"
    }


def is_in_first_tier(function: Function) -> bool:
    """Whether no decorator moves all cases of a test; marked parameters are some of them."""
    marks = (marks_of(each) for each in function.decorator_list)
    return not any(each & {*LATER} for each in marks if "parametrize" not in each)


def has_first_tier(path: Path) -> bool:
    """Whether a file has a test that `make test` runs."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        is_mark = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
        if is_mark and marks_of(node) & {*LATER}:
            return False
    return any(
        is_in_first_tier(node)
        for node in ast.walk(tree)
        if isinstance(node, Function) and node.name.startswith("test_")
    )


FOLDERS = sorted(
    {
        path.parent.relative_to(TESTS).as_posix()
        for folder in ("unit", "integration")
        for path in (TESTS / folder).glob("*/**/test_*.py")
    }
)


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_first_tier_covers_each_area(folder: str) -> None:
    """Each folder with unit or integration tests has some that `make test` runs."""
    assert any(has_first_tier(path) for path in sorted((TESTS / folder).glob("test_*.py")))


def test_the_tiers_contain_all_tests() -> None:
    """The second tier is the complement of the first, except for tests with their own target."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    expressions = ('-m "not slow and not extended"', '-m "extended and not slow"')
    assert [makefile.count(each) for each in expressions] == [1, 1]


def test_tests_of_the_second_tier_are_detected(tmp_path: Path) -> None:
    """By marks of modules and functions, but not by those of single parameters."""
    head = "import pytest\n"
    later = "@pytest.mark.extended\ndef test_one(): ...\n"
    some = "@pytest.mark.parametrize('x', [pytest.param(1, marks=pytest.mark.slow), 2])\n"
    cases = {
        head + later: False,
        head + "pytestmark = [pytest.mark.slow]\ndef test_one(): ...\n": False,
        head + later + "def test_two(): ...\n": True,
        head + some + "def test_one(x): ...\n": True,
    }
    path = tmp_path / "test_example.py"
    for text, expected in cases.items():
        path.write_text(text)
        assert has_first_tier(path) is expected, text
