"""The version is consistent everywhere, and the changelog has an entry for it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from support.strictness import needed_speedups

from millstream.native import EXTENSION_VERSION, loaded_version

ROOT = Path(__file__).parents[2]


def project() -> dict[str, object]:
    """The project table of pyproject.toml."""
    table: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def test_the_changelog_begins_with_this_version() -> None:
    """A release needs an entry in the changelog."""
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == project()["version"]


def test_the_pages_have_this_version() -> None:
    stability = (ROOT / "docs" / "stability.md").read_text()
    assert f"Millstream is at {project()['version']}" in stability


def test_the_extension_has_this_version() -> None:
    """setup.py compiles the version in, and Millstream uses no extension of another version."""
    assert project()["version"] == EXTENSION_VERSION
    needed_speedups()
    assert loaded_version() == EXTENSION_VERSION
