"""The progress bar of jar downloads."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from support.waiting import wait_for

from millstream.embedded.jars import download_progress


class Terminal(io.StringIO):
    """A terminal that records its output."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_the_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise nothing would be visible for half a minute."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    terminal = Terminal()
    with download_progress(tmp_path / "cache", 3, "fetching Kafka", terminal):
        jar = tmp_path / "cache" / "org" / "one.jar"
        jar.parent.mkdir(parents=True)
        jar.touch()
        wait_for(lambda: re.search(r"fetching Kafka.*1/3", terminal.getvalue()) is not None, 10)


def test_without_a_terminal_nothing_is_printed(tmp_path: Path) -> None:
    """Progress bars are useless in log files."""
    file = io.StringIO()
    with download_progress(tmp_path, 3, "fetching Kafka", file):
        pass
    assert file.getvalue() == ""
