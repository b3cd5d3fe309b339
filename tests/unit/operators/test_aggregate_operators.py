"""Count, reduce and aggregate, with and without a record cache."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import ProcessingError, SerializationError
from millstream.operators.aggregates.aggregate import (
    StreamAggregateOperator,
    StreamCountOperator,
    StreamReduceOperator,
    TableToStreamOperator,
)
from millstream.operators.record_batch import Batch, Origin, merge_batches
from millstream.serdes import JSON, LONG, STRING

H1, H2 = (("h", b"1"),), (("h", b"2"),)
CACHE = 1 << 20


def collect(key: Any, value: Any, items: list[Any]) -> list[Any]:
    """An aggregator that changes its aggregate in place, and can fail afterwards."""
    items.append(value)
    if value == "bad":
        raise ValueError(value)
    return items


def collecting(**options: Any) -> StreamAggregateOperator:
    return StreamAggregateOperator("S", list, collect, **options)


def test_every_update_is_stored_logged_and_forwarded(make_bench: Any) -> None:
    """Without a cache. The time of an aggregate is the highest of its records; headers are kept."""
    run = make_bench(StreamCountOperator("S"), store=LONG)
    assert run.feed(("a", "x", 5, H1), ("b", "x", 1), ("a", "x", 3)) == [
        ("a", 1, 5, H1),
        ("b", 1, 1, ()),
        ("a", 2, 5, ()),
    ]
    assert run.feed(("a", "x", 9)) == [("a", 3, 9, ())]
    assert [(key, value[-1], time) for key, value, time in run.changelog] == [
        (b"a", 1, 5),
        (b"b", 1, 1),
        (b"a", 2, 5),
        (b"a", 3, 9),
    ]
    assert run.flush() == []


@pytest.mark.parametrize("cache_bytes", [0, CACHE])
@pytest.mark.parametrize("records", [[(None, "x", 1)], [("k", None, 1)], [(None, None, 1)]])
def test_null_keys_and_values_are_dropped(make_bench: Any, records: Any, cache_bytes: int) -> None:
    run = make_bench(StreamCountOperator("S"), store=LONG, cache_bytes=cache_bytes)
    assert [*run.feed(*records, ("k", "x", 2), *records), *run.flush()] == [("k", 1, 2, ())]
    assert run.drops.total == 2
    assert run.feed(*records) == []
    assert run.drops.total == 3


def test_cache_forwards_the_last_update_of_each_key(make_bench: Any) -> None:
    """In the order of the last changes of the keys, with the headers of their records."""
    run = make_bench(StreamReduceOperator("S", lambda a, v: a + v), store=STRING, cache_bytes=CACHE)
    assert run.feed(("a", "1", 5, H1), ("b", "2", 1), ("a", "3", 3, H2)) == []
    assert run.flush() == [("b", "2", 1, ()), ("a", "13", 5, H2)]
    assert run.changelog == [(b"b", b"2", 1), (b"a", b"13", 5)]
    assert run.flush() == []
    assert run.feed(("b", "4", 0)) == []
    assert run.flush() == [("b", "24", 1, ())]


def test_a_cached_count_keeps_the_headers_of_the_last_record(make_bench: Any) -> None:
    run = make_bench(StreamCountOperator("S"), store=LONG, cache_bytes=CACHE)
    run.feed(("a", "x", 1, H1), ("b", "x", 1, H1))
    run.feed(("a", "x", 2))
    assert run.flush() == [("b", 1, 1, H1), ("a", 2, 2, ())]


@pytest.mark.parametrize(
    ("cache_bytes", "forwarded_at"),
    [pytest.param(0, 10, id="uncached"), pytest.param(CACHE, 5, id="cached")],
)
def test_null_aggregate_deletes_and_the_next_one_starts_over(
    make_bench: Any, cache_bytes: int, forwarded_at: int
) -> None:
    """A deletion is logged with the time of its record; without a cache, it is forwarded with that
    of the aggregate."""

    def deleting(result: str, value: str) -> str | None:
        return None if value == "del" else result + value

    run = make_bench(StreamReduceOperator("S", deleting), store=STRING, cache_bytes=cache_bytes)
    emitted = []
    for record in [("k", "a", 10), ("k", "del", 5), ("k", "c", 3)]:
        emitted += [*run.feed(record), *run.flush()]
    assert emitted == [("k", "a", 10, ()), ("k", None, forwarded_at, ()), ("k", "c", 3, ())]
    assert run.changelog == [(b"k", b"a", 10), (b"k", None, 5), (b"k", b"c", 3)]


@pytest.mark.parametrize("cache_bytes", [0, CACHE])
def test_changing_an_aggregate_in_place_does_not_change_forwarded_values(
    make_bench: Any, cache_bytes: int
) -> None:
    """As in Kafka Streams, the first aggregate replaces the initial one, except with a cache."""
    run = make_bench(collecting(send_old_values=True), store=JSON, cache_bytes=cache_bytes)
    emitted: list[Any] = []
    old: list[Any] = []
    for value in "abc":
        run.operator.process(run.batch(("k", value, 1)), run.edges)
        run.operator.flush()
        old += [item for _, batch in run.edges.batches for item in batch.old_values or ()]
        emitted += run.edges.take()
    assert [each.value for _, each in emitted] == [["a"], ["a", "b"], ["a", "b", "c"]]
    assert old == [None if cache_bytes else [], ["a"], ["a", "b"]]


def test_updates_of_one_key_in_one_batch_do_not_share_an_aggregate(make_bench: Any) -> None:
    run = make_bench(collecting(), store=JSON)
    emitted = run.feed(("k", "a", 1), ("k", "b", 1), ("k", "c", 1))
    assert [each.value for each in emitted] == [["a"], ["a", "b"], ["a", "b", "c"]]


@pytest.mark.parametrize("cache_bytes", [0, CACHE])
def test_reduce_does_not_keep_the_value_of_the_record(make_bench: Any, cache_bytes: int) -> None:
    """The first value becomes the result: changes of the result must not change the record."""

    def extend(result: list[int], value: list[int]) -> list[int]:
        result += value
        return result

    run = make_bench(StreamReduceOperator("S", extend), store=JSON, cache_bytes=cache_bytes)
    first = [1]
    run.feed(("k", first, 1), ("k", [2], 2))
    run.flush()
    assert first == [1]
    assert run.changelog[-1][1] == b"[1,2]"


@pytest.mark.parametrize("cache_bytes", [0, CACHE])
def test_failed_update_leaves_no_traces(make_bench: Any, cache_bytes: int) -> None:
    """CONTINUE: not even changes in place before the failure."""
    run = make_bench(collecting(), store=JSON, cache_bytes=cache_bytes)
    emitted = run.feed(("k", "a", 1), ("k", "bad", 7), ("k", "b", 2), ("n", "bad", 3))
    emitted += run.flush()
    assert emitted[-1] == ("k", ["a", "b"], 2, ())
    assert {each.key for each in emitted} == {"k"}
    assert [(c.offset, r.key, r.value) for c, r, _ in run.failures] == [
        (1, "k", "bad"),
        (3, "n", "bad"),
    ]
    assert run.changelog[-1] == (b"k", b'["a","b"]', 2)
    assert run.drops.total == 2


@pytest.mark.parametrize("cache_bytes", [0, CACHE])
def test_error_of_an_aggregator_contains_the_origin(make_bench: Any, cache_bytes: int) -> None:
    """FAIL: nothing of the batch is stored, logged or forwarded."""
    run = make_bench(collecting(), store=JSON, cache_bytes=cache_bytes, fails=True)
    with pytest.raises(ProcessingError) as raised:
        run.feed(("k", "a", 1), ("k", "bad", 2), ("k", "b", 3))
    assert (raised.value.offset, raised.value.node) == (1, "node")
    assert run.edges.batches == []
    assert run.changelog == []


@pytest.mark.parametrize("cache_bytes", [0, CACHE])
def test_value_that_the_store_cannot_serialize_fails_its_record(
    make_bench: Any, cache_bytes: int
) -> None:
    """CONTINUE: detected at the record even with a cache, which serializes later."""
    run = make_bench(
        StreamAggregateOperator("S", str, lambda k, v, a: 7 if v == "bad" else a + v),
        store=STRING,
        cache_bytes=cache_bytes,
    )
    emitted = [*run.feed(("k", "a", 1), ("k", "bad", 2), ("k", "b", 3)), *run.flush()]
    assert emitted[-1] == ("k", "ab", 3, ())
    assert [record.value for _, record, _ in run.failures] == ["bad"]
    assert isinstance(run.failures[0][2], SerializationError)


@pytest.mark.parametrize("cache_bytes", [0, CACHE])
def test_key_that_the_store_cannot_serialize_fails_its_record(
    make_bench: Any, cache_bytes: int
) -> None:
    run = make_bench(StreamCountOperator("S"), store=LONG, cache_bytes=cache_bytes)
    emitted = [*run.feed((1, "x", 1), ("k", "x", 2), (2, "x", 3)), *run.flush()]
    assert emitted == [("k", 1, 2, ())]
    assert [(c.offset, r.key) for c, r, _ in run.failures] == [(0, 1), (2, 2)]


def test_failure_of_an_initializer_is_one_of_user_code(make_bench: Any) -> None:
    calls: list[int] = []

    def initial() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("not yet")
        return ""

    run = make_bench(StreamAggregateOperator("S", initial, lambda k, v, a: a + v), store=STRING)
    assert run.feed(("a", "x", 1), ("b", "y", 2)) == [("b", "y", 2, ())]
    assert [record.key for _, record, _ in run.failures] == ["a"]


def test_evicted_changes_come_after_the_batch(make_bench: Any) -> None:
    """An eviction flushes the evicted key first, then all others, behind the last record."""
    run = make_bench(StreamCountOperator("S"), store=LONG, cache_bytes=300)
    batch = run.batch(*((f"k{i}", "x", i) for i in range(10)), ordered=True)
    run.operator.process(batch, run.edges)
    (_, evicted), *others = run.edges.batches
    assert others == []
    assert list(evicted.keys) == [f"k{i}" for i in range(10)]
    assert [place[:-1] for place in evicted.order or ()] == [(9,)] * 10
    assert evicted.order == sorted(evicted.order or ())


def test_evicted_changes_keep_their_origin_when_merged_with_the_input(make_bench: Any) -> None:
    """They come from different input records, and each must keep its own."""
    run = make_bench(StreamCountOperator("S"), store=LONG, cache_bytes=300)
    run.operator.process(run.batch(("old", "x", 1, H1), ordered=True), run.edges)
    batch = run.batch(*((f"k{i}", "x", i) for i in range(10)), ordered=True)
    run.operator.process(batch, run.edges)
    (_, evicted), *_ = run.edges.batches
    merged = merge_batches([evicted, batch])
    place = merged.keys.index("old")
    assert merged.metadata_of(place).offset == 0
    assert merged.headers_of(place) == H1
    offsets = {
        (key, value): merged.metadata_of(i).offset
        for i, (key, value) in enumerate(zip(merged.keys, merged.values, strict=True))
    }
    expected: dict[tuple[str, int | str], int] = {
        ("old", 1): 0,
        **{(f"k{i}", 1): i + 1 for i in range(10)},
        **{(f"k{i}", "x"): i + 1 for i in range(10)},
    }
    assert offsets == expected


def test_changes_of_a_table_become_records() -> None:
    """Without the old values."""
    taken: list[Batch] = []

    class Out:
        children = ()
        immediate = False
        ordered = False

        def emit(self, batch: Batch) -> None:
            taken.append(batch)

        def emit_to(self, child: str, batch: Batch) -> None:
            raise AssertionError(child)

    changes = Batch(["k"], [None], [1], [0], Origin(None, [0]), None, None, ["old"])
    TableToStreamOperator().process(changes, Out())
    assert (taken[0].keys, taken[0].values, taken[0].old_values) == (["k"], [None], None)
