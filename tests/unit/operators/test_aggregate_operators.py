"""Count, reduce and aggregate, with and without a record cache."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import ProcessingError, SerializationError
from millstream.operators import (
    StreamAggregateOperator,
    StreamCountOperator,
    StreamReduceOperator,
    TableToStreamOperator,
)
from millstream.operators.batch import Batch, Origin, merge_batches
from millstream.serdes import JSON, LONG, STRING

H1, H2 = (("h", b"1"),), (("h", b"2"),)
CACHE = 1 << 20


def collect(key: Any, value: Any, items: list[Any]) -> list[Any]:
    """An aggregator that changes its aggregate in place, and may fail after having done so."""
    items.append(value)
    if value == "bad":
        raise ValueError(value)
    return items


def collecting(**options: Any) -> StreamAggregateOperator:
    return StreamAggregateOperator("S", list, collect, **options)


def test_every_update_is_stored_logged_and_forwarded(stage: Any) -> None:
    """Without a cache: the aggregate's time is the highest of its records, headers are kept."""
    run = stage(StreamCountOperator("S"), store=LONG)
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
def test_null_keys_and_values_are_dropped(stage: Any, records: Any, cache_bytes: int) -> None:
    run = stage(StreamCountOperator("S"), store=LONG, cache_bytes=cache_bytes)
    assert [*run.feed(*records, ("k", "x", 2), *records), *run.flush()] == [("k", 1, 2, ())]
    assert run.drops.total == 2
    assert run.feed(*records) == []
    assert run.drops.total == 3


def test_a_cache_forwards_the_last_update_of_each_key(stage: Any) -> None:
    """In the order in which keys changed last, with the headers of the record that did it."""
    run = stage(StreamReduceOperator("S", lambda a, v: a + v), store=STRING, cache_bytes=CACHE)
    assert run.feed(("a", "1", 5, H1), ("b", "2", 1), ("a", "3", 3, H2)) == []
    assert run.flush() == [("b", "2", 1, ()), ("a", "13", 5, H2)]
    assert run.changelog == [(b"b", b"2", 1), (b"a", b"13", 5)]
    assert run.flush() == []
    assert run.feed(("b", "4", 0)) == []
    assert run.flush() == [("b", "24", 1, ())]


def test_a_cached_count_keeps_the_headers_of_the_last_record(stage: Any) -> None:
    run = stage(StreamCountOperator("S"), store=LONG, cache_bytes=CACHE)
    run.feed(("a", "x", 1, H1), ("b", "x", 1, H1))
    run.feed(("a", "x", 2))
    assert run.flush() == [("b", 1, 1, H1), ("a", 2, 2, ())]


@pytest.mark.parametrize(
    ("cache_bytes", "forwarded_at"),
    [pytest.param(0, 10, id="uncached"), pytest.param(CACHE, 5, id="cached")],
)
def test_a_null_aggregate_deletes_and_the_next_one_starts_over(
    stage: Any, cache_bytes: int, forwarded_at: int
) -> None:
    """A deletion is logged with its record's time; uncached it goes on with the aggregate's."""

    def deleting(result: str, value: str) -> str | None:
        return None if value == "del" else result + value

    run = stage(StreamReduceOperator("S", deleting), store=STRING, cache_bytes=cache_bytes)
    emitted = []
    for record in [("k", "a", 10), ("k", "del", 5), ("k", "c", 3)]:
        emitted += [*run.feed(record), *run.flush()]
    assert emitted == [("k", "a", 10, ()), ("k", None, forwarded_at, ()), ("k", "c", 3, ())]
    assert run.changelog == [(b"k", b"a", 10), (b"k", None, 5), (b"k", b"c", 3)]


@pytest.mark.parametrize("cache_bytes", [0, CACHE])
def test_an_aggregate_changed_in_place_changes_nothing_handed_on(
    stage: Any, cache_bytes: int
) -> None:
    """As in Kafka Streams, the first aggregate replaces the initial one, but not with a cache."""
    run = stage(collecting(send_old_values=True), store=JSON, cache_bytes=cache_bytes)
    emitted: list[Any] = []
    old: list[Any] = []
    for value in "abc":
        run.operator.process(run.batch(("k", value, 1)), run.edges)
        run.operator.flush()
        old += [item for _, batch in run.edges.batches for item in batch.old_values or ()]
        emitted += run.edges.take()
    assert [each.value for _, each in emitted] == [["a"], ["a", "b"], ["a", "b", "c"]]
    assert old == [None if cache_bytes else [], ["a"], ["a", "b"]]


def test_updates_of_one_key_in_one_batch_do_not_share_an_aggregate(stage: Any) -> None:
    run = stage(collecting(), store=JSON)
    emitted = run.feed(("k", "a", 1), ("k", "b", 1), ("k", "c", 1))
    assert [each.value for each in emitted] == [["a"], ["a", "b"], ["a", "b", "c"]]


@pytest.mark.parametrize("cache_bytes", [0, CACHE])
def test_a_reduce_does_not_keep_the_record_s_own_value(stage: Any, cache_bytes: int) -> None:
    """A first value becomes the result: what changes the result must not change the record."""

    def extend(result: list[int], value: list[int]) -> list[int]:
        result += value
        return result

    run = stage(StreamReduceOperator("S", extend), store=JSON, cache_bytes=cache_bytes)
    first = [1]
    run.feed(("k", first, 1), ("k", [2], 2))
    run.flush()
    assert first == [1]
    assert run.changelog[-1][1] == b"[1,2]"


@pytest.mark.parametrize("cache_bytes", [0, CACHE])
def test_a_failed_update_leaves_no_traces(stage: Any, cache_bytes: int) -> None:
    """CONTINUE: not even what the aggregator had changed in place before it failed."""
    run = stage(collecting(), store=JSON, cache_bytes=cache_bytes)
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
def test_a_failing_aggregator_says_where(stage: Any, cache_bytes: int) -> None:
    """FAIL: the record's place is told, nothing of the batch is stored, logged or forwarded."""
    run = stage(collecting(), store=JSON, cache_bytes=cache_bytes, fails=True)
    with pytest.raises(ProcessingError) as raised:
        run.feed(("k", "a", 1), ("k", "bad", 2), ("k", "b", 3))
    assert (raised.value.offset, raised.value.node) == (1, "node")
    assert run.edges.batches == []
    assert run.changelog == []


@pytest.mark.parametrize("cache_bytes", [0, CACHE])
def test_a_value_that_does_not_fit_the_store_fails_its_record(stage: Any, cache_bytes: int) -> None:
    """CONTINUE: noticed at the record even with a cache, which serializes later."""
    run = stage(
        StreamAggregateOperator("S", str, lambda k, v, a: 7 if v == "bad" else a + v),
        store=STRING,
        cache_bytes=cache_bytes,
    )
    emitted = [*run.feed(("k", "a", 1), ("k", "bad", 2), ("k", "b", 3)), *run.flush()]
    assert emitted[-1] == ("k", "ab", 3, ())
    assert [record.value for _, record, _ in run.failures] == ["bad"]
    assert isinstance(run.failures[0][2], SerializationError)


@pytest.mark.parametrize("cache_bytes", [0, CACHE])
def test_a_key_that_does_not_fit_the_store_fails_its_record(stage: Any, cache_bytes: int) -> None:
    run = stage(StreamCountOperator("S"), store=LONG, cache_bytes=cache_bytes)
    emitted = [*run.feed((1, "x", 1), ("k", "x", 2), (2, "x", 3)), *run.flush()]
    assert emitted == [("k", 1, 2, ())]
    assert [(c.offset, r.key) for c, r, _ in run.failures] == [(0, 1), (2, 2)]


def test_an_initializer_that_fails_is_user_code_too(stage: Any) -> None:
    calls: list[int] = []

    def initial() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("not yet")
        return ""

    run = stage(StreamAggregateOperator("S", initial, lambda k, v, a: a + v), store=STRING)
    assert run.feed(("a", "x", 1), ("b", "y", 2)) == [("b", "y", 2, ())]
    assert [record.key for _, record, _ in run.failures] == ["a"]


def test_what_a_full_cache_gives_up_comes_after_the_batch(stage: Any) -> None:
    """Eviction flushes the evicted key first, then all others, behind the last record."""
    run = stage(StreamCountOperator("S"), store=LONG, cache_bytes=300)
    batch = run.batch(*((f"k{i}", "x", i) for i in range(10)), ordered=True)
    run.operator.process(batch, run.edges)
    (_, evicted), *others = run.edges.batches
    assert others == []
    assert list(evicted.keys) == [f"k{i}" for i in range(10)]
    assert [place[:-1] for place in evicted.order or ()] == [(9,)] * 10
    assert evicted.order == sorted(evicted.order or ())


def test_evicted_changes_keep_their_place_when_merged_with_the_input(stage: Any) -> None:
    """Both come from different input records: each must still know its own."""
    run = stage(StreamCountOperator("S"), store=LONG, cache_bytes=300)
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


def test_a_table_s_changes_become_records() -> None:
    """The old values are left behind."""
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
