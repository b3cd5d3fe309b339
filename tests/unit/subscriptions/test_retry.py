"""The retry policy."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest

from millstream.errors import ConfigError
from millstream.parallel import ExponentialBackoff, Retry

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backoff": 10}, "takes a timedelta for backoff"),
        ({"backoff": -SECOND}, "backoff"),
        ({"topic": "a b"}, "topic='a b', but topics have"),
        ({"topic": ".."}, "topics have"),
        ({"topic": "a" * 250}, "topics have"),
        ({"topic": ""}, "topics have"),
        ({"topic": 5}, "topics have"),
        ({"max_attempts": 3, "dead_letter_topic": "é"}, "dead_letter_topic='é'"),
        ({"max_attempts": 3, "topic": "t", "dead_letter_topic": "t"}, "both for topic and"),
        ({"max_attempts": 3}, "no action for the last failure"),
        ({"max_attempts": 0, "after_last": "drop"}, "max_attempts=0"),
        ({"max_attempts": True, "after_last": "drop"}, "max_attempts=True"),
        ({"after_last": "drop"}, "Pass max_attempts"),
        ({"dead_letter_topic": "t"}, "Pass max_attempts"),
        ({"max_attempts": 3, "after_last": "dead_letter"}, "Pass both or neither"),
        ({"max_attempts": 3, "after_last": "drop", "dead_letter_topic": "t"}, "Pass both or"),
        ({"max_attempts": 3, "after_last": "skip"}, "one of dead_letter, drop, fail"),
        ({"on_send_failure": "resend"}, "one of keep, drop, fail"),
    ],
)
def test_inconsistent_arguments_are_rejected(arguments: dict[str, Any], message: str) -> None:
    """There are no silent decisions about lost tasks."""
    with pytest.raises(ConfigError, match=message):
        Retry(**{"backoff": SECOND, **arguments})


def test_number_of_attempts_is_unlimited_by_default() -> None:
    """As in Decaton."""
    retry = Retry(backoff=timedelta(milliseconds=50))
    assert [retry.next_delay_ms(count) for count in (0, 1, 10**9)] == [50, 50, 50]
    assert (retry.after_last, retry.on_send_failure) == (None, "keep")


@pytest.mark.parametrize("after_last", ["drop", "fail"])
def test_first_execution_is_an_attempt(after_last: Any) -> None:
    """Two attempts are one retry, and one is none."""
    twice = Retry(backoff=SECOND, max_attempts=2, after_last=after_last)
    assert [twice.next_delay_ms(count) for count in (0, 1, 2)] == [1_000, None, None]
    once = Retry(backoff=SECOND, max_attempts=1, after_last=after_last)
    assert once.next_delay_ms(0) is None


def test_exponential_backoff_has_a_maximum() -> None:
    """For every factor; a number too large for a float is the longest pause."""
    minute = timedelta(minutes=1)
    retry = Retry(backoff=ExponentialBackoff(SECOND, most=minute, factor=3))
    assert [retry.next_delay_ms(count) for count in (0, 1, 2, 3, 4, 5_000)] == [
        *(1_000, 3_000, 9_000, 27_000),
        *(60_000, 60_000),
    ]
    slow = ExponentialBackoff(SECOND, most=minute, factor=1.5)
    assert [slow.pause_ms(count) for count in (1, 2, 10_000)] == [1_500, 2_250, 60_000]
    assert ExponentialBackoff(SECOND, most=SECOND, factor=1).pause_ms(3) == 1_000


@pytest.mark.parametrize("factor", [2, 2.0])
def test_invalid_number_of_retries_leads_to_the_longest_pause(factor: float) -> None:
    """At once: the number comes from the record, and a power of integers would take forever."""
    backoff = ExponentialBackoff(SECOND, most=timedelta(minutes=1), factor=factor)
    assert backoff.pause_ms(1 << 26) == 60_000
    assert backoff.pause_ms((1 << 63) - 1) == 60_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"first": timedelta(0)}, "first"),
        ({"first": 1}, "takes a timedelta for first"),
        ({"most": SECOND / 2}, "shorter than first"),
        ({"factor": 0.5}, "at least 1"),
        ({"factor": float("inf")}, "finite"),
        ({"factor": float("nan")}, "at least 1"),
        ({"factor": "2"}, "is not a number"),
    ],
)
def test_invalid_backoff_is_rejected(arguments: dict[str, Any], message: str) -> None:
    """Pauses never become shorter, and are finite."""
    with pytest.raises(ConfigError, match=message):
        ExponentialBackoff(**{"first": SECOND, "most": SECOND, **arguments})


def test_policy_can_be_pickled() -> None:
    """It is sent to workers."""
    retry = Retry(backoff=SECOND, max_attempts=3, dead_letter_topic="dead")
    assert pickle.loads(pickle.dumps(retry)) == retry
    assert retry.topic_for("a.b") == "a.b-retry"
