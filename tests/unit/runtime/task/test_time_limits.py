"""The time limits of a thread, the pace of its tasks, and interruptions of batches."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

import pytest

from millstream.clock import ManualClock
from millstream.errors import StreamsError
from millstream.operators.user_calls import BatchInterruptedError, UserCalls
from millstream.record import TaskId
from millstream.runtime.task.time_limits import BatchSize, FlushSize, TimeLimits

TASK = TaskId(0, 0)


def make_limits(limit_ms: int = 10_000) -> tuple[TimeLimits, ManualClock]:
    clock = ManualClock()
    return TimeLimits(clock, limit_ms, "the.setting"), clock


def _double(number: int) -> int:
    return 2 * number


def test_batches_start_with_one_record_and_double_while_they_are_fast() -> None:
    size = BatchSize(1, 200)
    for expected in (1, 2, 4, 8):
        assert size.limit == expected
        size.adapt(expected, expected, 20)
    size.adapt(16, 16, 100)
    assert size.limit == 16
    size.adapt(16, 16, 1_600)
    assert size.limit == 2


def test_flushes_are_unbounded_until_one_takes_too_long() -> None:
    size = FlushSize()
    size.adapt(1_000, 100, 2_500)
    assert size.limit is None
    size.adapt(100, 5_000, 2_500)
    assert size.limit == 25
    size.adapt(25, 100, 2_500)
    assert size.limit == 200
    size.adapt(200, 1_000, 2_500)
    assert size.limit == 200


@pytest.mark.parametrize(("limit_ms", "batch_ms"), [(300_000, 200), (10_000, 200), (1_000, 50)])
def test_time_of_a_batch_is_a_fraction_of_the_limits(limit_ms: int, batch_ms: int) -> None:
    limits, _ = make_limits(limit_ms)
    assert limits.batch_ms == batch_ms
    assert limits.budget_ms <= 30_000
    assert limits.budget_ms <= limit_ms // 2


def test_tasks_share_the_time_for_flushes() -> None:
    limits, _ = make_limits(10_000)
    limits.running = 5
    assert limits.flush_ms == 500


def test_pace_of_a_task_outlives_the_task() -> None:
    limits, _ = make_limits()
    limits.pace_of(TASK).batch.adapt(1, 1, 0)
    assert limits.pace_of(TASK).batch.limit == 2
    limits.pace_of(TASK).restart()
    assert limits.pace_of(TASK).batch.limit == 1


def test_calls_are_interrupted_after_the_time_limit_and_work_again_afterwards() -> None:
    limits, clock = make_limits()
    calls = UserCalls()
    double = calls.add(_double)

    def batch() -> None:
        with limits.watched(calls, divisible=True):
            clock.advance(4_999)
            limits.check_timer()
            assert double(1) == 2
            clock.advance(1)
            limits.check_timer()
            double(1)

    with pytest.raises(BatchInterruptedError):
        batch()
    assert double(2) == 4
    limits.check_timer()
    assert double(3) == 6


@pytest.mark.parametrize("reaction", [None, ValueError("user code")])
def test_interrupted_call_counts_although_user_code_catches_the_exception(
    reaction: Exception | None,
) -> None:
    limits, clock = make_limits()
    calls = UserCalls()
    double = calls.add(_double)

    def batch() -> None:
        with limits.watched(calls, divisible=True):
            clock.advance(5_000)
            limits.check_timer()
            with suppress(BaseException):
                double(1)
            if reaction is not None:
                raise reaction

    with pytest.raises(BatchInterruptedError):
        batch()
    # Only once, and not if there was no further call.
    with limits.watched(calls, divisible=True):
        clock.advance(5_000)
        limits.check_timer()


def test_indivisible_batch_is_not_interrupted() -> None:
    limits, clock = make_limits()
    calls = UserCalls()
    double = calls.add(_double)
    with limits.watched(calls, divisible=False):
        clock.advance(60_000)
        limits.check_timer()
        assert double(1) == 2


def test_guarded_list_ends_at_the_interruption() -> None:
    limits, clock = make_limits()
    seen = []
    with limits.watched(None, divisible=True):
        for each in limits.interruptible([1, 2, 3]):
            seen.append(each)
            clock.advance(3_000)
            limits.check_timer()
        assert limits.interruptible([1, 2]) == []
    assert seen == [1, 2]
    assert limits.interruptible([1]) == [1]


def test_call_in_c_is_interrupted_from_another_thread() -> None:
    """Between two calls of one `map`, without a Python frame in between."""
    calls = UserCalls()
    called, stopped = threading.Event(), threading.Event()
    done: list[int] = []

    def function(number: int) -> int:
        if number == 10:
            called.set()
            assert stopped.wait(10)
        return number

    def stop() -> None:
        called.wait(10)
        calls.interrupt()
        stopped.set()

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(BatchInterruptedError):
        done.extend(map(calls.add(function), range(100)))
    thread.join()
    # The current call has ended normally.
    assert done == list(range(11))


def test_unit_that_exceeds_the_limits_is_an_error_when_it_is_repeated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limits, _ = make_limits()
    pace = limits.pace_of(TASK)
    with caplog.at_level(logging.WARNING):
        limits.check(pace, "unit", 10_001, "One record", node="slow")
    assert "the.setting" in caplog.text
    limits.on_work_dropped(pace)
    with pytest.raises(StreamsError, match="One record took 10001 ms") as raised:
        limits.check(pace, "unit", 10_001, "One record", node="slow")
    assert raised.value.node == "slow"


def test_long_unit_is_no_error_without_lost_work_or_after_a_faster_one() -> None:
    """For example in a process that was paused."""
    limits, _ = make_limits()
    pace = limits.pace_of(TASK)
    limits.check(pace, "unit", 10_001, "A punctuator")
    limits.check(pace, "unit", 10_001, "A punctuator")
    limits.on_work_dropped(pace)
    limits.check(pace, "unit", 10, "A punctuator")
    limits.check(pace, "unit", 10_001, "A punctuator")
    limits.on_work_dropped(pace)
    limits.check(pace, "another", 10_001, "A punctuator")
