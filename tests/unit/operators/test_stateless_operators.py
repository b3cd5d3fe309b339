"""Stateless operators: nulls, headers, timestamps, and user code that fails for a record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from millstream.errors import ProcessingError
from millstream.operators.operator import Operator
from millstream.operators.stateless import (
    BranchOperator,
    FilterOperator,
    FlatMapOperator,
    FlatMapValuesOperator,
    ForEachOperator,
    MapOperator,
    MapValuesOperator,
    NullKeyFilterOperator,
    PassThroughOperator,
    PeekOperator,
    PrintOperator,
    SelectKeyOperator,
)

H = (("h", b"1"), ("n", None))

#: Operators on (key, value), with their output for (None, None), ("k", "v") and ("k", None).
PLAIN: dict[str, tuple[Operator, list[list[tuple[Any, Any]]]]] = {
    "filter": (FilterOperator(lambda k, v: v is None), [[(None, None)], [], [("k", None)]]),
    "filter_not": (FilterOperator(lambda k, v: v is None, True), [[], [("k", "v")], []]),
    "map": (
        MapOperator(lambda k, v: (v, k)),
        [[(None, None)], [("v", "k")], [(None, "k")]],
    ),
    "map_values": (
        MapValuesOperator(lambda v: f"<{v}>"),
        [[(None, "<None>")], [("k", "<v>")], [("k", "<None>")]],
    ),
    "map_values to null": (
        MapValuesOperator(lambda v: None),
        [[(None, None)], [("k", None)], [("k", None)]],
    ),
    "map_values with key": (
        MapValuesOperator(lambda k, v: (k, v), True),
        [[(None, (None, None))], [("k", ("k", "v"))], [("k", ("k", None))]],
    ),
    "flat_map": (
        FlatMapOperator(lambda k, v: [] if k is None else [(v, k), (None, None)]),
        [[], [("v", "k"), (None, None)], [(None, "k"), (None, None)]],
    ),
    "flat_map_values": (
        FlatMapValuesOperator(lambda v: [v, 2]),
        [[(None, None), (None, 2)], [("k", "v"), ("k", 2)], [("k", None), ("k", 2)]],
    ),
    "flat_map_values with key": (
        FlatMapValuesOperator(lambda k, v: {k: v}.items(), True),
        [[(None, (None, None))], [("k", ("k", "v"))], [("k", ("k", None))]],
    ),
    "select_key": (
        SelectKeyOperator(lambda k, v: v),
        [[(None, None)], [("v", "v")], [(None, None)]],
    ),
    "peek": (PeekOperator(lambda k, v: "ignored"), [[(None, None)], [("k", "v")], [("k", None)]]),
    "for_each": (ForEachOperator(lambda k, v: None), [[], [], []]),
    "merge": (PassThroughOperator(), [[(None, None)], [("k", "v")], [("k", None)]]),
    "null keys": (NullKeyFilterOperator(), [[], [("k", "v")], [("k", None)]]),
}


@pytest.mark.parametrize("case", PLAIN)
@pytest.mark.parametrize("at_once", [True, False])
def test_nulls_times_and_headers(make_bench: Any, case: str, at_once: bool) -> None:
    """Keys and values can be null; emitted records have the timestamp and headers of their
    input."""
    operator, expected = PLAIN[case]
    run = make_bench(operator)
    records = [(None, None, 1), ("k", "v", 2, H), ("k", None, 3)]
    if at_once:
        emitted = run.feed(*records)
    else:
        emitted = [each for record in records for each in run.feed(record)]
    assert emitted == [
        (*pair, record[2], record[3] if len(record) > 3 else ())
        for record, pairs in zip(records, expected, strict=True)
        for pair in pairs
    ]
    assert run.failures == []


class FailingFunction:
    """User code that fails for the values "bad" and "worse", and keeps its arguments."""

    def __init__(self, function: Callable[..., Any], error: type[Exception]) -> None:
        self.calls: list[Any] = []
        self._function = function
        self._error = error

    def __call__(self, *arguments: Any) -> Any:
        self.calls.append(arguments[-1])
        if arguments[-1] in ("bad", "worse"):
            raise self._error(arguments[-1])
        return self._function(*arguments)


def generate(key: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    yield key, value


FAILING: dict[str, tuple[Callable[..., Any], Callable[[FailingFunction], Operator]]] = {
    "filter": (lambda k, v: True, FilterOperator),
    "map": (lambda k, v: (k, v), MapOperator),
    "map_values": (lambda v: v, MapValuesOperator),
    "map_values with key": (lambda k, v: v, lambda f: MapValuesOperator(f, True)),
    "flat_map": (lambda k, v: [(k, v)], FlatMapOperator),
    "flat_map by a generator": (generate, FlatMapOperator),
    "flat_map_values": (lambda v: (v,), FlatMapValuesOperator),
    "select_key": (lambda k, v: k, SelectKeyOperator),
    "peek": (lambda k, v: None, PeekOperator),
    "branch": (lambda k, v: True, lambda f: BranchOperator((f,), ("child",))),
}


@pytest.mark.parametrize("error", [ValueError, KeyError, StopIteration])
@pytest.mark.parametrize("case", FAILING)
def test_only_the_failing_record_is_skipped(
    make_bench: Any, case: str, error: type[Exception]
) -> None:
    """CONTINUE: the others are processed in order, no function is called twice, and the handler
    receives the failed record."""
    function, make = FAILING[case]
    user_code = FailingFunction(function, error)
    run = make_bench(make(user_code))
    values = ["bad", "a", "worse", "bad", "b", "bad"]
    emitted = run.feed(*(("k", value, time) for time, value in enumerate(values)))
    assert [(each.value, each.timestamp) for each in emitted] == [("a", 1), ("b", 4)]
    assert user_code.calls == values
    assert [(c.offset, c.topic, c.node, r.value, r.timestamp) for c, r, _ in run.failures] == [
        (offset, "in", "node", values[offset], offset) for offset in (0, 2, 3, 5)
    ]
    assert run.drops.total == 4


@pytest.mark.parametrize("error", [ValueError, StopIteration])
@pytest.mark.parametrize("case", FAILING)
def test_failure_contains_its_origin_and_stops_the_batch(
    make_bench: Any, case: str, error: type[Exception]
) -> None:
    """FAIL: the function is not called for further records, and nothing of the batch is
    forwarded."""
    function, make = FAILING[case]
    user_code = FailingFunction(function, error)
    run = make_bench(make(user_code), fails=True)
    with pytest.raises(ProcessingError) as raised:
        run.feed(("k", "a", 1), ("k", "bad", 2), ("k", "b", 3))
    assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("in", 0, 1)
    assert (raised.value.node, raised.value.task_id) == ("node", (0, 0))
    assert isinstance(raised.value.__cause__, RuntimeError if error is StopIteration else error)
    assert user_code.calls == ["a", "bad"]
    assert run.edges.batches == []


def test_for_each_continues_after_a_failure(make_bench: Any) -> None:
    user_code = FailingFunction(lambda k, v: None, ValueError)
    run = make_bench(ForEachOperator(user_code))
    assert run.feed(("k", "bad", 1), ("k", "a", 2)) == []
    assert user_code.calls == ["bad", "a"]
    assert len(run.failures) == 1


def test_result_of_peek_is_ignored(make_bench: Any) -> None:
    """For example an array, which cannot be compared: the result is only compared with None by
    identity."""

    class Array:
        def __eq__(self, other: object) -> bool:
            raise ValueError("the truth value of an array is ambiguous")

    run = make_bench(PeekOperator(lambda k, v: Array()))
    assert run.feed(("k", "a", 1)) == [("k", "a", 1, ())]
    assert run.failures == []


@pytest.mark.parametrize("result", [None, ["a", "b"], ("a",), ("a", "b", "c"), "ab"])
def test_mapper_must_return_pairs(make_bench: Any, result: Any) -> None:
    """Any other result is a failure of its record, but not of others."""
    run = make_bench(MapOperator(lambda k, v: (k, v) if v == "good" else result))
    assert run.feed(("k", "good", 1), ("k", "x", 2), ("k", "good", 3)) == [
        ("k", "good", 1, ()),
        ("k", "good", 3, ()),
    ]
    (_, record, error), *others = run.failures
    assert (record.value, others) == ("x", [])
    assert isinstance(error, TypeError)


class Pair(NamedTuple):
    key: str
    value: int


def test_named_tuple_is_a_pair(make_bench: Any) -> None:
    assert make_bench(MapOperator(lambda k, v: Pair(v, 1))).feed(("k", "v", 1)) == [("v", 1, 1, ())]


@pytest.mark.parametrize("result", [None, "text", b"bytes", 7])
@pytest.mark.parametrize("operator", [FlatMapOperator, FlatMapValuesOperator])
def test_flat_mapper_must_return_an_iterable(make_bench: Any, operator: Any, result: Any) -> None:
    """Text is iterable, but never intended."""
    good = [("k", 1)] if operator is FlatMapOperator else [1]

    def mapper(*arguments: Any) -> Any:
        return good if arguments[-1] == "good" else result

    run = make_bench(operator(mapper))
    emitted = run.feed(("k", "x", 1), ("k", "good", 2))
    assert [(each.value, each.timestamp) for each in emitted] == [(1, 2)]
    assert [record.value for _, record, _ in run.failures] == ["x"]
    assert isinstance(run.failures[0][2], TypeError)


def test_generator_that_fails_half_way_emits_nothing(make_bench: Any) -> None:
    """Its code runs record by record; the results of other records are complete."""
    started: list[str] = []

    def halves(value: str) -> Iterator[str]:
        started.append(value)
        yield value + "1"
        if value == "bad":
            raise ValueError(value)
        yield value + "2"

    run = make_bench(FlatMapValuesOperator(halves))
    emitted = run.feed(("k", "a", 1), ("k", "bad", 2), ("k", "b", 3))
    assert [each.value for each in emitted] == ["a1", "a2", "b1", "b2"]
    assert started == ["a", "bad", "b"]
    assert [record.value for _, record, _ in run.failures] == ["bad"]


def test_invalid_element_of_a_flat_map_fails_its_record(make_bench: Any) -> None:
    wrong: Any = None
    run = make_bench(FlatMapOperator(lambda k, v: [(k, v), wrong] if v == "x" else [(k, v)]))
    emitted = run.feed(("k", "a", 1), ("k", "x", 2), ("k", "b", 3))
    assert [each.value for each in emitted] == ["a", "b"]
    assert [record.value for _, record, _ in run.failures] == ["x"]


def test_flat_maps_emit_nothing_rather_than_an_empty_batch(make_bench: Any) -> None:
    run = make_bench(FlatMapValuesOperator(lambda v: []))
    assert run.feed(("k", "a", 1)) == []
    assert run.edges.batches == []


def test_record_goes_to_the_first_matching_branch(make_bench: Any) -> None:
    """Records without a match go to the default branch; a branch may have no child."""
    checked: list[str] = []

    def long(key: Any, value: str) -> bool:
        checked.append(value)
        return len(value) > 1

    operator = BranchOperator((lambda k, v: v == "x", long), (None, "long", "rest"))
    run = make_bench(operator)
    emitted = run.feed_to_children(("k", "aa", 1, H), ("k", "x", 2), ("k", "b", 3), ("k", "cc", 4))
    assert emitted == [
        ("long", ("k", "aa", 1, H)),
        ("long", ("k", "cc", 4, ())),
        ("rest", ("k", "b", 3, ())),
    ]
    assert checked == ["aa", "b", "cc"]


def test_records_without_a_match_end_silently_without_a_default_branch(make_bench: Any) -> None:
    run = make_bench(BranchOperator((lambda k, v: False,), ("never",)))
    assert run.feed_to_children(("k", "a", 1)) == []
    assert run.drops.total == 0


def test_failed_predicate_is_not_a_mismatch(make_bench: Any) -> None:
    """The record goes to no branch, not even to a later one."""

    def fail(key: Any, value: Any) -> bool:
        raise ValueError(value)

    run = make_bench(BranchOperator((fail, lambda k, v: True), ("one", "two")))
    assert run.feed_to_children(("k", "a", 1)) == []
    assert len(run.failures) == 1


def test_print_writes_like_kafka_streams(
    make_bench: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert make_bench(PrintOperator("label")).feed(("k", 1, 1), (None, None, 2)) == []
    assert capsys.readouterr().out == "[label]: k, 1\n[label]: null, null\n"


def test_print_appends_to_a_file_and_closes_it(make_bench: Any, tmp_path: Path) -> None:
    """Output is in the file at once; a restart appends to it."""
    path = tmp_path / "printed"
    for value in ("a", "b"):
        operator = PrintOperator("p", str(path))
        make_bench(operator).feed(("k", value, 1))
        assert path.read_text().endswith(f"[p]: k, {value}\n")
        operator.close()
        operator.close()
    assert path.read_text() == "[p]: k, a\n[p]: k, b\n"
