"""What the tests of pages and docstrings share."""

from __future__ import annotations

import pytest

import millstream


@pytest.fixture
def unstarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `run` and `start` return at once: everything before them happens for real."""
    monkeypatch.setattr(millstream.KafkaStreams, "run", lambda self: None)
    monkeypatch.setattr(millstream.KafkaStreams, "start", lambda self: None)
