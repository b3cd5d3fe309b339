"""Serde round trips, and equality of batch and single-value methods."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import BatchSerializationError, SerializationError
from millstream.serdes import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    FLOAT,
    INTEGER,
    JSON,
    LONG,
    SHORT,
    STRING,
    UUID,
    Serde,
    json_of,
    list_of,
    msgpack_of,
)

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_LONGS = st.integers(-(2**63), 2**63 - 1)
_JSON = st.recursive(
    st.booleans() | _LONGS | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)
_SERDES: list[tuple[Serde[Any], st.SearchStrategy[Any]]] = [
    (STRING, _TEXT),
    (BYTES, st.binary(max_size=20)),
    (LONG, _LONGS),
    (INTEGER, st.integers(-(2**31), 2**31 - 1)),
    (SHORT, st.integers(-(2**15), 2**15 - 1)),
    (DOUBLE, st.floats(allow_nan=False)),
    (FLOAT, st.floats(width=32, allow_nan=False)),
    (BOOLEAN, st.booleans()),
    (UUID, st.uuids()),
    (JSON, _JSON),
    (json_of(list[int]), st.lists(_LONGS, max_size=4)),
    (msgpack_of(dict[str, int]), st.dictionaries(_TEXT, _LONGS, max_size=4)),
    (list_of(LONG), st.lists(st.none() | _LONGS, max_size=5)),
    (list_of(UUID), st.lists(st.none() | st.uuids(), max_size=5)),
    (list_of(STRING), st.lists(st.none() | _TEXT, max_size=5)),
    (list_of(list_of(SHORT)), st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=3)),
]
_MIXED: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=9)
)


def _outcome(many: Callable[[str, list[Any]], list[Any]], batch: list[Any]) -> tuple[Any, Any]:
    """The results up to the first failure, and its index."""
    try:
        return many("t", batch), None
    except BatchSerializationError as error:
        return error.done, error.index


@pytest.mark.parametrize(("serde", "values"), _SERDES, ids=lambda it: str(it)[:20])
def test_round_trip(serde: Serde[Any], values: st.SearchStrategy[Any]) -> None:
    """Aim: values survive a round trip, with and without None in the list."""

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.none() | values, max_size=8) | st.lists(values, max_size=8))
    def check(batch: list[Any]) -> None:
        datas = serde.serialize_many("t", batch)
        assert datas == [serde.serialize("t", value) for value in batch]
        assert serde.deserialize_many("t", datas) == batch
        assert [serde.deserialize("t", data) for data in datas] == batch

    check()


@pytest.mark.parametrize("serde", [serde for serde, _ in _SERDES], ids=str)
def test_batch_serialization_accepts_the_same_values_as_single_serialization(
    serde: Serde[Any],
) -> None:
    """Aim: the batch method accepts and rejects the same values as the single-value method.

    Method: lists of mixed values, most of them wrong; the first failing position must agree.
    """

    @settings(max_examples=60, deadline=None)
    @given(st.lists(_MIXED, max_size=4))
    def check(batch: list[Any]) -> None:
        expected: list[bytes | None] = []
        failed = False
        for value in batch:
            try:
                expected.append(serde.serialize("t", value))
            except SerializationError:
                failed = True
                break
        outcome = _outcome(serde.serialize_many, batch)
        assert outcome == (expected, len(expected) if failed else None)

    check()


@pytest.mark.parametrize("serde", [serde for serde, _ in _SERDES], ids=str)
def test_any_bytes_are_deserialized_or_rejected(serde: Serde[Any]) -> None:
    """Aim: invalid bytes only raise SerializationError, and both methods agree."""
    size = st.binary(max_size=40)
    near = st.builds(
        lambda flag, nulls, rest: struct.pack(">bi", flag, nulls) + rest,
        st.integers(0, 1),
        st.integers(-2, 3),
        st.binary(max_size=20),
    )

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.none() | size | near, max_size=3))
    def check(datas: list[bytes | None]) -> None:
        expected: list[Any] = []
        failed = False
        for data in datas:
            try:
                expected.append(serde.deserialize("t", data))
            except SerializationError:
                failed = True
                break
        outcome = _outcome(serde.deserialize_many, datas)
        assert repr(outcome) == repr((expected, len(expected) if failed else None))

    check()
