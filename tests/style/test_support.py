"""The shared helpers of tests are indexed and used."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"

MODULES = {path.stem for path in SUPPORT.rglob("*.py")} - {"__init__"}
#: Inner folders first, so that the name of a helper follows all of them.
FOLDERS = "|".join(
    sorted(
        (
            re.escape(".".join(path.relative_to(SUPPORT).parts))
            for path in SUPPORT.rglob("*")
            if path.is_dir() and path.name != "__pycache__"
        ),
        reverse=True,
    )
)


def test_the_index_lists_every_helper() -> None:
    """The index prevents duplicate helpers."""
    listed = re.findall(r"^\| `(\w+)` \|", (SUPPORT / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(MODULES)


def test_every_helper_is_used() -> None:
    """Every helper is used by a test or by another helper."""
    uses = {
        path: re.findall(
            rf"\bsupport\.(?:(?:{FOLDERS})\.)?(\w+)"
            rf"|from support(?:\.(?:{FOLDERS}))? import (\w+)"
            r"|\b(\w+)\.py\b",
            path.read_text(),
        )
        for path in (ROOT / "tests").rglob("*.py")
    }
    named = {
        name
        for path, found in uses.items()
        for names in found
        for name in names
        if name and name != path.stem
    }
    assert named >= MODULES


def test_tests_have_no_own_waiting_loops() -> None:
    """Tests use `support.waiting` to wait with a deadline."""
    loops = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if not path.is_relative_to(SUPPORT)
        and re.search(r"\bdeadline = time\.(monotonic|perf_counter|time)\(\)", path.read_text())
    ]
    assert loops == []
