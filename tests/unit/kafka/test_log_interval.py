"""What does not work for long is logged again and again, and ever less often."""

from __future__ import annotations

import logging

import pytest

from millstream.clock import ManualClock
from millstream.errors import BrokerUnavailableError
from millstream.kafka.cluster.insisting import insist
from millstream.kafka.cluster.log_interval import LogInterval

MINUTES_5_MS = 300_000


def lines_s(interval: LogInterval, clock: ManualClock) -> list[int]:
    """The seconds in which lines are due, looked at ten times a second for 5 minutes."""
    began_ms = clock.monotonic_ms()
    seconds = []
    while clock.monotonic_ms() - began_ms < MINUTES_5_MS:
        if interval.is_due:
            seconds.append((clock.monotonic_ms() - began_ms) // 1_000)
        clock.advance(100)
    return seconds


def test_intervals_double_up_to_30_s() -> None:
    """One line a second fills pages in which nothing else is seen."""
    clock = ManualClock()
    seconds = lines_s(LogInterval(clock, first_ms=2_000), clock)
    assert seconds[:6] == [2, 4, 8, 16, 32, 62]
    assert len(seconds) == 13
    assert lines_s(LogInterval(clock, first_ms=0), clock)[:4] == [0, 1, 3, 7]


def test_a_request_that_is_repeated_is_logged_less_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Attempts that fail at once are 100 ms apart: 3,000 lines in 5 minutes."""
    clock = ManualClock()
    tries = 0

    def ask() -> None:
        nonlocal tries
        tries += 1
        raise BrokerUnavailableError("no broker answers")

    with pytest.raises(BrokerUnavailableError):
        insist(ask, "in cannot be written to", MINUTES_5_MS, clock, lambda: None)
    assert tries > 2_900
    warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert 1 <= len(warnings) <= 15
