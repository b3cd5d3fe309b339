"""Short runs of `make chaos`, with an account of every id."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.storm import storm

from millstream import AT_LEAST_ONCE, EXACTLY_ONCE_V2


# Each fault takes a rebalance; `make chaos` has all kinds.
@pytest.mark.extended
@pytest.mark.parametrize(
    ("guarantee", "kinds"),
    [
        # test_word_count and test_handlers cover the same without a storm.
        pytest.param(AT_LEAST_ONCE, ("worker killed", "poison record"), marks=pytest.mark.slow),
        (EXACTLY_ONCE_V2, ("poison record", "connections cut", "thread failed")),
    ],
)
def test_no_ids_are_lost_after_faults(
    tmp_path: Path, guarantee: str, kinds: tuple[str, ...]
) -> None:
    """Goal: two instances recover from each fault, output every id, and repeat no more than the
    faults explain; with exactly-once, none is repeated or out of order."""
    report = storm(tmp_path, seed=1, seconds=0, kinds=kinds, guarantee=guarantee)
    account = report.account
    assert account.written > 0
    assert not account.never_output, report
    assert not account.lost, report
    assert account.repeated <= report.may_repeat, report
    assert report.dead_letters >= report.poisoned == 1, report
    if guarantee == EXACTLY_ONCE_V2:
        assert (account.repeated, report.out_of_order, report.dead_letters) == (0, 0, 1), report
    assert [report.rows[kind].times for kind in kinds] == [1] * len(kinds)
    assert report.connections > 0, "the application uses the proxy"


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, EXACTLY_ONCE_V2])
def test_a_rolling_restart_of_three_brokers_loses_nothing(tmp_path: Path, guarantee: str) -> None:
    """Each broker is shut down and restarted in turn while ids are written; then one is killed, and
    another one paused."""
    kinds = ("rolling broker restart", "broker killed, absent", "broker paused")
    report = storm(tmp_path, 1, seconds=0, kinds=kinds, guarantee=guarantee, brokers=3)
    account = report.account
    assert account.written > 0
    assert (account.never_output, account.lost) == (frozenset(), frozenset()), report
    assert account.repeated <= report.may_repeat, report
    if guarantee == EXACTLY_ONCE_V2:
        assert (account.repeated, report.out_of_order) == (0, 0), report
    assert [report.rows[kind].times for kind in kinds] == [1] * len(kinds)
