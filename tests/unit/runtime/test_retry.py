"""Retries have growing pauses and a timeout."""

import logging

import pytest

from millstream.clock import ManualClock
from millstream.errors import BrokerUnavailableError, LockError, UnknownTopicError
from millstream.record import TaskId
from millstream.runtime.retry import LockRetry, RetrySchedule


def pauses_of(retry: RetrySchedule, clock: ManualClock, count: int) -> list[int]:
    """Return the pauses after the given number of failures, in ms."""
    pauses = []
    for _ in range(count):
        assert retry.is_due
        retry.failed(LockError("locked"))
        before = clock.monotonic_ms()
        while not retry.is_due:
            clock.advance(1)
        pauses.append(clock.monotonic_ms() - before)
    return pauses


def test_pauses_grow_until_a_success() -> None:
    clock = ManualClock()
    retry = RetrySchedule("opening", clock, 100_000)
    pauses = pauses_of(retry, clock, 7)
    assert pauses == [100, 200, 400, 800, 1_600, 2_000, 2_000]
    retry.succeeded()
    retry.failed(ValueError("again"))
    clock.advance(100)
    assert retry.is_due


def test_error_is_raised_after_the_timeout() -> None:
    clock = ManualClock()
    retry = RetrySchedule("requesting", clock, 1_000)
    retry.failed(ValueError("first"))
    clock.advance(999)
    retry.failed(ValueError("second"))
    clock.advance(1)
    with pytest.raises(ValueError, match="third"):
        retry.failed(ValueError("third"))


def test_timeout_of_zero_forbids_retries_and_any_other_allows_one() -> None:
    """For `task.timeout.ms`, also if a single attempt takes longer than the timeout."""
    with pytest.raises(BrokerUnavailableError):
        RetrySchedule("requesting", ManualClock(), 0).failed(BrokerUnavailableError("no answer"))
    clock = ManualClock()
    retry = RetrySchedule("requesting", clock, 1)
    clock.advance(3_000)
    retry.failed(BrokerUnavailableError("no answer"))
    clock.advance(3_000)
    with pytest.raises(BrokerUnavailableError):
        retry.failed(BrokerUnavailableError("no answer"))


def test_new_topic_is_retried_even_with_a_timeout_of_zero() -> None:
    clock = ManualClock()
    retry = RetrySchedule("requesting", clock, 0)
    for _ in range(5):
        retry.failed(UnknownTopicError("unknown", topic="new"))
        clock.advance(1_000)
    with pytest.raises(UnknownTopicError):
        retry.failed(UnknownTopicError("unknown", topic="new"))


def test_lock_is_retried_often_and_logged_rarely(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    with caplog.at_level(logging.INFO):
        pauses = pauses_of(LockRetry("opening task 0_1", clock, 300_000), clock, 100)
    assert pauses == [100, 200, 400] + 97 * [500]
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("INFO", "opening task 0_1 failed, retrying: locked"),
        *(
            ("WARNING", f"opening task 0_1 has been failing for {seconds} s: locked")
            for seconds in (10, 20, 30, 40)
        ),
    ]


@pytest.mark.parametrize(("timeout_ms", "waits_s"), [(300_000, 300), (0, 30)])
def test_wait_for_a_lock_has_a_timeout(timeout_ms: int, waits_s: int) -> None:
    """Also without retries, since the holder may be closing at the moment."""
    clock = ManualClock()
    retry = LockRetry("opening task 0_1", clock, timeout_ms)
    retry.failed(LockError("held"))
    clock.advance(waits_s * 1_000 - 1)
    retry.failed(LockError("held"))
    clock.advance(1)
    message = rf"Gave up opening task 0_1 after {waits_s} s\. Process 7 holds it\."
    with pytest.raises(LockError, match=message) as raised:
        retry.failed(LockError("Process 7 holds it.", task_id=TaskId(0, 1)))
    assert raised.value.task_id == TaskId(0, 1)
