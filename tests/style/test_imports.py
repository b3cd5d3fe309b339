"""Imports: no cycles, one direction between subpackages, no unexplained imports in functions.

Imports inside functions and under TYPE_CHECKING count too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter

from support.source_modules import PACKAGE, imports_of, source_modules, syntax_nodes

MODULES = source_modules()

#: The subpackages of a package, from the bottom up. Those in one tuple may import from each other,
#: as long as their modules have no cycle. Other modules are only checked for cycles.
SUBPACKAGES: dict[str, tuple[tuple[str, ...], ...]] = {
    "cli": (("programs", "demo"), ("commands",)),
    "kafka": (("settings", "clients", "cluster"), ("membership",)),
    "state": (
        ("directories",),
        ("storage", "changelogs", "caches", "keyvalue", "windows"),
        ("versioned",),
        ("buffers",),
        ("opening",),
    ),
    "runtime": (("task",), ("task_management",), ("loop",)),
    "topology": (
        ("options",),
        ("operations",),
        ("physical",),
        ("logical",),
        ("passes",),
        ("dsl",),
    ),
}

_LARGE = "it is large, and importers of the module may not need it"

#: The modules that import inside functions, the packages that they import there, and why.
LATE_IMPORTS = {
    ("app", "millstream"): "the requirements of DataFrames may not be installed, and are large",
    ("application.listeners", "rich"): _LARGE,
    (
        "application.served_application",
        "millstream",
    ): "the requirements of the server may not be installed",
    (
        "serdes._registry",
        "confluent_kafka",
    ): "the requirements of the schema registry may not be installed",
    ("spark.columns.serde_columns", "pyspark"): _LARGE,
    ("spark.code.environment", "importlib"): "the function is serialized and runs on executors",
    ("spark.code.environment", "sys"): "the function is serialized and runs on executors",
    ("spark.code.environment", "millstream"): "the function is serialized and runs on executors",
    ("spark.sessions.java_setup", "pyspark"): _LARGE,
    ("spark.sessions.local_session", "pyspark"): _LARGE,
    ("spark.jobs", "pyspark"): _LARGE,
    ("spark.sessions.session", "pyspark"): _LARGE,
    ("spark.worker.worker_task", "pyspark"): _LARGE,
    ("dataframes.topic_frames", "pyspark"): _LARGE,
    ("dataframes.lake.history_rows", "pyspark"): _LARGE,
    ("dataframes.lake.lake_tables", "pyspark"): _LARGE,
    ("dataframes.lake.iceberg_schema", "pyspark"): _LARGE,
    ("dataframes.lake.layout", "pyspark"): _LARGE,
    ("dataframes.row_conversion", "pyspark"): _LARGE,
    ("testing.driver_dataframes", "pyspark"): _LARGE,
    ("testing.pytest_plugin", "millstream"): "pytest loads the plugin for all tests",
}


@cache
def graph() -> dict[str, set[str]]:
    """The modules of the package that each module imports."""
    return {
        module: {target for _, target in imports_of(module, MODULES) if target in MODULES}
        - {module}
        for module in MODULES
    }


def cycle_in(imports: dict[str, set[str]]) -> list[str]:
    """One import cycle; empty if there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_import_cycles() -> None:
    assert cycle_in(graph()) == []


def test_cycles_are_detected() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": {"f"}, "f": set()}
    assert set(cycle_in(imports)) == {"a", "b", "c"}


def test_subpackages_import_one_way() -> None:
    """A module imports from subpackages of its own level and below."""
    level = {
        (package, name): number
        for package, levels in SUBPACKAGES.items()
        for number, names in enumerate(levels)
        for name in names
    }

    def subpackage_of(module: str) -> tuple[str, ...]:
        return tuple(module.split(".")[1:3])

    wrong = [
        f"{module} imports {target}"
        for module, targets in graph().items()
        for target in sorted(targets)
        if (own := subpackage_of(module)) in level and (other := subpackage_of(target)) in level
        if own[0] == other[0] and level[other] > level[own]
    ]
    assert wrong == []


def late_imports() -> Iterator[tuple[str, str]]:
    """The modules with imports inside functions, and the imported packages."""
    for module, path in MODULES.items():
        for function in syntax_nodes(path):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for _, target in imports_of(module, MODULES, function):
                    yield module.removeprefix(f"{PACKAGE}."), target.partition(".")[0]


def test_imports_in_functions_are_listed() -> None:
    """Every import inside a function is listed above, and every entry is in use."""
    assert set(late_imports()) == set(LATE_IMPORTS)


def test_no_class_casts_itself_to_a_subclass() -> None:
    """A class that casts `self` to its subclass was only split off to save lines."""
    found = [
        f"{module}:{call.lineno}"
        for module, path in MODULES.items()
        for call in syntax_nodes(path)
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ("cast", "typing.cast")
        if any(ast.unparse(argument) == "self" for argument in call.args)
    ]
    assert found == []
