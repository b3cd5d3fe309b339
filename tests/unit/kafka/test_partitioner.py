"""Kafka's default partitioner."""

from __future__ import annotations

import pytest
from support.murmur2 import murmur2

from millstream.kafka.partitioner import partition_for

#: Results of Java's `Utils.murmur2`, with the partition out of ten.
KNOWN = {
    b"k": (-1567496736, 2),
    b"key1": (28543940, 0),
    b"21": (-973932308, 0),
    b"foobar": (-790332482, 6),
    b"a-little-bit-long-string": (-985981536, 2),
}


@pytest.mark.parametrize("key", KNOWN)
def test_known_hashes(key: bytes) -> None:
    """The hashes equal Java's, so that Java applications use the same partitions."""
    assert (murmur2(key), partition_for(key, 10)) == KNOWN[key]


def test_the_partition_is_the_positive_hash_modulo_the_count() -> None:
    """For every length of the tail, including the empty key."""
    for length in range(20):
        key = bytes(range(200, 200 + length))
        for count in (1, 3, 7, 100):
            assert partition_for(key, count) == (murmur2(key) & 0x7FFFFFFF) % count
