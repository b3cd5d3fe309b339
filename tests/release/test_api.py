"""What is public is listed, and what a release had is still there, or the changelog says so."""

from __future__ import annotations

import re
from pathlib import Path

import generate_api
import pytest

CHANGELOG = Path(__file__).parents[2] / "CHANGELOG.md"


def test_the_list_is_current() -> None:
    """A public name that came or went unnoticed would be noticed by users."""
    text = generate_api.LIST.read_text(encoding="utf-8")
    assert text == "\n".join(generate_api.listed()) + "\n", (
        "run: python docs/generators/generate_api.py"
    )


def test_what_the_last_release_had_is_there_or_told() -> None:
    """Goal: nothing that a release promised goes without a word in the changelog."""
    newest = CHANGELOG.read_text(encoding="utf-8").split("\n## ")[1]
    untold = []
    for line in generate_api.missing():
        name = re.split(r"[ (:]", line)[1]
        if f"`{name.rpartition('.')[2]}`" not in newest:
            untold.append(line)
    assert untold == [], "tell it under 'Changed' or 'Removed', with what to do about it"


def test_what_is_gone_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A parameter with another name is another line, and so missed."""
    lines = generate_api.listed()
    (tmp_path / "0.1.0.txt").write_text("\n".join([*lines, "def millstream.gone(a, b=1)"]) + "\n")
    (tmp_path / "0.0.9.txt").write_text("def millstream.older()\n")
    monkeypatch.setattr(generate_api, "RELEASED", tmp_path)
    assert generate_api.missing() == ["def millstream.gone(a, b=1)"]


def test_the_list_has_what_users_call() -> None:
    """It would be worth nothing if it left out methods, parameters or errors."""
    listed = set(generate_api.listed())
    assert any(line.startswith("def millstream.KStream.map_async(self") for line in listed)
    assert "class millstream.errors.StreamsError(Exception)" in listed
    assert "value millstream.serdes.STRING: " in " ".join(listed)
    assert len(listed) > 800
