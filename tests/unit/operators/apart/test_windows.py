"""In which order calls are given back, and which input records are still in flight."""

from __future__ import annotations

from collections.abc import Callable

from millstream.operators.apart.calls import Call
from millstream.operators.apart.equipment import ReleasedTime
from millstream.operators.apart.flights import Flights
from millstream.operators.apart.window import AsTheyEnd, InOrder
from millstream.operators.batch import Batch, Origin
from millstream.record import TopicPartition

Calls = Callable[..., list[Call]]
HERE, THERE = TopicPartition("in", 0), TopicPartition("in", 1)


def batch(place: TopicPartition | None, *offsets: int) -> Batch:
    size = len(offsets)
    return Batch([b"k"] * size, [b"v"] * size, [0] * size, range(size), Origin(place, offsets))


def test_what_ends_goes_on(calls: Calls) -> None:
    window, begun = AsTheyEnd(), calls("abc")
    window.add(begun)
    assert window.pass_on([begun[2], begun[0]]) == [begun[2], begun[0]]


def test_nothing_goes_on_before_what_is_in_front_of_it(calls: Calls) -> None:
    window, begun = InOrder(), calls("abcd")
    window.add(begun[:3])
    assert window.pass_on([begun[2]]) == []
    assert window.pass_on([begun[0]]) == [begun[0]]
    window.add(begun[3:])
    assert window.pass_on([begun[3], begun[1]]) == begun[1:]


def test_each_partition_has_an_order_of_its_own(calls: Calls) -> None:
    window = InOrder()
    here, there = calls("ab", place=HERE), calls("ab", place=THERE)
    window.add([*here, *there])
    assert window.pass_on([here[1], there[0]]) == [there[0]]
    assert window.pass_on([here[0], there[1]]) == [*here, there[1]]


def test_an_offset_is_done_when_all_of_it_has_landed() -> None:
    """A record may be in flight several times, where it was fanned out."""
    flights = Flights()
    assert not flights
    flights.hold(batch(HERE, 1, 1, 2))
    flights.hold_one(THERE, 1)
    assert list(flights.not_held(batch(HERE, 0, 1, 2))) == [(HERE, 0)]
    assert flights.let_go(batch(HERE, 1)) == []
    assert flights.let_go(batch(HERE, 2, 1)) == [(HERE, 2), (HERE, 1)]
    assert flights.let_go(batch(THERE, 1)) == [(THERE, 1)]
    assert not flights


def test_what_a_punctuation_has_caused_is_in_flight_and_belongs_to_no_offset() -> None:
    flights = Flights()
    flights.hold(batch(None, -1, -1))
    assert flights
    assert flights.unplaced == 2
    assert flights.let_go(batch(None, -1, -1)) == []
    assert not flights


def test_time_goes_on_up_to_whom_it_is_to_call() -> None:
    """The stream time behind is that of what was given back, and never goes down."""
    calls: list[int | None] = [None]
    time = ReleasedTime(lambda: calls[0])
    assert time.pass_on([5, 3, 7]) == [5, 5, 7]
    calls[0] = 10
    assert time.pass_on([8, 12, 20]) == [8, 12]
    assert time.stream_time == 12
