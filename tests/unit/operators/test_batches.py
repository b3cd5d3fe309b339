"""Batches: selected, expanded and merged records keep their time, headers, origin and order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import BatchSerializationError
from millstream.operators.record_batch import Batch, Origin, merge_batches
from millstream.operators.user_calls import call_each, serialize_each
from millstream.record import RecordMetadata, TopicPartition
from millstream.serdes import STRING

H = (("h", b"1"),)
PLACE = TopicPartition("in", 3)


def batch_of(*keys: str, rows: list[int] | None = None, **columns: Any) -> Batch:
    """Return records with the upper-case key as the value, and the row as the timestamp."""
    own_rows = list(range(len(keys))) if rows is None else rows
    origin = columns.pop("origin", Origin(PLACE, range(100, 120)))
    return Batch(
        list(keys), [key.upper() for key in keys], list(own_rows), own_rows, origin, **columns
    )


def contents(batch: Batch) -> list[tuple[Any, ...]]:
    return [
        (key, batch.values[i], batch.timestamps[i], batch.metadata_of(i).offset)
        for i, key in enumerate(batch.keys)
    ]


def test_select_and_take_keep_all_columns_of_a_record() -> None:
    batch = batch_of("a", "b", "c", headers=[(), H, ()], order=[(0,), (1,), (2,)])
    batch.old_values = [1, 2, 3]
    for chosen in (batch.select([False, True, True]), batch.take([1, 2])):
        assert contents(chosen) == [("b", "B", 1, 101), ("c", "C", 2, 102)]
        assert (chosen.headers, chosen.order, chosen.old_values) == ([H, ()], [(1,), (2,)], [2, 3])
    assert contents(batch.take([2, 0])) == [("c", "C", 2, 102), ("a", "A", 0, 100)]


def test_expand_gives_each_result_the_position_of_its_record() -> None:
    batch = batch_of("a", "b", "c", headers=[(), H, ()], order=[(0,), (1,), (2,)])
    many = batch.expand([2, 0, 1], None, ["x", "y", "z"])
    assert contents(many) == [("a", "x", 0, 100), ("a", "y", 0, 100), ("c", "z", 2, 102)]
    assert many.order == [(0, 0), (0, 1), (2, 0)]
    assert many.headers == [(), (), ()]
    rekeyed = batch.expand([0, 1, 0], ["k"], ["v"])
    assert (rekeyed.keys, rekeyed.headers_of(0)) == (["k"], H)


def test_headers_come_from_the_input_record_unless_replaced() -> None:
    plain = batch_of("a", "b", origin=Origin(PLACE, [5, 6], [H, ()]))
    assert [plain.headers_of(0), plain.headers_of(1)] == [H, ()]
    assert plain.all_headers() == [H, ()]
    replaced = batch_of("a", "b", origin=Origin(PLACE, [5, 6], [H, ()]), headers=[(), ()])
    assert replaced.headers_of(0) == ()
    none = batch_of("a")
    assert (none.all_headers(), none.headers_of(0)) == (None, ())


def test_punctuation_has_no_origin() -> None:
    assert Origin(None, [-1]).metadata(0) == RecordMetadata(None, -1, -1)
    other = TopicPartition("other", 0)
    assert Origin([PLACE, other, None], [1, 2, 3]).metadata(1) == RecordMetadata("other", 0, 2)


def test_merge_interleaves_by_order() -> None:
    origin = Origin(PLACE, range(10))
    one = batch_of("a", "c", rows=[0, 1], origin=origin, order=[(0, 0), (1, 0)])
    two = batch_of("b", "d", rows=[0, 1], origin=origin, order=[(0, 1), (1, 1)], headers=[H, ()])
    merged = merge_batches([two, one])
    assert merged.keys == ["a", "b", "c", "d"]
    assert merged.headers == [(), H, (), ()]
    assert merged.old_values is None
    assert merge_batches([one]) is one


def test_merge_without_an_order_concatenates() -> None:
    origin = Origin(PLACE, range(10))
    one, two = batch_of("b", origin=origin), batch_of("a", origin=origin)
    assert merge_batches([one, two]).keys == ["b", "a"]


class StoppedError(Exception):
    pass


class Recorder:
    """Collects the indices of failed records, and skips these records."""

    def __init__(self) -> None:
        self.indices: list[int] = []

    def failed(self, batch: Batch, index: int, error: Exception) -> None:
        assert batch.keys[index] is not None
        self.indices.append(index)


@given(st.lists(st.sampled_from([None, ValueError, StopIteration]), max_size=12))
def test_functions_are_called_once_regardless_of_exceptions(errors: list[Any]) -> None:
    """Results, their records and failures match, for every pattern."""
    calls: list[int] = []

    def function(index: int) -> int:
        calls.append(index)
        if errors[index] is not None:
            raise errors[index]
        return index * 10

    size = len(errors)
    batch = batch_of(*("k" for _ in errors))
    recorder = Recorder()
    results, done = call_each(function, (list(range(size)),), batch, recorder)
    good = [i for i, error in enumerate(errors) if error is None]
    assert results == [i * 10 for i in good]
    assert list(done.timestamps) == good
    assert recorder.indices == [i for i in range(size) if i not in good]
    assert calls == list(range(size))


@given(st.lists(st.sampled_from(["a", None, 7]), max_size=12))
def test_objects_are_serialized_once_regardless_of_failures(objects: list[Any]) -> None:
    failed: list[int] = []
    results, keep = serialize_each(
        lambda rest: STRING.serialize_many("t", rest),
        objects,
        lambda index, error: failed.append(index),
    )
    assert results == [None if o is None else b"a" for o in objects if o != 7]
    assert failed == [i for i, o in enumerate(objects) if o == 7]
    assert keep is None if 7 not in objects else keep == [o != 7 for o in objects]


def test_handler_of_a_failed_object_can_raise() -> None:
    def fail(index: int, error: BatchSerializationError) -> None:
        raise StoppedError(index)

    with pytest.raises(StoppedError, match="1"):
        serialize_each(lambda rest: STRING.serialize_many("t", rest), ["a", 7, "b"], fail)
