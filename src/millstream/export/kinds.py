"""Which metrics only grow."""

from __future__ import annotations

from typing import Final

#: They are called so by Kafka Streams, but may become less.
_NOT_COUNTERS: Final = frozenset({"restore-remaining-records-total", "cache-size-bytes-total"})


def is_counter(name: str) -> bool:
    """Whether what a metric tells only grows while its owner lives."""
    return name.endswith("-total") and name not in _NOT_COUNTERS
