"""The hot loop of session aggregations with a record cache.

By the rules of `RecordCache`. `millstream-speedups` has it in C, where that is installed: there
most records need no call of Python beside the user's functions.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any, NamedTuple

from millstream.compiled import compiled
from millstream.operators.aggregates.cached_loops import (
    Aggregator,
    Failed,
    Initializer,
    Updates,
)
from millstream.record import Headers, TopicPartition
from millstream.state.caches.cache_entries import CachedEntry
from millstream.state.caches.eviction import EvictionOrder
from millstream.state.windows.key_index import KeyIndex
from millstream.state.windows.window_cache import WindowCache

_NO_HEADERS: Headers = ()

#: (key, one aggregate, another) → the aggregate of both.
SessionMerger = Callable[[Any, Any, Any], Any]

#: Takes one record: its index, timestamp, place, offset and headers, and stream time; whether its
#: session is closed.
TakeOne = Callable[[int, int, TopicPartition | None, int, Headers, int], bool]


class SessionTimes(NamedTuple):
    """What decides which session a record belongs to; all times in milliseconds.

    Args:
        gap_ms: without records for longer, a session has ended.
        closed_after_ms: how long after its end a session takes no more records.
        stream_time: the highest timestamp so far.
    """

    gap_ms: int
    closed_after_ms: int
    stream_time: int


def fold_into_sessions(
    cache: WindowCache,
    updates: Updates,
    times: SessionTimes,
    initializer: Initializer,
    aggregator: Aggregator,
    merger: SessionMerger,
    failed: Failed,
    otherwise: TakeOne,
) -> tuple[int, int]:
    """Fold the values of records into cached sessions: 7.4 us a record with all that a task does
    before a commit, in C 4.4 us.

    Args:
        cache: has the sessions; what it flushes is forwarded, and its values are immutable.
        updates: of each record the serialized key; and the records.
        times: which session is whose.
        initializer: gives what a session starts from.
        aggregator: gives the next aggregate.
        merger: gives the aggregate of two.
        failed: told the record that one of them fails on.
        otherwise: takes a record that neither begins a session nor moves the one that there is.

    Returns:
        Stream time, and how many records came too late.
    """
    # What is written below has ended by then.
    below = cache.observed_time, cache.new_entry_bytes
    return fold_sessions(
        cache,
        *cache.parts(),
        updates,
        (*times, *below),
        initializer,
        aggregator,
        merger,
        failed,
        otherwise,
    )


def take_each(updates: Updates, stream_time: int, take_one: TakeOne) -> tuple[int, int]:
    """Have every record taken by itself; stream time then, and how many came too late."""
    late = 0
    headers = repeat(_NO_HEADERS) if updates.headers is None else updates.headers
    columns = zip(updates.timestamps, updates.places, updates.offsets, headers, strict=False)
    for index, (timestamp, place, offset, each) in enumerate(columns):
        if timestamp > stream_time:
            stream_time = timestamp
        updates.at[0] = index
        late += take_one(index, timestamp, place, offset, each, stream_time)
    return stream_time, late


def pure_fold_sessions(
    cache: WindowCache,
    index: KeyIndex,
    order: EvictionOrder,
    resting: dict[bytes, CachedEntry],
    updates: Updates,
    times: tuple[int, int, int, int, int],
    initializer: Initializer,
    aggregator: Aggregator,
    merger: SessionMerger,
    failed: Failed,
    otherwise: TakeOne,
) -> tuple[int, int]:
    """In Python no record is simple enough; see `fold_into_sessions`."""
    return take_each(updates, times[2], otherwise)


fold_sessions = compiled(pure_fold_sessions, "fold_sessions")
