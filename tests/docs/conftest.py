"""Fixtures of the tests of pages and docstrings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import millstream


@pytest.fixture(scope="module", autouse=True)
def _no_state_directories() -> Iterator[None]:
    """Remove the empty state directories of examples, which use the default folder."""
    config = millstream.StreamsConfig(application_id="any", bootstrap_servers="nowhere:9092")
    parent = Path(config.state_dir)
    before = {*parent.glob("*")}
    yield
    # Another process may use or remove them at the same time.
    for folder in [*({*parent.glob("*")} - before), parent]:
        with suppress(OSError):
            folder.rmdir()


@pytest.fixture
def unstarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `run` and `start` return immediately; everything before them is real."""
    monkeypatch.setattr(millstream.KafkaStreams, "run", lambda self: None)
    monkeypatch.setattr(millstream.KafkaStreams, "start", lambda self: None)
