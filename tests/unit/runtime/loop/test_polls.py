"""How many records are asked for beside what is in flight."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from support.tasks.thread_parts import SETTINGS

from millstream.clock import ManualClock
from millstream.runtime.loop.polls import Polls


class Bench:
    """Polls whose parts note what they are asked."""

    def __init__(
        self, *, in_flight: int = 0, room: int = 100, buffered: int = 0, linger_ms: float = 5
    ) -> None:
        task = Mock(in_flight=in_flight, buffered=buffered)
        self.tasks: Any = Mock(running=[task], input_room=room)
        self.consumer: Any = Mock(poll_columns=Mock(return_value={}))
        self.producer: Any = Mock(held_back=0)
        self.rebalances: Any = Mock()
        self.clock = ManualClock(1_000)
        settings = replace(SETTINGS, max_poll_records=100, linger_ms=linger_ms)
        self.polls = Polls(
            self.consumer, self.producer, self.tasks, self.rebalances, settings, self.clock
        )

    def polled(self, timeout_ms: int = 100) -> list[tuple[int, int]]:
        """What is asked of the consumer by one poll."""
        self.consumer.poll_columns.reset_mock()
        self.polls.poll(timeout_ms)
        return [call.args for call in self.consumer.poll_columns.call_args_list]


def found(*counts: int) -> Any:
    """So many records of each of some partitions."""
    return {f"place {at}": Mock(values=[b""] * count) for at, count in enumerate(counts)}


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
    bench.consumer.poll_columns.return_value = found(1)
    bench.polled()
    bench.rebalances.has_news.assert_called_once()


def test_what_was_sent_is_let_go_when_there_is_nothing_to_do() -> None:
    """Goal: a record whose result is written waits for no other one that may never come."""
    bench = Bench()
    bench.producer.held_back = 3
    assert bench.polled() == [(100, 0)]
    bench.producer.send_at_once.assert_called_once_with()
    # Nothing is left to wait for: the next poll waits as long as it may.
    assert bench.polled() == [(100, 100)]


def test_records_are_let_go_once_in_linger_ms() -> None:
    """Else each record would be a request of its own, and the setting without a meaning."""
    bench = Bench()
    bench.producer.held_back = 1
    bench.polled()
    bench.clock.advance(2)
    bench.producer.held_back = 1
    # It is waited for records until it is time.
    assert bench.polled() == [(100, 3)]
    assert bench.polled(timeout_ms=2) == [(100, 2)]
    bench.producer.send_at_once.assert_called_once_with()
    bench.clock.advance(3)
    assert bench.polled() == [(100, 0)]
    assert bench.producer.send_at_once.call_count == 2


def test_nothing_is_let_go_while_there_is_work() -> None:
    """What comes of it can go with it; and letting go takes time."""
    bench = Bench()
    bench.producer.held_back = 1
    assert bench.polled(timeout_ms=0) == [(100, 0)]
    records = bench.consumer.poll_columns.return_value = found(1)
    assert bench.polls.poll(100) is records
    bench.producer.send_at_once.assert_not_called()


@pytest.mark.parametrize(("held_back", "linger_ms"), [(21, 5), (3, 0)])
def test_what_is_sent_soon_anyway_is_not_let_go(held_back: int, linger_ms: float) -> None:
    """Of many records batches fill by themselves, and where none may linger none waits."""
    bench = Bench(linger_ms=linger_ms)
    bench.producer.held_back = held_back
    assert bench.polled() == [(100, 100)]
    bench.producer.send_at_once.assert_not_called()


def test_records_that_come_a_few_at_a_time_are_let_come_together() -> None:
    """Goal: at a steady pace the price of a step is paid for more records, at most 2 ms later."""
    bench = Bench()
    bench.consumer.poll_columns.return_value = found(3, 4)
    bench.polled()
    bench.rebalances.has_news.assert_not_called()
    bench.polled()
    bench.rebalances.has_news.assert_called_once_with(2)
    # What was done meanwhile counts.
    bench.clock.advance(1)
    bench.polled()
    bench.rebalances.has_news.assert_called_with(1)
    bench.clock.advance(2)
    bench.polled()
    assert bench.rebalances.has_news.call_count == 2


@pytest.mark.parametrize("counts", [(), (1, 1), (60, 50)])
def test_nobody_waits_where_records_are_rare_or_many(counts: tuple[int, ...]) -> None:
    bench = Bench()
    bench.consumer.poll_columns.return_value = found(*counts)
    bench.polled()
    bench.polled()
    bench.rebalances.has_news.assert_not_called()


def test_who_has_something_to_do_does_not_wait_for_records_to_come_together() -> None:
    bench = Bench()
    bench.consumer.poll_columns.return_value = found(7)
    bench.polled()
    bench.polled(timeout_ms=0)
    bench.rebalances.has_news.assert_not_called()
    bench.polled(timeout_ms=1)
    bench.rebalances.has_news.assert_called_once_with(1)
