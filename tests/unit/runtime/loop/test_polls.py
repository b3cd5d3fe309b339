"""How many records are asked for beside what is in flight."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from millstream.clock import ManualClock
from millstream.runtime.loop.polls import Polls


class Bench:
    """Polls whose parts note what they are asked."""

    def __init__(self, *, in_flight: int, room: int, buffered: int = 0) -> None:
        task = Mock(in_flight=in_flight, buffered=buffered)
        self.tasks: Any = Mock(running=[task], input_room=room)
        self.consumer: Any = Mock(poll_columns=Mock(return_value={}))
        self.rebalances: Any = Mock()
        self.clock = ManualClock(1_000)
        self.polls = Polls(self.consumer, self.tasks, self.rebalances, 100, self.clock)

    def polled(self, timeout_ms: int = 100) -> list[tuple[int, int]]:
        """What is asked of the consumer by one poll."""
        self.consumer.poll_columns.reset_mock()
        self.polls.poll(timeout_ms)
        return [call.args for call in self.consumer.poll_columns.call_args_list]


def test_with_nothing_in_flight_records_are_all_there_is_to_wait_for() -> None:
    bench = Bench(in_flight=0, room=3)
    assert bench.polled() == [(100, 100)]
    bench.rebalances.has_news.assert_not_called()


def test_calls_that_have_ended_have_left_records_waiting() -> None:
    """Then those are what there is room beside, and records are waited for as ever."""
    bench = Bench(in_flight=0, buffered=40, room=60)
    assert bench.polled() == [(60, 100)]
    bench.tasks.input_room = 0
    assert bench.polled() == []
    bench.rebalances.has_news.assert_called_once_with(50)


def test_no_more_are_asked_for_than_may_wait() -> None:
    """Else the partition would be paused, and what was fetched thrown away."""
    bench = Bench(in_flight=7, room=60)
    assert bench.polled() == [(60, 0)]
    bench.tasks.input_room = 500
    assert bench.polled() == [(100, 0)]


def test_who_has_enough_asks_only_now_and_then() -> None:
    """For errors, which nobody would hear of."""
    bench = Bench(in_flight=7, room=0)
    assert bench.polled() == [(1, 0)]
    assert bench.polled() == []
    bench.clock.advance(60)
    assert bench.polled() == [(1, 0)]


def test_the_ends_of_calls_are_waited_for_unless_there_is_something_to_do() -> None:
    bench = Bench(in_flight=7, room=60)
    bench.polled(timeout_ms=0)
    bench.rebalances.has_news.assert_not_called()
    bench.polled(timeout_ms=3)
    bench.rebalances.has_news.assert_called_once_with(3)
    bench.consumer.poll_columns.return_value = {"place": "records"}
    bench.polled()
    bench.rebalances.has_news.assert_called_once()
