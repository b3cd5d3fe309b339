"""No circles of imports, rooms that know each other one way, no imports inside functions.

Imports inside functions and under TYPE_CHECKING count as well: they are dependencies, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

import pytest
from support.source_modules import PACKAGE, circles, imports_of, source_modules

MODULES = source_modules()

#: The rooms of folders, from the bottom up. Those in one tuple may know each other, as long as
#: their modules make no circle. What stands outside of the rooms is judged by circles alone.
ROOMS: dict[str, tuple[tuple[str, ...], ...]] = {
    "cli": (("programs", "demo"), ("commands",)),
    "kafka": (("settings", "data", "cluster"), ("member",)),
    "state": (
        ("directories",),
        ("storage", "changelogs", "caches", "keyvalue", "windows"),
        ("versioned",),
        ("buffers",),
        ("opening",),
    ),
    "runtime": (("task",), ("ownership",), ("loop",)),
    "topology": (
        ("options",),
        ("operations",),
        ("physical",),
        ("logical",),
        ("passes",),
        ("dsl",),
    ),
}

_LARGE = "it is large, and whoever imports the module may not need it"

#: Where functions import, what they import, and why not at the top.
LATE_IMPORTS = {
    ("app", "millstream"): "what DataFrames need may not be installed, and is large",
    ("application.restore_bars", "rich"): _LARGE,
    ("application.serving", "millstream"): "the server's own needs may not be installed",
    ("serdes._registry", "confluent_kafka"): "its schema registry's own needs may not be installed",
    ("spark.columns.serde_columns", "pyspark"): _LARGE,
    ("spark.code.environment", "importlib"): "the function runs on executors as it is",
    ("spark.code.environment", "sys"): "the function runs on executors as it is",
    ("spark.code.environment", "millstream"): "the function runs on executors as it is",
    ("spark.sessions.driver_user", "pyspark"): _LARGE,
    ("spark.sessions.local_session", "pyspark"): _LARGE,
    ("spark.jobs", "pyspark"): _LARGE,
    ("spark.sessions.session", "pyspark"): _LARGE,
    ("spark.worker.worker_task", "pyspark"): _LARGE,
    ("structured.arrow_map", "pyspark"): _LARGE,
    ("structured.frames", "pyspark"): _LARGE,
    ("structured.lake.history_rows", "pyspark"): _LARGE,
    ("structured.lake.history_table", "pyspark"): _LARGE,
    ("structured.lake.iceberg_reader", "pyspark"): _LARGE,
    ("structured.lake.iceberg_schema", "pyspark"): _LARGE,
    ("structured.lake.layout", "pyspark"): _LARGE,
    ("structured.rows", "pyspark"): _LARGE,
    ("testing.driver_dataframes", "pyspark"): _LARGE,
    ("testing.pytest_plugin", "millstream"): "pytest loads the plugin whatever it is to test",
}


@cache
def graph() -> dict[str, set[str]]:
    """Which modules of the package each module imports."""
    return {
        module: {target for _, target in imports_of(module, MODULES) if target in MODULES}
        - {module}
        for module in MODULES
    }


def test_no_circle_of_imports() -> None:
    """No module can reach itself through what it imports, in any folder or across them."""
    assert circles(graph()) == []


def test_circles_are_found() -> None:
    """A circle of three is found as one group, beside what merely hangs on it."""
    found = circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": {"f"}, "f": set()})
    assert found == [["a", "b", "c"]]


@pytest.mark.parametrize("folder", ROOMS)
def test_rooms_know_each_other_one_way(folder: str) -> None:
    """A module of a room imports from rooms of its own level and of those below it."""
    level = {room: number for number, rooms in enumerate(ROOMS[folder]) for room in rooms}

    def room_of(module: str) -> str | None:
        parts = module.split(".")
        return parts[2] if parts[1:2] == [folder] and parts[2:3] and parts[2] in level else None

    wrong = [
        f"{module} imports {target}"
        for module, targets in graph().items()
        for target in sorted(targets)
        if (own := room_of(module)) and (other := room_of(target)) and own != other
        if level[other] > level[own]
    ]
    assert wrong == []


def late_imports() -> Iterator[tuple[str, str]]:
    """The modules with imports inside functions, and the package that each of these imports."""
    for module, path in MODULES.items():
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for _, target in imports_of(module, MODULES, function):
                    yield module.removeprefix(f"{PACKAGE}."), target.partition(".")[0]


def test_functions_import_for_a_reason() -> None:
    """An import inside a function is on the list above, and what is on the list is there."""
    assert set(late_imports()) == set(LATE_IMPORTS)


def test_no_class_is_cast_to_the_one_that_inherits_from_it() -> None:
    """A class that casts `self` to its heir is no part of it: the heir may be long instead."""
    found = [
        f"{module}:{call.lineno}"
        for module, path in MODULES.items()
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ("cast", "typing.cast")
        if any(ast.unparse(argument) == "self" for argument in call.args)
    ]
    assert found == []
