"""ARCHITECTURE.md speaks of files and folders that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "millstream"
#: A folder, or a Python file, as the page writes them.
NAMED = re.compile(r"`([a-z_]+(?:/[a-z_]+)*(?:/|\.py))`")


def test_every_file_that_architecture_names_is_there() -> None:
    """A reader who follows a record finds each stage where the page says."""
    named = NAMED.findall((ROOT / "ARCHITECTURE.md").read_text())
    assert len(named) > 40
    gone = [each for each in named if not ((PACKAGE / each).exists() or (ROOT / each).exists())]
    assert gone == []
