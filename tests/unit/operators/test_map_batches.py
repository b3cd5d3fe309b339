"""The operators of `map_batches`: results, their order, and errors."""

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
from millstream.operators.arrow import ArrowFormat, MapBatchesOperator
from millstream.operators.concurrent.map_batches_async import MapBatchesAsyncOperator
from millstream.operators.concurrent.runner_context import (
    DefaultCallRunners,
    DownstreamTime,
    RunnerContext,
)
from millstream.operators.record_batch import Batch
from millstream.record import TopicPartition

PLAIN = ArrowFormat(pa.int64(), with_key=False, with_timestamp=False)


def make_operator(function: Callable[[Any], Any], limit: int = 3) -> MapBatchesOperator:
    return MapBatchesOperator(function, PLAIN, limit)


def double(batch: Any) -> Any:
    return batch["value"].to_numpy() * 2


def test_everything_but_the_value_is_kept(make_bench: Any) -> None:
    """Key, timestamp and headers of each record, in order, across batches."""
    calls: list[int] = []

    def count_rows(batch: Any) -> Any:
        calls.append(batch.num_rows)
        return double(batch)

    headers = (("h", b"1"),)
    emitted = make_bench(make_operator(count_rows)).feed(
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


def test_record_without_a_value_is_forwarded_unchanged(make_bench: Any) -> None:
    """It keeps its position, and the function is not called for such records alone."""
    calls: list[int] = []

    def count_rows(batch: Any) -> Any:
        calls.append(batch.num_rows)
        return double(batch)

    bench = make_bench(make_operator(count_rows))
    assert [e[:2] for e in bench.feed(("a", 1, 0), ("b", None, 0), ("c", 3, 0))] == [
        ("a", 2),
        ("b", None),
        ("c", 6),
    ]
    assert [e[:2] for e in bench.feed(("d", None, 0))] == [("d", None)]
    assert calls == [2]


def fail_on_13(batch: Any) -> Any:
    if 13 in batch["value"].to_pylist():
        raise RuntimeError("thirteen")
    return double(batch)


def one_less(batch: Any) -> Any:
    return double(batch)[:-1]


def test_exception_counts_for_each_record_of_its_batch(make_bench: Any) -> None:
    """CONTINUE only drops this batch, and each of its records is reported and counted."""
    bench = make_bench(make_operator(fail_on_13))
    records = [("k", value, 0) for value in (1, 2, 3, 4, 13, None, 7)]
    assert [e.value for e in bench.feed(*records)] == [2, 4, 6, None, 14]
    assert [(c.offset, r.value, str(e)) for c, r, e in bench.failures] == [
        (3, 4, "thirteen"),
        (4, 13, "thirteen"),
    ]
    assert bench.failures[0][2].__notes__ == [
        "The function of map_batches failed on a batch of 2 records."
    ]
    assert bench.drops.total == 2


def test_wrong_number_of_results_fails_the_batch(make_bench: Any) -> None:
    """The error contains both numbers, and the origin of the first record."""
    with pytest.raises(ProcessingError, match="got 3 rows and returned 2") as caught:
        make_bench(make_operator(one_less), fails=True).feed(("a", 1, 0), ("b", 2, 0), ("c", 3, 0))
    assert (caught.value.node, caught.value.topic, caught.value.offset) == ("node", "in", 0)
    bench = make_bench(make_operator(one_less))
    assert bench.feed(("a", 1, 0), ("b", 2, 0)) == []
    assert bench.drops.total == 2


def test_null_result_only_fails_its_record(make_bench: Any) -> None:
    """The other rows have their values."""
    bench = make_bench(make_operator(lambda batch: [7, None, 9]))
    assert [e[:2] for e in bench.feed(("a", 1, 0), ("b", 2, 0), ("c", 3, 0))] == [
        ("a", 7),
        ("c", 9),
    ]
    ((context, record, error),) = bench.failures
    assert (context.offset, record.key, record.value) == (1, "b", 2)
    assert "returned null for this record" in str(error)


def test_values_that_are_not_columns_fail_like_the_function(make_bench: Any) -> None:
    """A value that does not match the schema is an error of its batch."""
    bench = make_bench(make_operator(double))
    assert bench.feed(("a", 1, 0), ("b", "x", 0)) == []
    assert [record.value for _, record, _ in bench.failures] == [1, "x"]


def test_coroutine_instead_of_a_result_is_an_error(make_bench: Any) -> None:
    """A lambda around an `async def` function is not one itself."""

    async def waits(batch: Any) -> Any:
        return batch

    with pytest.raises(ProcessingError, match="coroutine instead of a result"):
        make_bench(make_operator(lambda batch: waits(batch)), fails=True).feed(("a", 1, 0))


def test_wrapped_async_function_is_rejected_with_advice(make_bench: Any) -> None:
    """The advice is not `asyncio.run`: this operator awaits coroutines."""

    async def waits(batch: Any) -> Any:
        return batch

    with pytest.raises(
        ProcessingError, match="Pass the async function itself instead of a function that only"
    ):
        make_bench(make_operator(lambda batch: waits(batch)), fails=True).feed(("a", 1, 0))


@pytest.mark.parametrize("is_async", [False, True])
def test_values_without_fields_fail_like_the_function(make_bench: Any, is_async: bool) -> None:
    """There is no column that defines the number of values."""

    async def waits(batch: Any) -> Any:
        return batch

    arrow = ArrowFormat(None, with_key=False, with_timestamp=False)
    if is_async:
        operator = MapBatchesAsyncOperator(waits, arrow, 3, concurrency=1, timeout_ms=None)
        operator.set_runner_context(RunnerContext(DefaultCallRunners()))
        bench = make_bench(operator)
        bench.feed(("a", {}, 0), ("b", {}, 0))
        assert release_completed(bench) == []
        operator.close()
    else:
        bench = make_bench(MapBatchesOperator(lambda batch: batch, arrow, 3))
        assert bench.feed(("a", {}, 0), ("b", {}, 0)) == []
    assert [context.offset for context, _, _ in bench.failures] == [0, 1]
    assert "there are no columns" in str(bench.failures[0][2])


class Gate:
    """An async function with calls that wait until the test releases them."""

    def __init__(self) -> None:
        self.started: list[list[int]] = []
        self._open: dict[int, threading.Event] = {}

    def release(self, first: int) -> None:
        """Release the call for the batch that starts with this value."""
        self._open.setdefault(first, threading.Event()).set()

    async def __call__(self, batch: Any) -> Any:
        values = batch["value"].to_pylist()
        event = self._open.setdefault(values[0], threading.Event())
        self.started.append(values)
        await asyncio.to_thread(event.wait, 20)
        if 13 in values:
            raise RuntimeError("thirteen")
        return double(batch)


def make_async_operator(
    function: Callable[[Any], Any],
    *,
    limit: int = 3,
    concurrency: int = 1,
    timeout_ms: int | None = None,
    time: DownstreamTime | None = None,
) -> MapBatchesAsyncOperator:
    operator = MapBatchesAsyncOperator(
        function, PLAIN, limit, concurrency=concurrency, timeout_ms=timeout_ms
    )
    operator.set_runner_context(
        RunnerContext(DefaultCallRunners(), downstream_time=time or DownstreamTime())
    )
    return operator


def release_completed(bench: Any) -> list[Any]:
    """Wait for a completion, and return the released values; their offsets are no longer in
    flight."""
    operator = bench.operator
    wait_for(lambda: operator.has_completions)
    done: list[Batch] = list(operator.release(bench.edges))
    for batch in done:
        operator.runner_context.in_flight_records.remove(batch)
    return [emitted.value for _, emitted in bench.edges.take()]


def records_of(*values: Any) -> list[tuple[str, Any, int]]:
    return [("k", value, value or 0) for value in values]


def test_records_are_collected_during_a_call(make_bench: Any) -> None:
    """The next batch has all records that arrived meanwhile, up to its maximum."""
    gate = Gate()
    operator = make_async_operator(gate)
    bench = make_bench(operator)
    assert bench.feed(*records_of(1)) == []
    wait_for(lambda: gate.started)
    for batch in ([2], [3, 4], [5]):
        bench.feed(*records_of(*batch))
    assert gate.started == [[1]]
    assert (operator.in_flight, operator.remaining_capacity) == (5, 1)
    gate.release(1)
    assert release_completed(bench) == [2]
    wait_for(lambda: len(gate.started) == 2)
    assert gate.started[1] == [2, 3, 4]
    gate.release(2)
    gate.release(5)
    assert release_completed(bench) == [4, 6, 8]
    assert release_completed(bench) == [10]
    assert operator.in_flight == 0
    assert not operator.runner_context.in_flight_records
    operator.close()


def test_results_are_released_in_the_order_of_records(make_bench: Any) -> None:
    """The second call ends first and waits for the first. Records without a value wait as well."""
    gate = Gate()
    operator = make_async_operator(gate, limit=2, concurrency=3)
    bench = make_bench(operator)
    bench.feed(*records_of(1, 2, 3, 4))
    bench.feed(*records_of(None))
    wait_for(lambda: len(gate.started) == 2)
    gate.release(3)
    wait_for(lambda: operator.has_completions)
    assert operator.release(bench.edges) == []
    gate.release(1)
    assert release_completed(bench) == [2, 4, 6, 8, None]
    assert not operator.runner_context.in_flight_records
    operator.close()


def test_failed_call_releases_its_offsets(make_bench: Any) -> None:
    """Its records are dropped and counted, and nothing is held back for them."""
    gate = Gate()
    operator = make_async_operator(gate, concurrency=2)
    bench = make_bench(operator)
    bench.feed(*records_of(1, 13, 3, 4))
    gate.release(1)
    assert release_completed(bench) == []
    assert operator.in_flight == 1
    gate.release(4)
    assert release_completed(bench) == [8]
    assert [record.value for _, record, _ in bench.failures] == [1, 13, 3]
    assert operator.in_flight == 0
    assert not operator.runner_context.in_flight_records
    operator.close()


def test_error_about_a_timeout_contains_its_duration(make_bench: Any) -> None:
    """The call is cancelled."""

    async def endless(batch: Any) -> Any:
        await asyncio.Event().wait()

    operator = make_async_operator(endless, timeout_ms=20)
    bench = make_bench(operator)
    bench.feed(*records_of(1))
    assert release_completed(bench) == []
    assert [str(error) for _, _, error in bench.failures] == ["no result within 20 ms"]
    operator.close()


def test_no_call_starts_after_a_halt(make_bench: Any) -> None:
    """Running calls can finish; waiting records stay in flight for the next owner."""
    gate = Gate()
    operator = make_async_operator(gate)
    bench = make_bench(operator)
    bench.feed(*records_of(1))
    wait_for(lambda: gate.started)
    bench.feed(*records_of(2))
    operator.halt()
    assert operator.can_finish
    gate.release(1)
    assert release_completed(bench) == [2]
    wait_for(lambda: not operator.can_finish)
    assert (gate.started, operator.in_flight) == ([[1]], 1)
    operator.close()


def test_results_are_divided_at_punctuations(make_bench: Any) -> None:
    """The results end with the record that makes a punctuation due; the others follow."""
    next_ms: list[int | None] = [2]

    async def double_async(batch: Any) -> Any:
        return np.asarray(double(batch))

    operator = make_async_operator(double_async, time=DownstreamTime(lambda: next_ms[0]))
    bench = make_bench(operator)
    bench.feed(*records_of(1, 2, 3))
    assert release_completed(bench) == [2, 4]
    assert operator.in_flight == 1
    next_ms[0] = None
    assert release_completed(bench) == [6]
    assert not operator.runner_context.in_flight_records
    operator.close()


def test_results_of_several_batches_keep_their_origins(make_bench: Any) -> None:
    """If a call has records of two batches, each result keeps the offset and headers of its record.
    Where paths meet, the results have one common order."""
    gate = Gate()
    operator = make_async_operator(gate, limit=9)
    bench = make_bench(operator)
    for batch in (
        bench.batch(("a", 1, 1, (("h", b"1"),)), ordered=True),
        bench.batch(("b", 2, 2), ordered=True),
        bench.batch(("c", 3, 3, (("h", b"3"),)), ordered=True),
    ):
        operator.process(batch, bench.edges)
    gate.release(1)
    gate.release(2)
    assert release_completed(bench) == [2]
    wait_for(lambda: operator.has_completions)
    (done,) = operator.release(bench.edges)
    places, offsets = done.input_positions()
    assert list(zip(places, offsets, strict=False)) == [
        (TopicPartition("in", 0), 1),
        (TopicPartition("in", 0), 2),
    ]
    assert [list(done.headers_of(index)) for index in range(2)] == [[], [("h", b"3")]]
    assert done.order == [(0,), (1,)]
    operator.close()
