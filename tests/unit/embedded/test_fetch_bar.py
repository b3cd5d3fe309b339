"""The bar that is drawn while jars are fetched."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from support.waiting import wait_for

from millstream.embedded.fetch_bar import showing


class Terminal(io.StringIO):
    """What is written to a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_how_many_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows otherwise whether anything happens for the half minute."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    terminal = Terminal()
    with showing(tmp_path / "cache", 3, "fetching Kafka", terminal):
        jar = tmp_path / "cache" / "org" / "one.jar"
        jar.parent.mkdir(parents=True)
        jar.touch()
        wait_for(lambda: re.search(r"fetching Kafka.*1/3", terminal.getvalue()) is not None, 10)


def test_elsewhere_nothing_is_drawn(tmp_path: Path) -> None:
    """A log file full of half bars helps nobody."""
    file = io.StringIO()
    with showing(tmp_path, 3, "fetching Kafka", file):
        pass
    assert file.getvalue() == ""
