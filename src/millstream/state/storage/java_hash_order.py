"""The iteration order of Java's `HashSet<Bytes>`.

Kafka Streams logs the changed keys of some stores in this order. The order has no meaning, but
following it makes our changelogs identical to those of Kafka Streams, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul
from typing import Final

_SMALLEST_TABLE: Final = 16
_MASK: Final = 0xFFFFFFFF
#: The value of each byte as a signed Java `byte`: -128 to 127.
_SIGNED: Final = tuple(byte - 256 if byte > 127 else byte for byte in range(256))


class JavaHashSet:
    """A set of byte strings with the iteration order of Java's `HashSet`.

    As in Java, the hash table never shrinks, so the order may depend on earlier contents.
    """

    def __init__(self) -> None:
        self._keys: dict[bytes, None] = {}
        self._table = _SMALLEST_TABLE
        #: Adds a key if it is missing. This is the dict's own method, because it is called for
        #: every write.
        self.add = self._keys.setdefault

    def __len__(self) -> int:
        return len(self._keys)

    def in_order(self) -> Sequence[bytes]:
        """Return the elements in the order of Java's iterator."""
        keys = list(self._keys)
        while len(keys) * 4 > self._table * 3:
            self._table *= 2
        if len(keys) > 1:
            buckets = self._table - 1
            # Within a bucket, Java keeps the insertion order, as the stable sort() does.
            keys.sort(key=lambda key: _spread_hash(key) & buckets)
        return keys

    def clear(self) -> None:
        while len(self._keys) * 4 > self._table * 3:
            self._table *= 2
        self._keys.clear()


def _spread_hash(key: bytes) -> int:
    code = java_hash(key)
    return code ^ code >> 16


def java_hash(data: bytes) -> int:
    """Compute Java's `Arrays.hashCode` of a byte array, as an unsigned integer."""
    size = len(data)
    powers = _powers(size)
    total: int = powers[0] + sum(map(mul, map(_SIGNED.__getitem__, data), powers[1:]))
    return total & _MASK


def _powers(size: int) -> list[int]:
    """Return the powers of 31 from `size` down to 0."""
    cached = _POWERS.get(size)
    if cached is None:
        cached = [pow(31, exponent, 1 << 32) for exponent in range(size, -1, -1)]
        if len(_POWERS) < _POWERS_KEPT:
            _POWERS[size] = cached
    return cached


_POWERS_KEPT: Final = 256
_POWERS: dict[int, list[int]] = {}
