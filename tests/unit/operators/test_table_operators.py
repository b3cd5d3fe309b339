"""Table operators beyond the recorded scenarios: caches, objects and failures."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import SerializationError
from millstream.operators.joins.table_join import TableJoinOperator
from millstream.operators.tables.table_aggregate import TableAggregateOperator
from millstream.operators.tables.table_change import Change, ChangeSerde
from millstream.operators.tables.table_stateless import TableFilterOperator, TableMapValuesOperator
from millstream.operators.tables.table_store import TableSourceOperator
from millstream.operators.tables.value_getter import JoinedGetterSupplier, StoreGetterSupplier
from millstream.serdes import JSON, STRING

CACHE = 1 << 20


def old_values(run: Any) -> list[Any]:
    """Return the old values of the batches emitted so far."""
    batches, run.edges.batches = run.edges.batches, []
    return [old for _, batch in batches for old in batch.old_values]


@pytest.mark.parametrize("cache_bytes", [0, CACHE])
def test_source_reports_old_values(make_bench: Any, cache_bytes: int) -> None:
    """Also within a batch, and after a flush. A cache only reports the change at the flush."""
    run = make_bench(
        TableSourceOperator("S", send_old_values=True), store=STRING, cache_bytes=cache_bytes
    )
    run.operator.process(run.batch(("a", "1", 1), ("a", "2", 2), ("b", "1", 3)), run.edges)
    run.operator.flush()
    assert old_values(run) == ([None, None] if cache_bytes else [None, "1", None])
    run.operator.process(run.batch(("a", None, 4), ("b", "2", 5)), run.edges)
    run.operator.flush()
    assert old_values(run) == ["2", "1"]


def test_cached_source_reads_from_the_store_only_if_necessary(make_bench: Any) -> None:
    """A deletion of a missing row is not logged; that of an existing row is."""
    run = make_bench(TableSourceOperator("S"), store=STRING, cache_bytes=CACHE)
    run.feed(("a", "1", 1), ("b", None, 1))
    assert run.flush() == [("a", "1", 1, ())]
    run.feed(("a", "2", 2), ("a", None, 3))
    assert run.flush() == [("a", None, 3, ())]
    assert run.changelog == [(b"a", b"1", 1), (b"a", None, 3)]


@pytest.mark.parametrize("cache_bytes", [0, CACHE])
def test_value_that_cannot_be_stored_leaves_no_trace(make_bench: Any, cache_bytes: int) -> None:
    run = make_bench(TableSourceOperator("S"), store=STRING, cache_bytes=cache_bytes)
    emitted = [*run.feed(("a", "1", 1), ("a", 2, 2), ("b", "3", 3)), *run.flush()]
    assert emitted == [("a", "1", 1, ()), ("b", "3", 3, ())]
    assert [record.value for _, record, _ in run.failures] == [2]


@pytest.mark.parametrize("cache_bytes", [0, CACHE])
def test_materialized_filter_drops_deletions_of_missing_rows(
    make_bench: Any, cache_bytes: int
) -> None:
    operator = TableFilterOperator(lambda key, value: value > "1", False, "S", send_old_values=True)
    run = make_bench(operator, store=STRING, cache_bytes=cache_bytes)
    assert [*run.feed(("a", "1", 1), ("a", "2", 2)), *run.flush()] == [("a", "2", 2, ())]
    assert [*run.feed(("a", "1", 3), ("a", None, 4)), *run.flush()][-1].value is None
    assert run.changelog[-1][:2] == (b"a", None)
    assert [*run.feed(("a", None, 5)), *run.flush()] == []


def test_old_values_are_mapped_without_a_store(make_bench: Any) -> None:
    run = make_bench(TableMapValuesOperator(str.upper, False, None, send_old_values=True))
    batch = run.batch(("a", "x", 1), ("b", None, 2))
    run.operator.process(batch.with_changes(["x", None], [None, "y"]), run.edges)
    assert old_values(run) == [None, "Y"]


def test_old_aggregates_are_not_changed_in_place(make_bench: Any) -> None:
    """Nodes downstream receive the old value, although functions change the aggregate in place."""

    def add(key: Any, value: Any, items: list[Any]) -> list[Any]:
        items.append(value)
        return items

    def subtract(key: Any, value: Any, items: list[Any]) -> list[Any]:
        items.remove(value)
        return items

    run = make_bench(
        TableAggregateOperator("S", list, add, subtract, send_old_values=True), store=JSON
    )
    changes = [Change("x", None), Change("y", None), Change("z", "x")]
    run.operator.process(run.batch(*(("g", change, 1) for change in changes)), run.edges)
    values = [value for _, batch in run.edges.batches for value in batch.values]
    assert values == [["x"], ["x", "y"], ["y", "z"]]
    assert old_values(run) == [None, ["x"], ["x", "y"]]


def test_failing_joiner_drops_only_its_record(make_bench: Any) -> None:
    def joiner(own: Any, other: Any) -> str:
        return f"{1 // int(own)}{other}"

    run = make_bench(TableJoinOperator(StoreGetterSupplier("S"), joiner, "inner"), store=STRING)
    table = run.stores.table("S")
    table.write_many([b"a", b"b"], ["A", "B"], [7, 7])
    assert run.feed(("a", "0", 1), ("b", "1", 9)) == [("b", "1B", 9, ())]
    assert [record.key for _, record, _ in run.failures] == ["a"]


@pytest.mark.parametrize(
    ("needs_left", "needs_right", "expected"),
    [(True, True, {}), (True, False, {"l": ("l", 1)}), (False, False, {"l": ("l", 1), "r": "r"})],
    ids=["inner", "left", "outer"],
)
def test_join_without_a_store_is_computed_when_it_is_read(
    make_bench: Any, needs_left: bool, needs_right: bool, expected: dict[str, Any]
) -> None:
    """The timestamp is the later one; without a required side there is no row."""
    run = make_bench(TableSourceOperator("S"), store=STRING)
    run.stores.table("S").write_many([b"both", b"l"], ["l", "l"], [5, 1])
    right = _FixedRows({"both": ("r", 3), "r": ("r", 2)})
    supplier: Any = JoinedGetterSupplier(
        StoreGetterSupplier("S"),
        right,
        lambda one, other: f"{one or ''}{other or ''}",
        needs_left,
        needs_right,
    )
    getter = supplier.make(run.operator.context)
    assert getter.get("both") == ("lr", 5)
    assert (getter.get("l") is not None) is ("l" in expected)
    assert (getter.get("r") is not None) is ("r" in expected)
    assert getter.get("neither") is None


class _FixedRows:
    """A getter, and its supplier, with fixed rows."""

    stores = ()
    is_versioned = False

    def __init__(self, rows: dict[str, Any]) -> None:
        self.get = rows.get

    def make(self, context: Any) -> Any:
        return self


@pytest.mark.parametrize(
    ("change", "data"),
    [
        (Change("new", "old"), b"\x06newold\x02"),
        (Change("new", None), b"new\x01"),
        (Change(None, "old"), b"old\x00"),
        (Change("n" * 64, ""), b"\x80\x01" + b"n" * 64 + b"\x02"),
    ],
)
def test_bytes_of_changes_are_those_of_kafka_streams(change: Change, data: bytes) -> None:
    serde = ChangeSerde(STRING)
    assert serde.serialize("t", change) == data
    assert serde.serialize_many("t", [change]) == [data]
    assert serde.deserialize("t", data) == change
    assert serde.deserialize_many("t", [data, data]) == [change, change]
    # KIP-904 adds a byte before the flag, which applications of other versions may write.
    assert serde.deserialize("t", data[:-1] + b"\x01" + bytes([data[-1] + 3])) == change


@pytest.mark.parametrize("data", [b"", b"new\x09", b"\x06ne\x02", b"\xff\x02"])
def test_invalid_bytes_of_a_change_are_rejected(data: bytes) -> None:
    with pytest.raises(SerializationError, match="another application"):
        ChangeSerde(STRING).deserialize("t", data)
    with pytest.raises(SerializationError, match="cannot deserialize"):
        ChangeSerde(STRING).deserialize_many("t", [b"new\x01", data])
