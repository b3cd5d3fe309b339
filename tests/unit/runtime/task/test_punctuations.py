"""The times of punctuator calls: the rules of Kafka Streams' PunctuationQueue."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millstream.clock import ManualClock
from millstream.processor.punctuation import PunctuationType
from millstream.runtime.task.punctuations import Punctuations, Schedule

STREAM, WALL = PunctuationType.STREAM_TIME, PunctuationType.WALL_CLOCK_TIME


class Calls:
    """The schedules of a task, and the calls they made."""

    def __init__(self, now_ms: int = 0) -> None:
        self.clock = ManualClock(now_ms)
        self.punctuations = Punctuations(self.clock)
        self.log: list[tuple[str, int]] = []

    def add(
        self,
        name: str,
        interval_ms: int,
        kind: PunctuationType,
        *,
        start_ms: int | None = None,
        stream_time: int = -1,
        then: Callable[[], object] = lambda: None,
    ) -> Schedule:
        def call(time_ms: int) -> None:
            self.log.append((name, time_ms))
            then()

        return self.punctuations.schedule(call, interval_ms, kind, start_ms, stream_time)

    def at(self, *times: int, kind: PunctuationType = STREAM) -> list[tuple[str, int]]:
        """Return the calls at the given times, with one check each."""
        self.log = []
        for time in times:
            called = len(self.log)
            done = self.punctuations.run_due(kind, time, lambda call, now: call(now))
            assert done == (len(self.log) > called)
        return self.log


def test_stream_time_starts_with_the_first_record_and_keeps_multiples() -> None:
    calls = Calls()
    calls.add("p", 10, STREAM)
    assert calls.at(3, 9, 10, 19, 25, 30) == [("p", 3), ("p", 10), ("p", 25), ("p", 30)]


def test_missed_calls_are_skipped() -> None:
    calls = Calls()
    calls.add("p", 10, STREAM)
    assert calls.at(1_003, 1_009, 1_010) == [("p", 1_003), ("p", 1_010)]


def test_wall_clock_starts_one_interval_from_now() -> None:
    calls = Calls(now_ms=7)
    calls.add("p", 10, WALL)
    assert calls.punctuations.next_ms(WALL) == 17
    assert calls.at(16, 17, 26, 40, 46, kind=WALL) == [("p", 17), ("p", 40)]
    assert calls.at(47, kind=WALL) == [("p", 47)]


@pytest.mark.parametrize(
    ("kind", "start", "first"),
    [(STREAM, 25, 25), (STREAM, 20, 20), (STREAM, 3, 23), (WALL, 105, 105), (WALL, 3, 103)],
)
def test_start_in_the_past_is_moved_by_whole_intervals(
    kind: PunctuationType, start: int, first: int
) -> None:
    calls = Calls(now_ms=100)
    calls.add("p", 10, kind, start_ms=start, stream_time=20)
    assert calls.punctuations.next_ms(kind) == first


def test_schedule_ends_when_it_is_canceled() -> None:
    """In its own call, before its time, and twice."""
    calls = Calls()
    own = calls.add("own", 10, STREAM, then=lambda: own.cancel())
    other = calls.add("other", 10, STREAM)
    assert calls.at(0) == [("own", 0), ("other", 0)]
    other.cancel()
    other.cancel()
    assert calls.at(10, 20) == []


def test_ties_are_resolved_like_in_java() -> None:
    """The expected order is that of java.util.PriorityQueue for four schedules with equal times."""
    calls = Calls()
    for name in "abcd":
        calls.add(name, 10, STREAM)
    assert "".join(name for name, _ in calls.at(0)) == "adbc"
    assert "".join(name for name, _ in calls.at(10)) == "bcad"


def test_schedule_from_within_a_call_can_be_due_at_once() -> None:
    calls = Calls()
    calls.add("first", 100, STREAM, then=lambda: calls.add("second", 100, STREAM))
    assert calls.at(5) == [("first", 5), ("second", 5)]
