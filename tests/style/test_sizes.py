"""Sizes of files and functions, unfinished code, and hidden sources of time and randomness."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

from support.source_modules import syntax_nodes

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "millstream"

MAX_FILE_LINES = 700

# Exempt from the limit: classes with a large public API, most of which is documentation.
FACADES = (
    "app.py",
    "config/streams_config.py",
    "topology/dsl/builder.py",
    "topology/dsl/streams_and_tables.py",
    "topology/physical/topology.py",
)
MAX_FUNCTION_LINES = 70

# Code at the boundary of the system may use the system clock and random numbers.
EDGES = ("clock.py", "embedded/", "kafka/", "spark/", "cli/", "testing/")

# Concatenated so that this file does not match.
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


def test_files_are_short() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in (*SOURCES, *NATIVE)
        if (lines := path.read_text().count("\n")) > MAX_FILE_LINES
        if path in NATIVE or name(path) not in FACADES
    }
    assert long == {}


def test_functions_fit_on_a_screen() -> None:
    long = {
        f"{name(path)}: {node.name}": length(node)
        for path in SOURCES
        for node in syntax_nodes(path)
        if isinstance(node, Function) and length(node) > MAX_FUNCTION_LINES
    }
    assert long == {}


def test_nothing_is_marked_as_unfinished() -> None:
    """Missing features belong in docs/differences.md, not in a comment."""
    marked = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in EVERYTHING
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if MARK.search(line)
    ]
    assert marked == []


CORE = [path for path in SOURCES if not name(path).startswith(EDGES)]
CLOCKS = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "date.today"}


def clock_and_random_uses(nodes: Iterable[ast.AST]) -> list[str]:
    """The places where a module reads the wall clock or uses the random module."""
    found = []
    for node in nodes:
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


def test_time_and_randomness_are_injected() -> None:
    """The core receives a Clock and seeds as parameters, so that every run is reproducible."""
    assert [
        f"{name(path)}: {each}"
        for path in CORE
        for each in clock_and_random_uses(syntax_nodes(path))
    ] == []


def test_clocks_and_randomness_are_detected() -> None:
    """Every kind of use is found; monotonic time and an injected clock are allowed."""
    code = (
        "import random, time\n"
        "from time import time_ns, monotonic\n"
        "import datetime\n"
        "a = time.time()\n"
        "b = datetime.datetime.now()\n"
        "c = self.clock.now_ms() + time.monotonic_ns()\n"
    )
    assert sorted(clock_and_random_uses(ast.walk(ast.parse(code)))) == [
        "line 1: random",
        "line 2: time.time_ns",
        "line 4: time.time",
        "line 5: datetime.now",
    ]
