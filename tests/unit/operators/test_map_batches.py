"""`map_batches` in an operator: what goes on, in which order, and what is said when it fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.waiting import wait_for

from millstream.errors import ProcessingError
from millstream.operators.apart.equipment import Equipment, ReleasedTime
from millstream.operators.apart.map_batches import MapBatchesAsyncOperator
from millstream.operators.apart.real import RealApart
from millstream.operators.arrow import ArrowFormat
from millstream.operators.batch import Batch
from millstream.operators.map_batches import MapBatchesOperator
from millstream.record import TopicPartition

PLAIN = ArrowFormat(pa.int64(), with_key=False, with_timestamp=False)


def plain(function: Callable[[Any], Any], most: int = 3) -> MapBatchesOperator:
    return MapBatchesOperator(function, PLAIN, most)


def doubled(batch: Any) -> Any:
    return batch["value"].to_numpy() * 2


def test_everything_but_the_value_stays(stage: Any) -> None:
    """Key, time and headers of each record, in order, over the ends of batches."""
    calls: list[int] = []

    def counted(batch: Any) -> Any:
        calls.append(batch.num_rows)
        return doubled(batch)

    headers = (("h", b"1"),)
    emitted = stage(plain(counted)).feed(
        ("a", 1, 10, headers), ("b", 2, 5), (None, 3, 7), ("a", 4, 8), ("b", 5, 9)
    )
    assert calls == [3, 2]
    assert emitted == [
        ("a", 2, 10, headers),
        ("b", 4, 5, ()),
        (None, 6, 7, ()),
        ("a", 8, 8, ()),
        ("b", 10, 9, ()),
    ]


def test_a_record_without_a_value_goes_by(stage: Any) -> None:
    """It keeps its place, and nobody is called for such records alone."""
    calls: list[int] = []

    def counted(batch: Any) -> Any:
        calls.append(batch.num_rows)
        return doubled(batch)

    made = stage(plain(counted))
    assert [e[:2] for e in made.feed(("a", 1, 0), ("b", None, 0), ("c", 3, 0))] == [
        ("a", 2),
        ("b", None),
        ("c", 6),
    ]
    assert [e[:2] for e in made.feed(("d", None, 0))] == [("d", None)]
    assert calls == [2]


def odd(batch: Any) -> Any:
    if 13 in batch["value"].to_pylist():
        raise RuntimeError("thirteen")
    return doubled(batch)


def one_less(batch: Any) -> Any:
    return doubled(batch)[:-1]


def test_an_exception_is_that_of_each_record_of_its_batch(stage: Any) -> None:
    """Those who go on lose this batch alone, and each record of it is told and counted."""
    made = stage(plain(odd))
    records = [("k", value, 0) for value in (1, 2, 3, 4, 13, None, 7)]
    assert [e.value for e in made.feed(*records)] == [2, 4, 6, None, 14]
    assert [(c.offset, r.value, str(e)) for c, r, e in made.failures] == [
        (3, 4, "thirteen"),
        (4, 13, "thirteen"),
    ]
    assert made.failures[0][2].__notes__ == [
        "The function of map_batches failed on a batch of 2 records."
    ]
    assert made.drops.total == 2


def test_a_wrong_count_fails_the_batch(stage: Any) -> None:
    """The error has both numbers, and the place of the first record."""
    with pytest.raises(ProcessingError, match="got 3 rows and gave 2") as caught:
        stage(plain(one_less), fails=True).feed(("a", 1, 0), ("b", 2, 0), ("c", 3, 0))
    assert (caught.value.node, caught.value.topic, caught.value.offset) == ("node", "in", 0)
    made = stage(plain(one_less))
    assert made.feed(("a", 1, 0), ("b", 2, 0)) == []
    assert made.drops.total == 2


def test_a_null_fails_its_record_alone(stage: Any) -> None:
    """The rows beside it have their values."""
    made = stage(plain(lambda batch: [7, None, 9]))
    assert [e[:2] for e in made.feed(("a", 1, 0), ("b", 2, 0), ("c", 3, 0))] == [
        ("a", 7),
        ("c", 9),
    ]
    ((context, record, error),) = made.failures
    assert (context.offset, record.key, record.value) == (1, "b", 2)
    assert "no value (null) for this record" in str(error)


def test_what_cannot_be_columns_fails_like_the_function(stage: Any) -> None:
    """A value that the schema has no place for is its batch's error."""
    made = stage(plain(doubled))
    assert made.feed(("a", 1, 0), ("b", "x", 0)) == []
    assert [record.value for _, record, _ in made.failures] == [1, "x"]


def test_a_coroutine_in_place_of_a_result_is_told(stage: Any) -> None:
    """A lambda around an `async def` is no `async def` function."""

    async def waits(batch: Any) -> Any:
        return batch

    with pytest.raises(ProcessingError, match="coroutine in place of a result"):
        stage(plain(lambda batch: waits(batch)), fails=True).feed(("a", 1, 0))


def test_a_way_around_a_function_that_waits_is_told_to_leave_it_out(stage: Any) -> None:
    """Not to run it with `asyncio.run`: this operation awaits."""

    async def waits(batch: Any) -> Any:
        return batch

    with pytest.raises(ProcessingError, match="Give it itself, in place of a function that only"):
        stage(plain(lambda batch: waits(batch)), fails=True).feed(("a", 1, 0))


@pytest.mark.parametrize("is_async", [False, True])
def test_values_without_fields_fail_like_the_function(stage: Any, is_async: bool) -> None:
    """There is no column that could say how many there are."""

    async def waits(batch: Any) -> Any:
        return batch

    arrow = ArrowFormat(None, with_key=False, with_timestamp=False)
    if is_async:
        operator = MapBatchesAsyncOperator(waits, arrow, 3, concurrency=1, timeout_ms=None)
        operator.equip(Equipment(RealApart()))
        made = stage(operator)
        made.feed(("a", {}, 0), ("b", {}, 0))
        assert released(made) == []
        operator.close()
    else:
        made = stage(MapBatchesOperator(lambda batch: batch, arrow, 3))
        assert made.feed(("a", {}, 0), ("b", {}, 0)) == []
    assert [context.offset for context, _, _ in made.failures] == [0, 1]
    assert "there are no columns" in str(made.failures[0][2])


class Gate:
    """A function that is awaited until the test lets it go on, call by call."""

    def __init__(self) -> None:
        self.begun: list[list[int]] = []
        self._open: dict[int, threading.Event] = {}

    def let(self, first: int) -> None:
        """Let the call go on whose batch begins with this value."""
        self._open.setdefault(first, threading.Event()).set()

    async def __call__(self, batch: Any) -> Any:
        values = batch["value"].to_pylist()
        event = self._open.setdefault(values[0], threading.Event())
        self.begun.append(values)
        await asyncio.to_thread(event.wait, 20)
        if 13 in values:
            raise RuntimeError("thirteen")
        return doubled(batch)


def apart(
    function: Callable[[Any], Any],
    *,
    most: int = 3,
    concurrency: int = 1,
    timeout_ms: int | None = None,
    time: ReleasedTime | None = None,
) -> MapBatchesAsyncOperator:
    operator = MapBatchesAsyncOperator(
        function, PLAIN, most, concurrency=concurrency, timeout_ms=timeout_ms
    )
    operator.equip(Equipment(RealApart(), time=time or ReleasedTime()))
    return operator


def released(made: Any) -> list[Any]:
    """What goes on once something has ended; each of it is let go of by its offset."""
    operator = made.operator
    wait_for(lambda: operator.has_landed)
    done: list[Batch] = list(operator.release(made.edges))
    for batch in done:
        operator.equipment.flights.let_go(batch)
    return [emitted.value for _, emitted in made.edges.take()]


def numbers(*values: Any) -> list[tuple[str, Any, int]]:
    return [("k", value, value or 0) for value in values]


def test_records_gather_while_a_call_is_made(stage: Any) -> None:
    """The next batch has all that came meanwhile, cut at its bound; the room says what fits."""
    gate = Gate()
    operator = apart(gate)
    made = stage(operator)
    assert made.feed(*numbers(1)) == []
    wait_for(lambda: gate.begun)
    for batch in ([2], [3, 4], [5]):
        made.feed(*numbers(*batch))
    assert gate.begun == [[1]]
    assert (operator.in_flight, operator.room) == (5, 1)
    gate.let(1)
    assert released(made) == [2]
    wait_for(lambda: len(gate.begun) == 2)
    assert gate.begun[1] == [2, 3, 4]
    gate.let(2)
    gate.let(5)
    assert released(made) == [4, 6, 8]
    assert released(made) == [10]
    assert operator.in_flight == 0
    assert not operator.equipment.flights
    operator.close()


def test_results_go_on_in_the_order_of_the_records(stage: Any) -> None:
    """The second call ends first and waits for the first one; records without a value wait too."""
    gate = Gate()
    operator = apart(gate, most=2, concurrency=3)
    made = stage(operator)
    made.feed(*numbers(1, 2, 3, 4))
    made.feed(*numbers(None))
    wait_for(lambda: len(gate.begun) == 2)
    gate.let(3)
    wait_for(lambda: operator.has_landed)
    assert operator.release(made.edges) == []
    gate.let(1)
    assert released(made) == [2, 4, 6, 8, None]
    assert not operator.equipment.flights
    operator.close()


def test_a_failure_beside_the_loop_lets_its_offsets_go(stage: Any) -> None:
    """Left out, counted, and nothing is held back for it."""
    gate = Gate()
    operator = apart(gate, concurrency=2)
    made = stage(operator)
    made.feed(*numbers(1, 13, 3, 4))
    gate.let(1)
    assert released(made) == []
    assert operator.in_flight == 1
    gate.let(4)
    assert released(made) == [8]
    assert [record.value for _, record, _ in made.failures] == [1, 13, 3]
    assert operator.in_flight == 0
    assert not operator.equipment.flights
    operator.close()


def test_a_call_that_takes_too_long_is_told_with_its_time(stage: Any) -> None:
    """It is cancelled, and the error has words."""

    async def endless(batch: Any) -> Any:
        await asyncio.Event().wait()

    operator = apart(endless, timeout_ms=20)
    made = stage(operator)
    made.feed(*numbers(1))
    assert released(made) == []
    assert [str(error) for _, _, error in made.failures] == ["no result within 20 ms"]
    operator.close()


def test_nothing_more_is_begun_after_a_halt(stage: Any) -> None:
    """What runs may land and goes on; what waits stays in flight, for its next owner."""
    gate = Gate()
    operator = apart(gate)
    made = stage(operator)
    made.feed(*numbers(1))
    wait_for(lambda: gate.begun)
    made.feed(*numbers(2))
    operator.halt()
    assert operator.may_land
    gate.let(1)
    assert released(made) == [2]
    wait_for(lambda: not operator.may_land)
    assert (gate.begun, operator.in_flight) == ([[1]], 1)
    operator.close()


def test_somebody_behind_is_called_by_time_within_a_batch(stage: Any) -> None:
    """Results end with the one that is due; the others go on next, and nothing is done twice."""
    next_ms: list[int | None] = [2]

    async def now(batch: Any) -> Any:
        return np.asarray(doubled(batch))

    operator = apart(now, time=ReleasedTime(lambda: next_ms[0]))
    made = stage(operator)
    made.feed(*numbers(1, 2, 3))
    assert released(made) == [2, 4]
    assert operator.in_flight == 1
    next_ms[0] = None
    assert released(made) == [6]
    assert not operator.equipment.flights
    operator.close()


def test_several_batches_keep_their_places(stage: Any) -> None:
    """A call of records of two steps gives each its own offset and headers back, and, where paths
    meet, one order over all."""
    gate = Gate()
    operator = apart(gate, most=9)
    made = stage(operator)
    for batch in (
        made.batch(("a", 1, 1, (("h", b"1"),)), ordered=True),
        made.batch(("b", 2, 2), ordered=True),
        made.batch(("c", 3, 3, (("h", b"3"),)), ordered=True),
    ):
        operator.process(batch, made.edges)
    gate.let(1)
    gate.let(2)
    assert released(made) == [2]
    wait_for(lambda: operator.has_landed)
    (done,) = operator.release(made.edges)
    places, offsets = done.read_at()
    assert list(zip(places, offsets, strict=False)) == [
        (TopicPartition("in", 0), 1),
        (TopicPartition("in", 0), 2),
    ]
    assert [list(done.headers_of(index)) for index in range(2)] == [[], [("h", b"3")]]
    assert done.order == [(0,), (1,)]
    operator.close()
