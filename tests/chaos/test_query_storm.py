"""A short run of `query_storm`."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.query_storm import query_storm

from millstream import AT_LEAST_ONCE, EXACTLY_ONCE_V2


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE_V2, AT_LEAST_ONCE])
def test_answers_are_correct_while_instances_fail_and_scale(tmp_path: Path, guarantee: str) -> None:
    """Goal: every answer is correct for a position that is not before its bound, without partial
    batches or missing pages, or there is a typed error. Active tasks include all committed records.
    Instances answer through each other although responses are lost. At the end, everything is
    available."""
    kinds = ("worker killed", "instance closed", "thread added")
    report = query_storm(tmp_path, seed=1, seconds=0, kinds=kinds, guarantee=guarantee)
    assert report.found >= 1_000, report
    assert report.whole >= 100, report
    assert report.compared >= 100, report
    assert report.others["partitions"] >= 80, report
    assert report.others["pages"] >= 20, report
    assert report.others["lost"] > 0, report
    assert not report.wrong, report
    assert report.failures["NOT_UP_TO_BOUND"] > 0, report
