"""Tests of each rule at its limits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from fraud_rules import (
    ALERT,
    ALERTS,
    HOUR_MS,
    MINUTE_MS,
    PAYMENT,
    PAYMENTS,
    REPORTS,
    Payment,
    demo,
    fraud_rules,
)

from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver


def alerts(payments: Sequence[tuple[int, int, str]]) -> list[str]:
    """Return the rules that the payments of one card violate, in order."""
    with TopologyTestDriver(fraud_rules()) as driver:
        topic = driver.create_input_topic(PAYMENTS, key=STRING, value=PAYMENT)
        for at_ms, cents, country in payments:
            topic.pipe_input("card", Payment(cents, country), at_ms)
        found = driver.create_output_topic(ALERTS, key=STRING, value=ALERT).read_values()
    return [alert.rule for alert in found]


@pytest.mark.parametrize(
    ("step_ms", "found"), [(14_000, ["many_at_once"]), (15_000, [])], ids=["within", "beyond"]
)
def test_five_payments_in_a_minute(step_ms: int, found: list[str]) -> None:
    assert alerts([(number * step_ms, 900, "NO") for number in range(5)]) == found


@pytest.mark.parametrize(("minutes", "found"), [(9, ["two_countries"]), (10, [])])
def test_two_countries_in_ten_minutes(minutes: int, found: list[str]) -> None:
    assert alerts([(0, 900, "NO"), (minutes * MINUTE_MS, 900, "PE")]) == found


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [(100, 50_001, ["small_then_large"]), (101, 50_001, []), (100, 50_000, [])],
)
def test_card_testing(first: int, second: int, found: list[str]) -> None:
    assert alerts([(0, first, "NO"), (30 * MINUTE_MS, second, "NO")]) == found


def test_hourly_reports() -> None:
    with TopologyTestDriver(fraud_rules()) as driver:
        topic = driver.create_input_topic(PAYMENTS, key=STRING, value=PAYMENT)
        reports = driver.create_output_topic(REPORTS, key=STRING, value=LONG)
        for at_ms, country in ((0, "NO"), (MINUTE_MS, "PE"), (2 * MINUTE_MS, "NO")):
            topic.pipe_input("card", Payment(900, country), at_ms)
        assert reports.is_empty
        topic.pipe_input("other", Payment(900, "NO"), HOUR_MS)
        assert reports.read_key_values() == [("two_countries", 2)]


def test_the_demo_succeeds() -> None:
    assert demo() == 0
