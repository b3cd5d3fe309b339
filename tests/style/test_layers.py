"""Packages import only from packages below them, in the order of ARCHITECTURE.md.

Imports inside functions and under TYPE_CHECKING count too.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.source_modules import PACKAGE, imports_of, source_modules

# From the bottom up. Packages of one level may import from each other.
LEVELS = (
    (
        "async_checks",
        "clock",
        "config",
        "durations",
        "errors",
        "html_tables",
        "java_priority_queue",
        "log_format",
        "native",
        "record",
        "serdes",
        "windowed",
    ),
    ("metrics",),
    ("kafka",),
    ("embedded",),
    ("state",),
    ("processor",),
    ("operators", "subscriptions"),
    ("topology",),
    ("assignment",),
    ("runtime",),
    ("spark",),
    ("dataframes",),
    ("query", "export"),
    ("server",),
    ("lake",),
    ("app", "application"),
    ("subscriptions.api", "parallel"),
    ("testing", "tools"),
    ("cli",),
)
LEVEL_OF = {name: level for level, names in enumerate(LEVELS) for name in names}
# The package itself re-exports from everywhere; none of its modules may import from it.
TOP = len(LEVELS)


MODULES = source_modules()


def level_of(module: str) -> int | None:
    """The level of a module; None if it is not listed."""
    parts = module.split(".")[1:]
    if not parts or parts == ["__main__"]:
        return TOP
    for name in (".".join(parts[:2]), parts[0]):
        if name in LEVEL_OF:
            return LEVEL_OF[name]
    return None


def upward_imports(module: str) -> list[str]:
    """The imports of a module from higher levels."""
    own = level_of(module)
    assert own is not None, f"add {module} to LEVELS and ARCHITECTURE.md"
    wrong = []
    for line, target in imports_of(module, MODULES):
        if target != PACKAGE and not target.startswith(f"{PACKAGE}."):
            continue
        theirs = level_of(target)
        if theirs is not None and theirs > own:
            wrong.append(f"line {line} imports {target}")
    return wrong


def test_no_upward_import() -> None:
    assert [f"{module}, {each}" for module in MODULES for each in upward_imports(module)] == []


def test_all_kinds_of_imports_are_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain, from, relative, local and typing-only imports are all found."""
    source = tmp_path / "example.py"
    source.write_text(
        "import millstream.runtime.loop.stream_thread\n"
        "from millstream import app\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n"
        "    from ..topology import Anything\n"
        "def f():\n"
        "    from millstream.errors import StreamsError\n"
        "    from millstream import KafkaStreams\n"
    )
    monkeypatch.setitem(MODULES, "millstream.state.example", source)
    monkeypatch.setitem(MODULES, "millstream.app", source)
    assert upward_imports("millstream.state.example") == [
        "line 1 imports millstream.runtime.loop.stream_thread",
        "line 2 imports millstream.app",
        "line 5 imports millstream.topology",
        "line 8 imports millstream",
    ]
