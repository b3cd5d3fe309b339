"""A breeze of `make chaos`, in which every id is followed."""

from __future__ import annotations

from pathlib import Path

from chaos.storm import storm

#: One that kills, one that pauses, one of the network; each of them costs a rebalance.
KINDS = ("worker killed", "connections cut", "thread fails")


def test_no_id_is_lost_whatever_fails(tmp_path: Path) -> None:
    """Goal: two instances recover from each fault, tell every id, and repeat no more than the
    faults account for."""
    report = storm(tmp_path, seed=1, seconds=0, kinds=KINDS)
    account = report.account
    assert account.written > 0
    assert not account.untold, report
    assert not account.lost, report
    assert account.repeated <= report.may_repeat, report
    assert [report.rows[kind].times for kind in KINDS] == [1] * len(KINDS)
    assert report.connections > 0, "the application goes by way of the proxy"
