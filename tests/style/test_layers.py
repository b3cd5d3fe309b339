"""Imports go one way: from later stages of a record's way to earlier ones, as ARCHITECTURE.md says.

Imports inside functions and under TYPE_CHECKING count as well: they are dependencies, too.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.source_modules import PACKAGE, imports_of, source_modules

# From the bottom up. What stands on one line is one stage, whose members may know each other.
STAGES = (
    (
        *(
            "errors",
            "record",
            "windowed",
            "clock",
            "compiled",
            "durations",
            "unawaited",
            "waker",
            "config",
            "serdes",
        ),
        "java_priority_queue",
    ),
    ("metrics",),
    ("query.requests",),
    ("kafka",),
    ("embedded",),
    ("state",),
    ("processor",),
    ("operators", "subscriptions"),
    ("topology",),
    ("assignment",),
    ("runtime",),
    ("spark",),
    ("structured",),
    ("query", "export"),
    ("server",),
    ("lake",),
    ("app", "application"),
    ("parallel",),
    ("testing", "console", "tools"),
    ("cli",),
)
STAGE_OF = {name: level for level, names in enumerate(STAGES) for name in names}
# The package itself re-exports from everywhere; no module of it may import from there.
TOP = len(STAGES)


MODULES = source_modules()


def stage(module: str) -> int | None:
    """The level of a module; None for one that no stage names."""
    parts = module.split(".")[1:]
    if not parts or parts == ["__main__"]:
        return TOP
    # config.py may be split into config_fields.py and the like.
    family = parts[0].split("_")[0] if len(parts) == 1 else parts[0]
    for name in (".".join(parts[:2]), parts[0], family):
        if name in STAGE_OF:
            return STAGE_OF[name]
    return None


def upward_imports(module: str) -> list[str]:
    """The imports of a module that lead to a later stage."""
    own = stage(module)
    assert own is not None
    wrong = []
    for line, target in imports_of(module, MODULES):
        if target != PACKAGE and not target.startswith(f"{PACKAGE}."):
            continue
        theirs = stage(target)
        if theirs is not None and theirs > own:
            wrong.append(f"line {line} imports {target}")
    return wrong


@pytest.mark.parametrize("module", MODULES)
def test_no_upward_import(module: str) -> None:
    """A module knows only its own stage and the ones before it."""
    assert stage(module) is not None, f"{module} belongs to no stage: add it to STAGES and docs"
    assert upward_imports(module) == []


def test_the_check_sees_every_kind_of_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain, from, relative, local and typing-only imports are all found and judged."""
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
