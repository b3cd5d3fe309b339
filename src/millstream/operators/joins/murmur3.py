"""MurmurHash3 of 128 bits, x64 variant, as Kafka Streams computes it of values."""

from __future__ import annotations

import struct
from typing import Final

from millstream.compiled import compiled

_SEED: Final = 104729
_MASK: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F
_BLOCK: Final = 16
_TWO_LONGS: Final = struct.Struct("<QQ")
_RESULT: Final = struct.Struct(">QQ")


def pure_murmur3_128(data: bytes) -> bytes:
    """The hash of some bytes: two big-endian longs, as they are written."""
    h1 = h2 = _SEED
    size = len(data)
    whole = size - size % _BLOCK
    for k1, k2 in _TWO_LONGS.iter_unpack(data[:whole]):
        k1 = k1 * _C1 & _MASK
        h1 ^= (k1 << 31 | k1 >> 33) * _C2 & _MASK
        h1 = (h1 << 27 | h1 >> 37) + h2 & _MASK
        h1 = h1 * 5 + 0x52DCE729 & _MASK
        k2 = k2 * _C2 & _MASK
        h2 ^= (k2 << 33 | k2 >> 31) * _C1 & _MASK
        h2 = (h2 << 31 | h2 >> 33) + h1 & _MASK
        h2 = h2 * 5 + 0x38495AB5 & _MASK
    if whole < size:
        k1, k2 = _TWO_LONGS.unpack(bytes(data[whole:]).ljust(_BLOCK, b"\0"))
        k2 = k2 * _C2 & _MASK
        h2 ^= (k2 << 33 | k2 >> 31) * _C1 & _MASK
        k1 = k1 * _C1 & _MASK
        h1 ^= (k1 << 31 | k1 >> 33) * _C2 & _MASK
    h1 ^= size
    h2 ^= size
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    h1, h2 = _finished(h1), _finished(h2)
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    return _RESULT.pack(h1, h2)


def _finished(h: int) -> int:
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & _MASK
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return h ^ h >> 33


#: 0.1 us for 75 bytes with the extension, 4 us without.
murmur3_128 = compiled(pure_murmur3_128, "murmur3_128")
