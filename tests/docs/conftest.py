"""Fixtures of the tests of pages and docstrings."""

from __future__ import annotations

import pytest

import millstream


@pytest.fixture
def unstarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `run` and `start` return immediately; everything before them is real."""
    monkeypatch.setattr(millstream.KafkaStreams, "run", lambda self: None)
    monkeypatch.setattr(millstream.KafkaStreams, "start", lambda self: None)
