"""How many records are polled while others are in flight."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from support.tasks.thread_parts import SETTINGS

from millstream.clock import ManualClock
from millstream.runtime.loop.record_poller import RecordPoller


class Bench:
    """A poller with mocked parts."""

    def __init__(
        self, *, in_flight: int = 0, room: int = 100, buffered: int = 0, linger_ms: float = 5
    ) -> None:
        task = Mock(in_flight=in_flight, buffered=buffered)
        self.tasks: Any = Mock(running=[task], inputs=Mock(remaining_capacity=room))
        self.consumer: Any = Mock(poll_columns=Mock(return_value={}))
        self.producer: Any = Mock(unflushed_records=0)
        self.rebalances: Any = Mock()
        self.clock = ManualClock(1_000)
        settings = replace(SETTINGS, max_poll_records=100, linger_ms=linger_ms)
        self.polls = RecordPoller(
            self.consumer, self.producer, self.tasks, self.rebalances, settings, self.clock
        )

    def polled(self, timeout_ms: int = 100) -> list[tuple[int, int]]:
        """Return the arguments of the consumer's polls."""
        self.consumer.poll_columns.reset_mock()
        self.polls.poll(timeout_ms)
        return [call.args for call in self.consumer.poll_columns.call_args_list]


def polled_records(*counts: int) -> Any:
    """Return columns with the given numbers of records, for one partition each."""
    return {f"place {at}": Mock(values=[b""] * count) for at, count in enumerate(counts)}


def test_poll_waits_for_records_if_nothing_is_in_flight() -> None:
    bench = Bench(in_flight=0, room=3)
    assert bench.polled() == [(100, 100)]
    bench.rebalances.has_event.assert_not_called()


def test_buffered_records_reduce_the_number_of_polled_records() -> None:
    """The poll is limited to the remaining capacity and waits as usual."""
    bench = Bench(in_flight=0, buffered=40, room=60)
    assert bench.polled() == [(60, 100)]
    bench.tasks.inputs.remaining_capacity = 0
    assert bench.polled() == []
    bench.rebalances.has_event.assert_called_once_with(50)


def test_poll_is_limited_to_the_remaining_capacity() -> None:
    """Otherwise the partition would be paused and its fetched records discarded."""
    bench = Bench(in_flight=7, room=60)
    assert bench.polled() == [(60, 0)]
    bench.tasks.inputs.remaining_capacity = 500
    assert bench.polled() == [(100, 0)]


def test_thread_without_capacity_polls_only_occasionally() -> None:
    """It polls because errors are only reported by polls."""
    bench = Bench(in_flight=7, room=0)
    assert bench.polled() == [(1, 0)]
    assert bench.polled() == []
    bench.clock.advance(60)
    assert bench.polled() == [(1, 0)]


def test_poll_waits_for_completions_unless_there_is_work() -> None:
    bench = Bench(in_flight=7, room=60)
    bench.polled(timeout_ms=0)
    bench.rebalances.has_event.assert_not_called()
    bench.polled(timeout_ms=3)
    bench.rebalances.has_event.assert_called_once_with(3)
    bench.consumer.poll_columns.return_value = polled_records(1)
    bench.polled()
    bench.rebalances.has_event.assert_called_once()


def test_idle_thread_sends_lingering_records() -> None:
    """A written result does not wait for further records that may never come."""
    bench = Bench()
    bench.producer.unflushed_records = 3
    assert bench.polled() == [(100, 0)]
    bench.producer.send_lingering.assert_called_once_with()
    # Nothing lingers anymore: the next poll may wait as long as usual.
    assert bench.polled() == [(100, 100)]


def test_lingering_records_are_sent_once_per_linger_ms() -> None:
    """Otherwise each record would be a request of its own, and the setting would have no effect."""
    bench = Bench()
    bench.producer.unflushed_records = 1
    bench.polled()
    bench.clock.advance(2)
    bench.producer.unflushed_records = 1
    # The poll waits for records until the linger time is over.
    assert bench.polled() == [(100, 3)]
    assert bench.polled(timeout_ms=2) == [(100, 2)]
    bench.producer.send_lingering.assert_called_once_with()
    bench.clock.advance(3)
    assert bench.polled() == [(100, 0)]
    assert bench.producer.send_lingering.call_count == 2


def test_lingering_records_are_not_sent_while_there_is_work() -> None:
    """The results of that work can be sent with them, and sending takes time."""
    bench = Bench()
    bench.producer.unflushed_records = 1
    assert bench.polled(timeout_ms=0) == [(100, 0)]
    records = bench.consumer.poll_columns.return_value = polled_records(1)
    assert bench.polls.poll(100) is records
    bench.producer.send_lingering.assert_not_called()


@pytest.mark.parametrize(("unflushed_records", "linger_ms"), [(21, 5), (3, 0)])
def test_records_that_are_sent_soon_anyway_are_not_flushed(
    unflushed_records: int, linger_ms: float
) -> None:
    """Many records fill batches by themselves, and without linger no record waits."""
    bench = Bench(linger_ms=linger_ms)
    bench.producer.unflushed_records = unflushed_records
    assert bench.polled() == [(100, 100)]
    bench.producer.send_lingering.assert_not_called()


def test_thread_pauses_after_small_polls_to_collect_records() -> None:
    """At a steady rate, each step then processes more records, at most 2 ms later."""
    bench = Bench()
    bench.consumer.poll_columns.return_value = polled_records(3, 4)
    bench.polled()
    bench.rebalances.has_event.assert_not_called()
    bench.polled()
    bench.rebalances.has_event.assert_called_once_with(2)
    # The time spent on processing counts.
    bench.clock.advance(1)
    bench.polled()
    bench.rebalances.has_event.assert_called_with(1)
    bench.clock.advance(2)
    bench.polled()
    assert bench.rebalances.has_event.call_count == 2


@pytest.mark.parametrize("counts", [(), (1, 1), (60, 50)])
def test_thread_does_not_pause_after_empty_or_large_polls(counts: tuple[int, ...]) -> None:
    bench = Bench()
    bench.consumer.poll_columns.return_value = polled_records(*counts)
    bench.polled()
    bench.polled()
    bench.rebalances.has_event.assert_not_called()


def test_thread_with_work_does_not_pause_to_collect_records() -> None:
    bench = Bench()
    bench.consumer.poll_columns.return_value = polled_records(7)
    bench.polled()
    bench.polled(timeout_ms=0)
    bench.rebalances.has_event.assert_not_called()
    bench.polled(timeout_ms=1)
    bench.rebalances.has_event.assert_called_once_with(1)
