"""A cache with user functions that raise, re-enter and modify it, in one implementation.

The reactions of a trace determine the behavior of the user functions: each call takes the next
reaction, `(action, result)`. The action is performed first; see `CacheSide.act`.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any

from extension.cases.values import outcome, shown, table_order, value_of
from millstream.native import compiled
from millstream.operators.aggregates.cached_loops import (
    AggregateUpdates,
    compiled_fold_entries,
    pure_count_entries,
    pure_fold_entries,
)
from millstream.record import TopicPartition
from millstream.state.caches.cache_entries import PureCachedEntry
from millstream.state.caches.cache_implementation import cache_implementation

ATTRIBUTES = tuple(PureCachedEntry.__slots__)
ERRORS: dict[str, type[BaseException]] = {
    each.__name__: each
    for each in (ValueError, KeyError, RuntimeError, KeyboardInterrupt, StopIteration, MemoryError)
}
#: The maximum depth of calls within user functions.
MAX_DEPTH = 3
_PLACE = TopicPartition("in", 0)

compiled_count_entries = compiled(pure_count_entries, "count_entries")


class LoggedCache:
    """The parts of a record cache that the loops use. Every third key is stored, with a value."""

    def __init__(self, side: CacheSide) -> None:
        self._side = side
        self.entries: Any = side.code.make_table()
        self.dirty: list[Any] = []
        self.seq = 0

    def load_many(self, keys: list[bytes]) -> None:
        """Load entries; the first reaction determines failures and incomplete loads."""
        result = self._side.react("load_many", [bytes(key) for key in keys])
        if result == "none":
            return
        for key, entry in zip(
            keys, self._side.code.new_entries(keys, 100, self.seq + 1), strict=True
        ):
            if len(key) % 3 == 2:
                entry.value, entry.timestamp = 1_000, 20
            self.entries[key] = entry
        self.seq += len(keys)


class CacheSide:
    """A cache in Python or C, and a log of everything that its users can observe.

    Args:
        speedups: False for Python, None for C.
    """

    def __init__(self, speedups: bool | None) -> None:
        self.code = cache_implementation(speedups)
        self.cache: Any = LoggedCache(self)
        self.order = self.code.make_order()
        self.log: list[str] = []
        self._at = array("q", [-1])
        self._depth = 0
        self._reactions: Iterator[tuple[Any, Any]] = iter(())
        is_compiled = self.code.is_compiled
        self._fold: Callable[..., None] = (
            compiled_fold_entries if is_compiled else pure_fold_entries
        )
        self._count: Callable[..., None] = (
            compiled_count_entries if is_compiled else pure_count_entries
        )

    # --- steps -----------------------------------------------------------------------------------

    def perform(self, step: tuple[Any, ...]) -> None:
        """Perform a step of a trace, and log its result."""
        *action, reactions = step
        self._reactions = iter([] if reactions is None else reactions)
        result, failure = outcome(self.act, tuple(action))
        self._reactions = iter(())
        self.log.append(f"{action[0]}: {failure or shown(result)}")

    def end(self) -> None:
        """Log the state of all entries."""
        entries = self.cache.entries
        for _, entry in sorted(entries.items(), key=lambda pair: table_order(pair[0])):
            self.log.append(shown([getattr(entry, each) for each in ATTRIBUTES]))
        self.log.append(f"{self.cache.seq} {[entry.dirty_seq for entry in self.cache.dirty]}")
        self.log.append(shown([entry.key_bytes for entry in self.order.pop_unchanged(10**9)]))

    # --- user functions --------------------------------------------------------------------------

    def react(self, function: str, *arguments: Any) -> Any:
        """Perform the next reaction of a user function; return or raise its result."""
        self.log.append(f"{function}{shown(arguments)} at {self._at[0]}")
        action, result = next(self._reactions, (None, "default"))
        if action is not None and self._depth < MAX_DEPTH:
            _, failure = outcome(self.act, action)
            self.log.append(f"{action[0]} within: {failure}")
        if isinstance(result, str) and result in ERRORS:
            raise ERRORS[result](function)
        return result

    def _initialize(self) -> Any:
        result = self.react("initializer")
        special = {"default": 0, "in place": [], "record": 5, "aggregate": 7, "none": None}
        return (
            special[result] if isinstance(result, str) and result in special else value_of(result)
        )

    def _aggregate(self, key: Any, value: Any, aggregate: Any) -> Any:
        result = self.react("aggregator", key, value, aggregate)
        if result == "default":
            return aggregate + value
        if result == "in place":
            aggregate += value
        special = {"none": None, "record": value, "aggregate": aggregate, "in place": aggregate}
        return (
            special[result] if isinstance(result, str) and result in special else value_of(result)
        )

    def _copy(self, value: Any) -> Any:
        result = self.react("own", value)
        return None if result == "none" else value_of(value)

    def _failed(self, index: int, error: Exception) -> None:
        self.react("failed", index, repr(error))

    # --- actions ---------------------------------------------------------------------------------

    def act(self, action: tuple[Any, ...]) -> Any:
        name, *arguments = action
        self._depth += 1
        try:
            return getattr(self, f"_{name}")(*arguments)
        finally:
            self._depth -= 1

    def _fold_step(self, records: list[Any], options: str) -> None:
        own = self._copy if "own" in options else None
        updates = self._updates(records, options)
        self._fold(self.cache, updates, self._initialize, self._aggregate, own, self._failed)

    def _count_step(self, records: list[Any], options: str) -> None:
        self._count(self.cache, self._updates(records, options))

    def _updates(self, records: list[Any], options: str) -> AggregateUpdates:
        """Create columns of records `(key, value, timestamp, number of changes)`."""
        count = len(records)
        keys = [value_of(key) for key, *_ in records]
        stored_keys, indices = keys, None
        if "spread" in options:
            pairs = [
                (index, keys[index] + b"w%d" % window)
                for index, (*_, changes) in enumerate(records)
                for window in range(changes)
            ]
            indices, stored_keys = [index for index, _ in pairs], [key for _, key in pairs]
        places: Iterable[Any] = repeat(_PLACE) if "repeat" in options else [_PLACE] * count
        offsets: Iterable[int] = range(count) if "range" in options else list(range(count))
        if "iterators" in options and indices is None:
            places, offsets = iter([_PLACE] * count), iter(range(count))
        return AggregateUpdates(
            stored_keys,
            indices,
            [bytes(key) for key in keys],
            [value_of(value) for _, value, *_ in records],
            [time for _, _, time, _ in records],
            places,
            offsets,
            [(("name", b"x"),)] * count if "headers" in options else None,
            self._at,
        )

    def _put(self, key: Any) -> None:
        made = value_of(key)
        self.cache.entries[made] = self.code.make_entry(made, None, 5, self.cache.seq + 1)

    def _pop(self, key: Any) -> bool:
        return self.cache.entries.pop(value_of(key), None) is not None

    def _clear(self) -> None:
        self.cache.entries.clear()

    def _value(self, key: Any, value: Any) -> None:
        entry = self.cache.entries.get(value_of(key))
        if entry is not None:
            entry.value = value_of(value)

    def _change(self, key: Any, value: Any, timestamp: int) -> None:
        """Change an entry as an operator does, outside of a loop."""
        entry = self.cache.entries.get(value_of(key))
        if entry is not None:
            self.cache.seq += 1
            if entry.change(value_of(value), timestamp, self.cache.seq, None, 1, ()):
                self.cache.dirty.append(entry)

    def _drop_dirty(self) -> None:
        self.cache.dirty.clear()

    def _seq(self, number: int) -> None:
        self.cache.seq = number

    def _flush(self) -> Any:
        entries = self.code.sorted_by_change(self.cache.dirty)
        columns = self.code.columns_of(entries)
        grown = self.code.mark_flushed(entries, [b"x" * (len(each) % 7) for each in columns[0]], 9)
        self.cache.dirty.clear()
        return columns, grown

    def _queue(self, key: Any) -> None:
        entry = self.cache.entries.get(value_of(key))
        if entry is not None:
            self.order.add(entry)

    def _queue_all(self) -> None:
        self.order.add_many(
            sorted(self.cache.entries.values(), key=lambda each: table_order(each.key_bytes))
        )

    def _evict(self, size: int) -> Any:
        popped = self.order.pop_unchanged(size)
        removed, others = self.code.remove_entries(self.cache.entries, popped)
        return removed, [entry.key_bytes for entry in others]

    def _pop_order(self) -> Any:
        entry = self.order.pop()
        return entry and entry.key_bytes

    def _drop_removed(self) -> int:
        self.order.drop_removed()
        return len(self.order)

    def _collect(self) -> None:
        gc.collect()
