"""A breeze of the storm over instances that are asked for their state."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.query_storm import query_storm

from millstream import AT_LEAST_ONCE, EXACTLY_ONCE_V2


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE_V2, AT_LEAST_ONCE])
def test_no_answer_is_wrong_while_instances_come_and_go(tmp_path: Path, guarantee: str) -> None:
    """Goal: what is told was true at a moment not before the bound of its question, and is never
    half of a batch, nor short of a page; else there is a typed error. What is committed is told by
    whoever is active. The instances answer through each other, although answers get lost between
    them. Afterwards everything is there."""
    kinds = ("worker killed", "instance closes", "thread added")
    report = query_storm(tmp_path, seed=1, seconds=0, kinds=kinds, guarantee=guarantee)
    assert report.found >= 1_000, report
    assert report.whole >= 100, report
    assert report.held >= 100, report
    assert report.others["partitions"] >= 80, report
    assert report.others["pages"] >= 20, report
    assert report.others["lost"] > 0, report
    assert not report.wrong, report
    assert report.refused["NOT_UP_TO_BOUND"] > 0, report
