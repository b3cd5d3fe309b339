"""The order in which calls are released, and the input records in flight."""

from __future__ import annotations

from collections.abc import Callable

from millstream.operators.concurrent.concurrent_calls import Call
from millstream.operators.concurrent.in_flight import InFlightRecords
from millstream.operators.concurrent.map_async import InputOrder
from millstream.operators.concurrent.runner_context import DownstreamTime
from millstream.operators.record_batch import Batch, Origin
from millstream.record import TopicPartition

Calls = Callable[..., list[Call]]
FIRST, SECOND = TopicPartition("in", 0), TopicPartition("in", 1)


def batch(place: TopicPartition | None, *offsets: int) -> Batch:
    size = len(offsets)
    return Batch([b"k"] * size, [b"v"] * size, [0] * size, range(size), Origin(place, offsets))


def test_calls_are_not_released_before_earlier_calls(calls: Calls) -> None:
    window, started = InputOrder(), calls("abcd")
    window.add(started[:3])
    assert window.release([started[2]]) == []
    assert window.release([started[0]]) == [started[0]]
    window.add(started[3:])
    assert window.release([started[3], started[1]]) == started[1:]


def test_each_partition_has_its_own_order(calls: Calls) -> None:
    window = InputOrder()
    first, second = calls("ab", place=FIRST), calls("ab", place=SECOND)
    window.add([*first, *second])
    assert window.release([first[1], second[0]]) == [second[0]]
    assert window.release([first[0], second[1]]) == [*first, second[1]]


def test_offset_is_completed_with_the_last_of_its_calls() -> None:
    """A record that was fanned out can be in flight several times."""
    in_flight_records = InFlightRecords()
    assert not in_flight_records
    in_flight_records.add(batch(FIRST, 1, 1, 2))
    in_flight_records.add_one(SECOND, 1)
    assert list(in_flight_records.not_in_flight(batch(FIRST, 0, 1, 2))) == [(FIRST, 0)]
    assert in_flight_records.remove(batch(FIRST, 1)) == []
    assert in_flight_records.remove(batch(FIRST, 2, 1)) == [(FIRST, 2), (FIRST, 1)]
    assert in_flight_records.remove(batch(SECOND, 1)) == [(SECOND, 1)]
    assert not in_flight_records


def test_records_of_a_punctuation_are_in_flight_without_an_offset() -> None:
    in_flight_records = InFlightRecords()
    in_flight_records.add(batch(None, -1, -1))
    assert in_flight_records
    assert in_flight_records.from_punctuations == 2
    assert in_flight_records.remove(batch(None, -1, -1)) == []
    assert not in_flight_records


def test_time_advances_up_to_the_next_punctuation() -> None:
    """The stream time behind the operator is that of released records, and never decreases."""
    calls: list[int | None] = [None]
    time = DownstreamTime(lambda: calls[0])
    assert time.advance([5, 3, 7]) == [5, 5, 7]
    calls[0] = 10
    assert time.advance([8, 12, 20]) == [8, 12]
    assert time.stream_time == 12
