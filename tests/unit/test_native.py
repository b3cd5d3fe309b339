"""The functions of the C extension return the same results as the Python ones, and reject invalid
input."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strictness import needed_speedups

from millstream.native import compiled
from millstream.operators.joins.foreign_key_formats import pure_murmur3_128
from millstream.state.storage.value_formats import with_times

TIMES = st.integers(-(2**63), 2**63 - 1)


def native(pure: Callable[..., Any], name: str) -> Callable[..., Any]:
    needed_speedups()
    found = compiled(pure, name)
    assert found is not pure
    return found


@given(data=st.binary(max_size=100))
def test_hashes_are_the_same(data: bytes) -> None:
    hash_of = native(pure_murmur3_128, "murmur3_128")
    assert hash_of(data) == hash_of(bytearray(data)) == pure_murmur3_128(data)


@given(pairs=st.lists(st.tuples(st.none() | st.binary(max_size=20), TIMES), max_size=20))
def test_values_with_prepended_timestamps_are_the_same(
    pairs: list[tuple[bytes | None, int]],
) -> None:
    values, timestamps = [value for value, _ in pairs], [time for _, time in pairs]
    found = native(with_times, "with_times")(values, timestamps)
    assert found == with_times(values, timestamps)
    assert native(with_times, "with_times")(iter(values), iter(timestamps)) == found


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_buffers_returned_by_serializers_become_bytes(
    kind: Callable[..., Any],
) -> None:
    values = [kind(b"some"), None, kind(b"")]
    found = native(with_times, "with_times")(values, [1, 2, 3])
    assert found == with_times(values, [1, 2, 3])
    assert [type(value) for value in found] == [bytes, type(None), bytes]


@pytest.mark.parametrize(
    ("values", "timestamps", "error"),
    [
        ([b"a"], [], ValueError),
        ([b"a", "text"], [1, 2], TypeError),
        ([b"a"], ["now"], TypeError),
        ([b"a"], [2**63], OverflowError),
        (7, [1], TypeError),
    ],
)
def test_invalid_values_and_timestamps_are_rejected(
    values: Any, timestamps: Any, error: type[Exception]
) -> None:
    """References to values joined before are released."""
    join = native(with_times, "with_times")
    last = bytes(bytearray(b"released after errors"))
    before = sys.getrefcount(last)
    for _ in range(3):
        with pytest.raises(error):
            join(values, timestamps)
        with pytest.raises(TypeError):
            join([last, "text"], [1, 2])
    assert sys.getrefcount(last) == before
    with pytest.raises(TypeError):
        native(pure_murmur3_128, "murmur3_128")("text")


def test_python_is_used_without_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or with `speedups=False`."""
    assert compiled(with_times, "with_times", speedups=False) is with_times
    monkeypatch.setitem(sys.modules, "millstream.native.library", None)
    assert compiled(with_times, "with_times") is with_times
