"""A breeze of `make chaos`, in which every id is followed."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.storm import storm

from millstream import AT_LEAST_ONCE, EXACTLY_ONCE_V2

#: One that kills, one that pauses, one of the network; each of them costs a rebalance.
KINDS = ("worker killed", "poison record", "connections cut", "thread fails")


@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, EXACTLY_ONCE_V2])
def test_no_id_is_lost_whatever_fails(tmp_path: Path, guarantee: str) -> None:
    """Goal: two instances recover from each fault, tell every id, and repeat no more than the
    faults account for; with exactly-once none, and in order."""
    report = storm(tmp_path, seed=1, seconds=0, kinds=KINDS, guarantee=guarantee)
    account = report.account
    assert account.written > 0
    assert not account.untold, report
    assert not account.lost, report
    assert account.repeated <= report.may_repeat, report
    assert report.dead_letters >= report.poisoned == 1, report
    if guarantee == EXACTLY_ONCE_V2:
        assert (account.repeated, report.out_of_order, report.dead_letters) == (0, 0, 1), report
    assert [report.rows[kind].times for kind in KINDS] == [1] * len(KINDS)
    assert report.connections > 0, "the application goes by way of the proxy"
