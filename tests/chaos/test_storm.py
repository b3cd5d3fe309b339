"""A breeze of `make chaos`, in which every id is followed."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.storm import storm

from millstream import AT_LEAST_ONCE, EXACTLY_ONCE_V2


# Each fault costs a rebalance; `make chaos` has all of them.
@pytest.mark.parametrize(
    ("guarantee", "kinds"),
    [
        # What is in it, test_word_count and test_handlers show without a storm.
        pytest.param(AT_LEAST_ONCE, ("worker killed", "poison record"), marks=pytest.mark.slow),
        (EXACTLY_ONCE_V2, ("poison record", "connections cut", "thread fails")),
    ],
)
def test_no_id_is_lost_whatever_fails(
    tmp_path: Path, guarantee: str, kinds: tuple[str, ...]
) -> None:
    """Goal: two instances recover from each fault, tell every id, and repeat no more than the
    faults account for; with exactly-once none, and in order."""
    report = storm(tmp_path, seed=1, seconds=0, kinds=kinds, guarantee=guarantee)
    account = report.account
    assert account.written > 0
    assert not account.untold, report
    assert not account.lost, report
    assert account.repeated <= report.may_repeat, report
    assert report.dead_letters >= report.poisoned == 1, report
    if guarantee == EXACTLY_ONCE_V2:
        assert (account.repeated, report.out_of_order, report.dead_letters) == (0, 0, 1), report
    assert [report.rows[kind].times for kind in kinds] == [1] * len(kinds)
    assert report.connections > 0, "the application goes by way of the proxy"


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, EXACTLY_ONCE_V2])
def test_a_rolling_restart_of_three_brokers_loses_nothing(tmp_path: Path, guarantee: str) -> None:
    """While ids are written, each broker is shut down in order and started, one after the other;
    then one is killed, and another one paused."""
    kinds = ("brokers restarted in turn", "broker killed, absent", "broker paused")
    report = storm(tmp_path, 1, seconds=0, kinds=kinds, guarantee=guarantee, brokers=3)
    account = report.account
    assert account.written > 0
    assert (account.untold, account.lost) == (frozenset(), frozenset()), report
    assert account.repeated <= report.may_repeat, report
    if guarantee == EXACTLY_ONCE_V2:
        assert (account.repeated, report.out_of_order) == (0, 0), report
    assert [report.rows[kind].times for kind in kinds] == [1] * len(kinds)
