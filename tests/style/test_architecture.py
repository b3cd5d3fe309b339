"""ARCHITECTURE.md only mentions existing files and folders."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "millstream"
#: A folder or Python file in the page.
NAMED = re.compile(r"`([a-z_]+(?:/[a-z_]+)*(?:/|\.py))`")


def test_all_mentioned_files_exist() -> None:
    """Readers must find each mentioned file."""
    named = NAMED.findall((ROOT / "ARCHITECTURE.md").read_text())
    assert len(named) > 40
    missing = [each for each in named if not ((PACKAGE / each).exists() or (ROOT / each).exists())]
    assert missing == []
