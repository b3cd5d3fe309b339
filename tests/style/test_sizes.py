"""Small files, short functions, nothing half-done, and no hidden source of time or chance."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "millstream"

MOST_LINES_OF_A_FILE = 700

# What the user writes with: as long as what is said about it.
FACADES = (
    "app.py",
    "topology/dsl/builder.py",
    "topology/dsl/streams_and_tables.py",
    "topology/physical/topology.py",
)
MOST_LINES_OF_A_FUNCTION = 70

# Where the outside world is: these may ask it for the time and throw dice.
EDGES = ("clock.py", "embedded/", "kafka/", "spark/", "cli/", "testing/")

# Written apart, so that this file does not contain them.
MARK = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK")) + r")\b")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def name(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


SOURCES = sorted(PACKAGE.rglob("*.py"))
EVERYTHING = [
    path
    for folder in ("src", "tests", "examples", "benchmarks", "speedups", "docs", "deploy")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
NATIVE = sorted((ROOT / "speedups" / "native").glob("*.[ch]"))


def length(function: Function) -> int:
    """The lines of a function without its docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if isinstance(first, ast.Expr) and ast.get_docstring(function) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_files_and_functions_are_short(path: Path) -> None:
    """A file of logic has one idea, a function fits on a screen."""
    text = path.read_text()
    assert text.count("\n") <= MOST_LINES_OF_A_FILE or name(path) in FACADES
    long = {
        node.name: length(node)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, Function) and length(node) > MOST_LINES_OF_A_FUNCTION
    }
    assert long == {}


@pytest.mark.parametrize("path", NATIVE, ids=lambda path: path.name)
def test_files_of_the_extension_are_short(path: Path) -> None:
    """One idea a file, in C as well."""
    assert path.read_text().count("\n") <= MOST_LINES_OF_A_FILE


def test_nothing_is_marked_as_unfinished() -> None:
    """What is missing belongs into docs/differences.md, not into a mark."""
    marked = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in EVERYTHING
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if MARK.search(line)
    ]
    assert marked == []


CORE = [path for path in SOURCES if not name(path).startswith(EDGES)]
CLOCKS = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "date.today"}


def dice_and_clocks(tree: ast.AST) -> list[str]:
    """Where a module asks for the wall-clock time or a random number by itself."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name == "random"]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [each for each in names if each in CLOCKS or each.startswith("random.")]
        elif isinstance(node, ast.Attribute):
            called = ".".join(ast.unparse(node).split(".")[-2:])
            names = [called] if called in CLOCKS else []
        else:
            continue
        found += [f"line {node.lineno}: {each}" for each in names]
    return found


@pytest.mark.parametrize("path", CORE, ids=name)
def test_time_and_chance_are_handed_in(path: Path) -> None:
    """The core gets a Clock and seeds from outside, so that every run of it can be repeated."""
    assert dice_and_clocks(ast.parse(path.read_text())) == []


def test_the_check_finds_time_and_chance() -> None:
    """Each way of asking is noticed; monotonic time and a handed-in clock are none."""
    code = (
        "import random, time\n"
        "from time import time_ns, monotonic\n"
        "import datetime\n"
        "a = time.time()\n"
        "b = datetime.datetime.now()\n"
        "c = self.clock.now_ms() + time.monotonic_ns()\n"
    )
    assert sorted(dice_and_clocks(ast.parse(code))) == [
        "line 1: random",
        "line 2: time.time_ns",
        "line 4: time.time",
        "line 5: datetime.now",
    ]
