"""The segments of time by which windows in RocksDB are kept and deleted.

What a segment is decides what Kafka Streams still takes when it comes late, so its length is Kafka
Streams' own.
"""

from __future__ import annotations

import struct
from typing import Final

_SEGMENT: Final = struct.Struct(">q")
SEGMENT_BYTES: Final = _SEGMENT.size

#: Kafka Streams makes segments no shorter than a minute.
_SHORTEST_SEGMENT_MS: Final = 60_000
#: Stretches of time within the retention, for what is kept in memory.
_BUCKETS: Final = 64

#: What stands before the stored keys of a segment.
segment_prefix: Final = _SEGMENT.pack


def segment_length_ms(retention_ms: int) -> int:
    """How long the segments of a store are: half of its retention, but at least a minute."""
    return max(retention_ms // 2, _SHORTEST_SEGMENT_MS)


def bucket_length_ms(retention_ms: int) -> int:
    """How long the stretches of time are in which what is recent is forgotten."""
    return min(segment_length_ms(retention_ms), retention_ms // _BUCKETS)


def behind(highest: bytes, suffix: bytes) -> bytes:
    """What comes behind all stored keys of a key and of those before it.

    Stored keys of a beginning of the key may come behind its own.

    Args:
        highest: the key.
        suffix: what comes behind a key in what is behind all of its stored keys.
    """
    best, decisive = 0, len(suffix)
    for size in range(1, len(highest) + 1):
        # Only what differs is compared: keys may be long.
        if highest[best : min(size, best + decisive)] + suffix > suffix:
            best = size
    return highest[:best] + suffix
