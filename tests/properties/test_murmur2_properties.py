"""The Python partitioner and librdkafka's choose the same partition for every key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.murmur2 import murmur2

from millstream.kafka.partitioner import partition_for


@given(st.binary(max_size=64), st.integers(1, 1_000))
def test_both_implementations_agree(key: bytes, count: int) -> None:
    """`murmur2` is tested with Java's vectors; the producer uses `partition_for`."""
    value = murmur2(key)
    assert -(2**31) <= value < 2**31
    assert partition_for(key, count) == (value & 0x7FFFFFFF) % count
