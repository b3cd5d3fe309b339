"""Tests of the topologies' structure. The demo checks that they work together."""

from __future__ import annotations

from pathlib import Path

import pytest
from lake_backfill import CLICKS, COUNTS, counted, kept

pytestmark = pytest.mark.extended


def test_clicks_are_written_to_the_table(tmp_path: Path) -> None:
    described = str(kept(tmp_path).describe())
    assert CLICKS in described
    assert "clicks-to-lake" in described
    assert COUNTS not in described


def test_counting_reads_the_table_and_then_the_topic(tmp_path: Path) -> None:
    described = str(counted(tmp_path).describe())
    assert CLICKS in described
    assert COUNTS in described
    assert "clicks-history-repartition" in described
