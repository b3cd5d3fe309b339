"""The list of the public API is current, and the changelog has all removals since a release."""

from __future__ import annotations

import re
from pathlib import Path

import generate_api
import pytest

CHANGELOG = Path(__file__).parents[2] / "CHANGELOG.md"


def test_the_list_is_current() -> None:
    """Added and removed public names must be visible in a diff."""
    text = generate_api.LIST.read_text(encoding="utf-8")
    assert text == "\n".join(generate_api.api_lines()) + "\n", (
        "run: python docs/generators/generate_api.py"
    )


def test_removed_names_are_in_the_changelog() -> None:
    """Goal: nothing is removed from the API of a release without an entry in the changelog."""
    newest = CHANGELOG.read_text(encoding="utf-8").split("\n## ")[1]
    unmentioned = []
    for line in generate_api.missing():
        name = re.split(r"[ (:]", line)[1]
        if f"`{name.rpartition('.')[2]}`" not in newest:
            unmentioned.append(line)
    assert unmentioned == [], "add them to 'Changed' or 'Removed', with instructions for users"


def test_removed_names_are_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A renamed parameter also counts as removed."""
    lines = generate_api.api_lines()
    (tmp_path / "0.1.0.txt").write_text("\n".join([*lines, "def millstream.gone(a, b=1)"]) + "\n")
    (tmp_path / "0.0.9.txt").write_text("def millstream.older()\n")
    monkeypatch.setattr(generate_api, "RELEASED", tmp_path)
    assert generate_api.missing() == ["def millstream.gone(a, b=1)"]


def test_the_list_contains_methods_parameters_and_errors() -> None:
    """Spot checks of the list."""
    listed = set(generate_api.api_lines())
    assert any(line.startswith("def millstream.KStream.map_async(self") for line in listed)
    assert "class millstream.errors.StreamsError(Exception)" in listed
    assert "value millstream.serdes.STRING: " in " ".join(listed)
    assert len(listed) > 800
