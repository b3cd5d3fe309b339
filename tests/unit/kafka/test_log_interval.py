"""Persistent problems are logged repeatedly, at growing intervals."""

from __future__ import annotations

import logging

import pytest

from millstream.clock import ManualClock
from millstream.errors import BrokerUnavailableError
from millstream.kafka.cluster.retries import LogInterval, retry_until_available

MINUTES_5_MS = 300_000


def due_seconds(interval: LogInterval, clock: ManualClock) -> list[int]:
    """The seconds in which log lines are due, checked ten times a second for 5 minutes."""
    began_ms = clock.monotonic_ms()
    seconds = []
    while clock.monotonic_ms() - began_ms < MINUTES_5_MS:
        if interval.is_due:
            seconds.append((clock.monotonic_ms() - began_ms) // 1_000)
        clock.advance(100)
    return seconds


def test_intervals_double_up_to_30_s() -> None:
    """A line every second would hide everything else."""
    clock = ManualClock()
    seconds = due_seconds(LogInterval(clock, first_ms=2_000), clock)
    assert seconds[:6] == [2, 4, 8, 16, 32, 62]
    assert len(seconds) == 13
    assert due_seconds(LogInterval(clock, first_ms=0), clock)[:4] == [0, 1, 3, 7]


def test_retries_are_logged_less_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Attempts that fail immediately are 100 ms apart: 3,000 lines in 5 minutes."""
    clock = ManualClock()
    tries = 0

    def send_request() -> None:
        nonlocal tries
        tries += 1
        raise BrokerUnavailableError("no broker answers")

    with pytest.raises(BrokerUnavailableError):
        retry_until_available(
            send_request, "in cannot be written to", MINUTES_5_MS, clock, lambda: None
        )
    assert tries > 2_900
    warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert 1 <= len(warnings) <= 15
