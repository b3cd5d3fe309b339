"""The time limits of a thread, the pace of its tasks, and what stops a batch."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

import pytest

from millstream.clock import ManualClock
from millstream.errors import StreamsError
from millstream.operators.interruption import BatchInterruptedError, UserCalls
from millstream.record import TaskId
from millstream.runtime.task.queues.batch_size import BatchSize, FlushSize
from millstream.runtime.task.time_limits import TimeLimits

TASK = TaskId(0, 0)


def limits(limit_ms: int = 10_000) -> tuple[TimeLimits, ManualClock]:
    clock = ManualClock()
    return TimeLimits(clock, limit_ms, "the.setting"), clock


def _double(number: int) -> int:
    return 2 * number


def test_batches_begin_with_one_record_and_double_while_they_are_fast() -> None:
    size = BatchSize(1, 200)
    for expected in (1, 2, 4, 8):
        assert size.limit == expected
        size.fit(expected, expected, 20)
    size.fit(16, 16, 100)
    assert size.limit == 16
    size.fit(16, 16, 1_600)
    assert size.limit == 2


def test_flushes_are_unbounded_until_one_takes_too_long() -> None:
    size = FlushSize()
    size.fit(1_000, 100, 2_500)
    assert size.limit is None
    size.fit(100, 5_000, 2_500)
    assert size.limit == 25
    size.fit(25, 100, 2_500)
    assert size.limit == 200
    size.fit(200, 1_000, 2_500)
    assert size.limit == 200


@pytest.mark.parametrize(("limit_ms", "batch_ms"), [(300_000, 200), (10_000, 200), (1_000, 50)])
def test_the_time_of_a_batch_is_a_part_of_the_limits(limit_ms: int, batch_ms: int) -> None:
    made, _ = limits(limit_ms)
    assert made.batch_ms == batch_ms
    assert made.budget_ms <= 30_000
    assert made.budget_ms <= limit_ms // 2


def test_tasks_share_the_time_for_flushes() -> None:
    made, _ = limits(10_000)
    made.running = 5
    assert made.flush_ms == 500


def test_the_pace_of_a_task_outlives_it() -> None:
    made, _ = limits()
    made.pace_of(TASK).batch.fit(1, 1, 0)
    assert made.pace_of(TASK).batch.limit == 2
    made.pace_of(TASK).restart()
    assert made.pace_of(TASK).batch.limit == 1


def test_calls_are_stopped_when_the_time_is_over_and_work_again_afterwards() -> None:
    made, clock = limits()
    calls = UserCalls()
    double = calls.add(_double)

    def batch() -> None:
        with made.watched(calls, divisible=True):
            clock.advance(4_999)
            made.look()
            assert double(1) == 2
            clock.advance(1)
            made.look()
            double(1)

    with pytest.raises(BatchInterruptedError):
        batch()
    assert double(2) == 4
    made.look()
    assert double(3) == 6


@pytest.mark.parametrize("reaction", [None, ValueError("of the user's")])
def test_a_stopped_call_counts_though_user_code_catches_its_error(
    reaction: Exception | None,
) -> None:
    made, clock = limits()
    calls = UserCalls()
    double = calls.add(_double)

    def batch() -> None:
        with made.watched(calls, divisible=True):
            clock.advance(5_000)
            made.look()
            with suppress(BaseException):
                double(1)
            if reaction is not None:
                raise reaction

    with pytest.raises(BatchInterruptedError):
        batch()
    # Only once, and not where no call was made any more.
    with made.watched(calls, divisible=True):
        clock.advance(5_000)
        made.look()


def test_what_cannot_be_divided_is_not_stopped() -> None:
    made, clock = limits()
    calls = UserCalls()
    double = calls.add(_double)
    with made.watched(calls, divisible=False):
        clock.advance(60_000)
        made.look()
        assert double(1) == 2


def test_a_list_ends_where_it_is_stopped() -> None:
    made, clock = limits()
    seen = []
    with made.watched(None, divisible=True):
        for each in made.guarded([1, 2, 3]):
            seen.append(each)
            clock.advance(3_000)
            made.look()
        assert made.guarded([1, 2]) == []
    assert seen == [1, 2]
    assert made.guarded([1]) == [1]


def test_a_call_in_c_is_stopped_from_another_thread() -> None:
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

    beside = threading.Thread(target=stop)
    beside.start()
    with pytest.raises(BatchInterruptedError):
        done.extend(map(calls.add(function), range(100)))
    beside.join()
    # The call at hand has ended as ever.
    assert done == list(range(11))


def test_a_unit_that_is_longer_than_the_limits_is_an_error_when_it_is_repeated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made, _ = limits()
    pace = made.pace_of(TASK)
    with caplog.at_level(logging.WARNING):
        made.check(pace, "unit", 10_001, "One record", node="slow")
    assert "the.setting" in caplog.text
    made.given_up(pace)
    with pytest.raises(StreamsError, match="One record took 10001 ms") as raised:
        made.check(pace, "unit", 10_001, "One record", node="slow")
    assert raised.value.node == "slow"


def test_a_long_unit_is_no_error_where_nothing_was_lost_or_it_was_faster_since() -> None:
    """As with a process that was paused."""
    made, _ = limits()
    pace = made.pace_of(TASK)
    made.check(pace, "unit", 10_001, "A punctuator")
    made.check(pace, "unit", 10_001, "A punctuator")
    made.given_up(pace)
    made.check(pace, "unit", 10, "A punctuator")
    made.check(pace, "unit", 10_001, "A punctuator")
    made.given_up(pace)
    made.check(pace, "another", 10_001, "A punctuator")
