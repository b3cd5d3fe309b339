"""What tests share can be found, and is used."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"

MODULES = {path.stem for path in SUPPORT.rglob("*.py")} - {"__init__"}
#: Inner rooms first, so that the name of a helper is what comes after all of them.
ROOMS = "|".join(
    sorted(
        (
            re.escape(".".join(path.relative_to(SUPPORT).parts))
            for path in SUPPORT.rglob("*")
            if path.is_dir() and path.name != "__pycache__"
        ),
        reverse=True,
    )
)


def test_the_index_names_every_helper() -> None:
    """Hunts the second way to wait, written because nobody found the first."""
    listed = re.findall(r"^\| `(\w+)` \|", (SUPPORT / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(MODULES)


def test_every_helper_is_used() -> None:
    """By a test, or by a helper that one uses."""
    uses = {
        path: re.findall(
            rf"\bsupport\.(?:(?:{ROOMS})\.)?(\w+)"
            rf"|from support(?:\.(?:{ROOMS}))? import (\w+)"
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


def test_nobody_waits_in_a_loop_of_their_own() -> None:
    """A deadline and a pause are `support.waiting`'s business."""
    loops = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if not path.is_relative_to(SUPPORT)
        and re.search(r"\bdeadline = time\.(monotonic|perf_counter|time)\(\)", path.read_text())
    ]
    assert loops == []
