"""The record cache of one store: the latest values as objects, serialized only when flushed.

Kafka Streams' `NamedCache` with `CachingKeyValueStore`. A key that changes many times between two
commits is serialized, logged and forwarded once, in the order in which keys became dirty last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from itertools import chain
from typing import Any, Final

from millstream.record import Headers, TopicPartition
from millstream.serdes import Serde
from millstream.state.caches.cache_code import cache_code
from millstream.state.caches.cache_entries import (
    ENTRY_OVERHEAD_BYTES,
    UNREAD,
    CacheBudget,
    CachedEntry,
    CacheStatistics,
    ChangedEntries,
    FlushedChanges,
    KeyWatcher,
    headers_bytes,
)
from millstream.state.caches.entry_codec import EntryCodec
from millstream.state.caches.eviction import GONE
from millstream.state.changelogs.record_at_hand import RecordAtHand
from millstream.state.storage.bytes_store import ByteItems, BytesStore
from millstream.state.storage.iterators import merged
from millstream.state.storage.value_formats import ValueFormat

#: After how many changes the sizes of changed values are estimated anew, from how many: 1 ns each.
_CHANGES_PER_ESTIMATE: Final = 10_000
_ESTIMATE_SAMPLE: Final = 32
_FIRST_VALUE_BYTES_ESTIMATE: Final = 16

#: How many entries a read may look at to make room for itself.
_EVICTED_BY_READ: Final = 4


class RecordCache:
    """The latest values of some keys of a store, above the layer that logs.

    **For operators.** `entries` holds the values as objects, by serialized key. The hot loops of
    operators change entries themselves (`operators/aggregates/cached_loops.py`), by these rules:

    - what `entries` does not have comes from `load`, `load_many` or `overwrite`, which count in
      `seq`: a loop that counts in a variable gives it back before, and takes it anew after;
    - a value is None where there is none; the timestamp of a deletion is the record's;
    - an entry that changes goes to `dirty`, unless its `dirty_seq` says that it is there; `seq` is
      one more then, and its new `dirty_seq`, which also moves it to the end of the order;
    - it gets place, offset and headers of the record;
    - once a batch `evict()` is called, and what it gives is forwarded.

    Keep no entry from one batch to the next: `flush` and `evict` take entries out.

    **Aliasing.** The object in an entry belongs to the entry: it may be changed in place until it
    is flushed. A flushed value has been handed on, so unless its serde says that values are
    immutable, the cache keeps its bytes and decodes them anew when the key is loaded again. For
    the same reason reads from outside (`get`, `scan`) give bytes, never the object.

    **For other layers** it is a bytes store: a read-through, write-back cache.

    Args:
        name: the store's name.
        inner: the layer below.
        value_format: how values are stored below.
        topic: handed to serdes, the changelog's name.
        key_serde: for the keys of flushed changes.
        value_serde: for values.
        budget: the bytes that the caches of the thread share.
        context: the record being processed, for writes through `put`.
    """

    def __init__(
        self,
        name: str,
        inner: BytesStore,
        value_format: ValueFormat,
        *,
        topic: str,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        budget: CacheBudget,
        context: RecordAtHand,
    ) -> None:
        self.name = name
        #: The side that everything here is made of.
        self.code = code = cache_code(budget.speedups)
        #: Values as objects, by serialized key. See the rules above.
        self.entries: MutableMapping[bytes, CachedEntry] = code.make_table()
        #: The entries with changes, in any order; `dirty_seq` has the order.
        self.dirty: list[CachedEntry] = []
        #: The running number of changes and reads.
        self.seq = 0
        #: Called when all changes have been written below.
        self.on_flush: Callable[[], None] = lambda: None
        #: Whether somebody forwards what a flush returns (Kafka Streams' flush listener).
        self.forwards_changes = False
        #: Whether flushed changes tell what they replace.
        self.sends_old_values = False
        #: Whether the layer below forgets keys by itself, so that scans must look for them here.
        self.remembers_more = False
        self.size_bytes = 0
        # Told of each key that comes or goes; nobody by default.
        self._watcher: KeyWatcher | None = None
        # Entries whose value is still or again in bytes, so that nobody can change it.
        self._resting: dict[bytes, CachedEntry] = {}
        self._eviction = code.make_order()
        self._inner = inner
        self._codec = EntryCodec(value_format, value_serde, topic)
        self._topic = topic
        self._key_serde = key_serde
        self._budget = budget
        self._context = context
        self._loads = 0
        # Until the next flush: whether some changes are bytes, and whether some replace what was
        # not read.
        self._has_raw_changes = self._has_unread = False
        self._value_bytes_estimate = _FIRST_VALUE_BYTES_ESTIMATE
        self._growth_bytes = 0
        self._estimated_at_seq = 0
        self.approximate_num_entries = inner.approximate_num_entries
        budget.add(self)

    # --- for operators -------------------------------------------------------------------------

    def load(self, key_bytes: bytes) -> CachedEntry:
        """The entry of a key that `entries` does not have, with its value decoded.

        Raises:
            SerializationError: the stored value does not fit the value serde.
        """
        entry = self._resting.get(key_bytes)
        if entry is None:
            stored = self._inner.get(key_bytes)
            if stored is None:
                entry = self.entries[key_bytes] = self._new(key_bytes, None)
                return entry
            entry = self._add(key_bytes, stored)
        self._codec.decode_entries((entry,))
        del self._resting[key_bytes]
        self.entries[key_bytes] = entry
        return entry

    def load_many(self, keys: list[bytes]) -> None:
        """Load distinct keys that `entries` does not have: 0.5 us for one that is new, not 1 us."""
        resting = self._resting
        unknown = [key for key in keys if key not in resting] if resting else keys
        stored = self._inner.get_many(unknown)
        if len(unknown) < len(keys) or stored.count(None) < len(unknown):
            for key, found in zip(unknown, stored, strict=True):
                if found is not None:
                    self._add(key, found)
            known = [resting[key] for key in keys if key in resting]
            self._codec.decode_entries(known)
            self.entries.update((entry.key_bytes, resting.pop(entry.key_bytes)) for entry in known)
            unknown = [key for key, found in zip(unknown, stored, strict=True) if found is None]
        self._add_new(unknown)

    def overwrite(self, key_bytes: bytes, *, is_absent: bool = False) -> CachedEntry:
        """The entry of a key that `entries` does not have, to be given a value at once.

        Unlike `load` this reads nothing from below: a flush does, if it needs to.

        Args:
            key_bytes: the serialized key.
            is_absent: whether it is known that the layers below do not have it.
        """
        entry = self._resting.pop(key_bytes, None)
        if entry is None:
            entry = self._new(key_bytes, None)
            if not is_absent:
                entry.stored = UNREAD
                self._has_unread = True
        entry.raw = None
        self.entries[key_bytes] = entry
        return entry

    def change(
        self,
        entry: CachedEntry,
        value: Any,
        timestamp: int,
        place: TopicPartition | None,
        offset: int,
        headers: Headers = (),
    ) -> None:
        """Change an entry of `entries` by the rules of the class, outside of a hot loop."""
        self.seq += 1
        if entry.change(value, timestamp, self.seq, place, offset, headers):
            self.dirty.append(entry)

    def flush(self, first: CachedEntry | None = None) -> FlushedChanges | None:
        """Write all changes to the layer below, in the order in which keys became dirty last.

        Args:
            first: a dirty entry to begin with, for eviction.

        Returns:
            What is to be forwarded downstream; None if there is nothing, or nobody forwards.

        Raises:
            SerializationError: a value does not fit the value serde; nothing was flushed.
        """
        if not self.dirty:
            return None
        entries = self.code.in_order(self.dirty)
        if first is not None:
            entries.remove(first)
            entries.insert(0, first)
        changed = ChangedEntries(entries, self.code.columns_of)
        self._codec.encode(changed, some_are_raw=self._has_raw_changes)
        changes = None
        if self.forwards_changes:
            changed = self._drop_passing(changed)
            changes = self._changes(changed)
        self._inner.put_many(changed.key_bytes, changed.stored, changed.timestamps)
        self.dirty.clear()
        self.on_flush()
        self._settle(changed)
        return changes

    def evict(self) -> FlushedChanges | None:
        """Give back what exceeds the budget, least recently used keys first.

        To be called after each batch of writes. Evicting a changed entry flushes it first and then
        all others, as in Kafka Streams.

        Returns:
            As for `flush`.
        """
        if self.seq - self._estimated_at_seq >= _CHANGES_PER_ESTIMATE:
            self._estimate_growth()
        excess = self._budget.excess_bytes()
        changes = None
        while excess > 0:
            excess -= self._remove_many(self._eviction.pop_unchanged(excess))
            changed = self._eviction.pop() if excess > 0 else None
            if changed is None:
                break
            changes = self.flush(first=changed)
            excess = self._budget.excess_bytes()
            if changed.used_seq != GONE:
                excess -= self._remove_many([changed])
        return changes

    # --- as a bytes store ----------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        """The stored form of a key's latest value; a value that is read is cached."""
        entry = self.entries.get(key) or self._resting.get(key)
        if entry is None:
            stored = self._inner.get(key)
            if stored is not None and self._has_room():
                self._add(key, stored)
            return stored
        self.seq += 1
        entry.used_seq = self.seq
        return self._codec.raw(entry)

    def peek(self, key: bytes) -> bytes | None:
        """The same for who only looks: nothing is cached, and nothing counts as used."""
        # Below the cache of a task that follows its changelog, values change unseen.
        entry = self.entries.get(key) or self._resting.get(key)
        return self._inner.get(key) if entry is None else self._codec.raw(entry)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The stored form of each key's latest value."""
        entries, resting = self.entries, self._resting
        missing = [key for key in keys if key not in entries and key not in resting]
        # One call below: 1.3 us a key instead of 2.
        below = dict(zip(missing, self._inner.get_many(missing), strict=True)) if missing else {}
        found: list[bytes | None] = []
        for key in keys:
            if key in below and key not in entries and key not in resting:
                found.append(below[key])
                if below[key] is not None and self._has_room():
                    self._add(key, below[key])
            else:
                found.append(self.get(key))
        return found

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Replace a key's value, as of the record being processed."""
        entry = self.entries.pop(key, None) or self._resting.get(key)
        if entry is None:
            # What lies below is read when a flush needs it; most writes replace it unseen.
            entry = self._add(key, None)
            entry.stored = UNREAD
            self._has_unread = True
        self._resting[key] = entry
        self._has_raw_changes = True
        size = len(key) + len(value or b"") + ENTRY_OVERHEAD_BYTES
        self.size_bytes += size - entry.size
        entry.size = size
        entry.raw = value
        context = self._context
        self.change(entry, None, timestamp, context.place, context.offset, context.headers)

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        """Replace the values of many keys, in order."""
        for key, value, timestamp in zip(keys, values, timestamps, strict=True):
            self.put(key, value, timestamp)

    def scan(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> ByteItems:
        """The pairs whose key is in `[start, end)`, changes included, as they are now."""
        every = chain(self.entries.values(), self._resting.values())
        above = [
            (entry.key_bytes, self._codec.raw(entry))
            for entry in (every if self.remembers_more else self.dirty)
            if (start is None or entry.key_bytes >= start)
            and (end is None or entry.key_bytes < end)
        ]
        above.sort(reverse=reverse)
        return merged(above, self._inner.scan(start, end, reverse=reverse), reverse=reverse)

    def statistics(self) -> CacheStatistics:
        """What the cache holds now."""
        entries = len(self.entries) + len(self._resting)
        return CacheStatistics(entries, len(self.dirty), self.size_bytes, self._loads)

    def clear(self) -> None:
        """Drop everything, changes included: what lies below is about to change."""
        for entry in (*self.entries.values(), *self._resting.values()):
            entry.used_seq = GONE
        self.entries.clear()
        self._resting.clear()
        self.dirty.clear()
        self._eviction.clear()
        self.size_bytes = self._growth_bytes = 0
        self._has_raw_changes = self._has_unread = False

    def close(self) -> None:
        """Drop everything and leave the budget to others."""
        self.clear()
        self._budget.remove(self)

    # --- parts ---------------------------------------------------------------------------------

    def _add(self, key: bytes, stored: bytes | None) -> CachedEntry:
        entry = self._resting[key] = self._new(key, stored)
        return entry

    def _new(self, key: bytes, stored: bytes | None) -> CachedEntry:
        """An entry that is counted, to be put into `entries` or `_resting`."""
        value_bytes = self._value_bytes_estimate if stored is None else len(stored)
        size = len(key) + value_bytes + ENTRY_OVERHEAD_BYTES
        self.seq += 1
        self._loads += 1
        entry = self.code.make_entry(key, stored, size, self.seq)
        self.size_bytes += size
        self._eviction.add(entry)
        if self._watcher is not None:
            self._watcher.note(key)
        return entry

    def _add_new(self, keys: list[bytes]) -> None:
        """Entries without a value of keys that are nowhere yet."""
        extra = self._value_bytes_estimate + ENTRY_OVERHEAD_BYTES
        new = self.code.new_entries(keys, extra, self.seq + 1)
        self.seq += len(new)
        self._loads += len(new)
        self.size_bytes += sum(map(len, keys)) + extra * len(new)
        self.entries.update(zip(keys, new, strict=True))
        self._eviction.add_many(new)
        if self._watcher is not None:
            for key in keys:
                self._watcher.note(key)

    def _has_room(self) -> bool:
        """Make room for a value that was read, at the cost of unchanged values only.

        Giving up a changed one flushes, and what a flush returns is for the writer to forward.
        """
        if self._budget.excess_bytes() < 0:
            return True
        for _ in range(_EVICTED_BY_READ):
            entry = self._eviction.pop()
            if entry is None:
                break
            if entry.dirty_seq:
                self._eviction.add(entry)
            else:
                self._remove(entry)
        return self._budget.excess_bytes() < 0

    def _remove(self, entry: CachedEntry) -> None:
        self._remove_many([entry])

    def _remove_many(self, entries: list[CachedEntry]) -> int:
        """Give entries up; the bytes that were counted for them."""
        size_bytes, rested = self.code.remove_entries(self.entries, entries)
        for entry in rested:
            del self._resting[entry.key_bytes]
        if self._watcher is not None:
            for entry in entries:
                self._watcher.unnote(entry.key_bytes)
        self.size_bytes -= size_bytes
        return size_bytes

    def _drop_passing(self, changed: ChangedEntries) -> ChangedEntries:
        """Leave out what came and went between two flushes: nobody below has heard of it."""
        anew, old = self.remembers_more, self.sends_old_values
        # Most often nothing is deleted and nothing is empty: all() is quicker than a search.
        deletes = not all(changed.stored) and None in changed.stored
        if (deletes or old) and (self._has_unread or anew):
            self._read_stored(
                entry
                for entry, new in zip(changed.entries, changed.stored, strict=True)
                if (anew or entry.stored is UNREAD) and (old or new is None)
            )
        if not deletes:
            return changed
        known: list[bool] = []
        for entry, new in zip(changed.entries, changed.stored, strict=True):
            known.append(new is not None or entry.stored is not None)
            if not known[-1]:
                entry.dirty_seq = 0
                self._remove(entry)
        return changed.select(known)

    def _read_stored(self, entries: Iterable[CachedEntry]) -> None:
        unread = list(entries)
        if unread:
            stored = self._inner.get_many([entry.key_bytes for entry in unread])
            for entry, found in zip(unread, stored, strict=True):
                entry.stored = found

    def _changes(self, changed: ChangedEntries) -> FlushedChanges | None:
        entries, stored, new_values = changed.entries, changed.stored, changed.values
        if not entries:
            return None
        if not all(stored):
            pairs = zip(new_values, stored, strict=True)
            new_values = [None if new is None else value for value, new in pairs]
        if self._has_raw_changes:
            for index, entry in enumerate(entries):
                if entry.raw is not None:
                    new_values[index] = self._codec.decode([entry.raw])[0]
        keys = self._key_serde.deserialize_many(self._topic, changed.key_bytes)
        wants_old = self.sends_old_values
        old_values = self._codec.decode([entry.stored for entry in entries]) if wants_old else None
        return changed.flushed(keys, new_values, old_values)

    def _settle(self, changed: ChangedEntries) -> None:
        """Make flushed entries clean; those without a value are given up."""
        entries, stored = changed.entries, changed.stored
        if not all(stored) and None in stored:
            for entry, new in zip(entries, stored, strict=True):
                if new is None:
                    entry.dirty_seq, entry.headers, entry.stored = 0, (), None
                    self._remove(entry)
            entries = [entry for entry in entries if entry.dirty_seq]
            stored = [new for new in stored if new is not None]
        settle = self.code.settle_entries
        grown = settle(entries, stored, ENTRY_OVERHEAD_BYTES)  # type: ignore[arg-type]
        if not self._codec.immutable:
            self._rest(entries, stored)
        self.size_bytes += grown - self._growth_bytes
        self._growth_bytes = 0
        self._has_raw_changes = self._has_unread = False
        if changed.stored:
            self._value_bytes_estimate = sum(map(len, stored)) // len(changed.stored)  # type: ignore[arg-type]
        if len(self._eviction) > 2 * (len(self.entries) + len(self._resting)) + 1_000:
            self._eviction.forget_gone()

    def _rest(self, flushed: list[CachedEntry], stored: list[bytes | None]) -> None:
        """Keep only the bytes of values that others may hold and change now."""
        entries, resting = self.entries, self._resting
        for entry, new in zip(flushed, stored, strict=True):
            key = entry.key_bytes
            if key in entries:
                resting[key] = entries.pop(key)
                entry.value = None
                entry.raw = new

    def _estimate_growth(self) -> None:
        """Measure some changed values: what grows must count before it is flushed."""
        self._estimated_at_seq = self.seq
        step = len(self.dirty) // _ESTIMATE_SAMPLE + 1
        grown = 0
        for entry in self.dirty[::step]:
            size = len(entry.key_bytes) + len(self._codec.raw(entry) or b"") + ENTRY_OVERHEAD_BYTES
            grown += size + headers_bytes(entry.headers) - entry.size
        previous = self._growth_bytes
        self._growth_bytes = max(0, grown * step)
        self.size_bytes += self._growth_bytes - previous
