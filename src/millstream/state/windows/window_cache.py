"""The record cache of a window or session store, with lookups of a key's windows.

Corresponds to Kafka Streams' `CachingWindowStore` and `CachingSessionStore`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

from millstream.native import compiled
from millstream.record import Headers, TopicPartition
from millstream.serdes import Serde
from millstream.state.caches.cache_entries import (
    ENTRY_OVERHEAD_BYTES,
    UNREAD,
    CacheBudget,
    CachedEntry,
    EvictionOrder,
)
from millstream.state.caches.record_cache import RecordCache
from millstream.state.changelogs.store_changelog import ProcessorRecordContext
from millstream.state.keyvalue.key_value_table import TimedValue
from millstream.state.storage.bytes_store import ByteItems
from millstream.state.storage.iterators import merged
from millstream.state.storage.timed_store import StoredPairs, TimedStore, from_stored_key
from millstream.state.storage.value_formats import ValueFormat
from millstream.state.windows.key_index import KeyIndex, PureKeyIndex
from millstream.state.windows.window_keys import SESSIONS, KeyLayout


class WindowCache(RecordCache):
    """A record cache whose keys are the stored keys of windows or sessions.

    Operators that compute their windows use `entries` and `load`, as in any `RecordCache`.
    `WindowTable` and `SessionTable` use the other methods.

    Follows Kafka Streams: cached entries stay visible after they have expired in the store below,
    and reads do not add entries to the cache.

    Args:
        key_serde: converts stored keys to windowed keys, for flushed changes.
    """

    def __init__(
        self,
        name: str,
        inner: TimedStore,
        value_format: ValueFormat,
        layout: KeyLayout,
        *,
        topic: str,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        budget: CacheBudget,
        context: ProcessorRecordContext,
    ) -> None:
        super().__init__(
            name,
            inner,  # type: ignore[arg-type]  # has all methods but `scan`
            value_format,
            topic=topic,
            key_serde=key_serde,
            value_serde=value_serde,
            budget=budget,
            context=context,
        )
        # Cached windows may have expired in the store below.
        self.may_outlive_store = True
        self._below = inner
        self._read_below = inner.read_key
        self._layout = layout
        self.sort_key_of = inner.sort_key_of
        # Created by the first query.
        self._index: KeyIndex | None = None

    @property
    def observed_time(self) -> int:
        return self._below.observed_time

    # --- for the session loop in C -------------------------------------------------------------

    def native_parts(self) -> tuple[KeyIndex, EvictionOrder, dict[bytes, CachedEntry]]:
        """Return the key index, the eviction order and the entries with encoded values."""
        return self._key_index(), self._eviction, self._encoded

    @property
    def new_entry_bytes(self) -> int:
        """The size of a new entry in addition to its key."""
        return self._value_bytes_estimate + ENTRY_OVERHEAD_BYTES

    def on_added(self, entries: int, size_bytes: int) -> None:
        """Count new entries that were already added."""
        self._loads += entries
        self.size_bytes += size_bytes

    # --- objects ---------------------------------------------------------------------------------

    def read(self, stored_key: bytes) -> TimedValue | None:
        """Return the value of a stored key, for serdes with immutable values.

        The cache and its readers share the value.
        """
        entry = self.entries.get(stored_key) or self._encoded.get(stored_key)
        if entry is None:
            raw = self._below.get(stored_key)
            return None if raw is None else self._codec.split(raw)
        self.seq += 1
        entry.used_seq = self.seq
        return self.value_of(entry)

    def value_of(self, entry: CachedEntry) -> TimedValue | None:
        """Return the value of an entry, decoded if needed; None if it was deleted."""
        if entry.raw is not None:
            return self._codec.split(entry.raw)
        return None if entry.value is None else (entry.value, entry.timestamp)

    def windows_of(
        self, key: bytes, first: int, last: int
    ) -> list[tuple[bytes, CachedEntry | None, bytes]]:
        """Return a key's entries in a time range, in ascending order.

        Deleted entries are omitted.

        Args:
            first: the earliest window start or session end.

        Returns:
            For each entry: its stored key, the cached entry or None, and the value from the store
            below if there is no cached entry.
        """
        below = self._read_below(key, first, last)
        cached = self._key_index().of_key(key, first, last)
        if not cached:
            return [(stored, None, value) for stored, value in below] if below else []
        entries, encoded = self.entries, self._encoded
        found: list[tuple[bytes, CachedEntry | None, bytes]] = []
        if below:
            known = set(cached)
            found = [(stored, None, value) for stored, value in below if stored not in known]
        for stored in cached:
            entry = entries.get(stored) or encoded[stored]
            if entry.value is not None or entry.raw is not None:
                found.append((stored, entry, b""))
        if self._layout is SESSIONS and len(found) > 1:
            found.sort(key=lambda each: self.sort_key_of(each[0]))
        elif below:
            found.sort(key=_stored_key)
        return found

    def write(
        self,
        stored_key: bytes,
        value: Any,
        timestamp: int,
        place: TopicPartition | None,
        offset: int,
        headers: Headers,
        *,
        is_absent: bool = False,
    ) -> None:
        """Replace a value (None deletes it); a flush reads the stored value if needed.

        Args:
            is_absent: whether the window is known to be absent from the store.
        """
        entry = self.entries.get(stored_key) or self.overwrite(stored_key, is_absent=is_absent)
        self.change(entry, value, timestamp, place, offset, headers)

    def replace(
        self,
        old: bytes,
        stored_key: bytes,
        value: Any,
        timestamp: int,
        place: TopicPartition | None,
        offset: int,
        headers: Headers,
    ) -> None:
        """Delete the value of a window and write another window of the same key.

        A growing session gets a new stored key with each record. If the old window was neither
        written nor forwarded, its entry is reused. Without this, growing sessions would leave
        deleted entries behind, which a flush would only skip.
        """
        is_absent = old != stored_key
        if is_absent and not self._rekey(old, stored_key):
            self.write(old, None, timestamp, place, offset, headers)
        self.write(stored_key, value, timestamp, place, offset, headers, is_absent=is_absent)

    # --- bytes -----------------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        entry = self.entries.get(key) or self._encoded.get(key)
        if entry is None:
            return self._below.get(key)
        self.seq += 1
        entry.used_seq = self.seq
        return self._codec.raw(entry)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def read_key(self, key: bytes, first: int, last: int) -> StoredPairs:
        raw = self._codec.raw
        return [
            (stored, value if entry is None else raw(entry) or b"")
            for stored, entry, value in self.windows_of(key, first, last)
        ]

    def read_keys(
        self,
        lowest: bytes | None,
        highest: bytes | None,
        first: int,
        last: int,
        *,
        reverse: bool = False,
        begin: bytes | None = None,
    ) -> ByteItems:
        """Iterate over a key range in a time range; this scans all cached entries."""
        key_of, time_of = self._layout.key_of, self._layout.time_of
        sort_key_of = partial(self.sort_key_of, every_key=lowest is None and highest is None)
        above = [
            (stored, self._codec.raw(entry))
            for entries in (self.entries, self._encoded)
            for stored, entry in entries.items()
            if first <= time_of(stored) <= last
            and (lowest is None or key_of(stored) >= lowest)
            and (highest is None or key_of(stored) <= highest)
        ]
        if begin is not None:
            above = from_stored_key(above, begin, sort_key_of, reverse)
        below = self._below.read_keys(lowest, highest, first, last, reverse=reverse, begin=begin)
        above.sort(key=lambda pair: sort_key_of(pair[0]), reverse=reverse)
        return merged(above, below, reverse=reverse, sort_key_of=sort_key_of)

    def remove(self, key: bytes, timestamp: int) -> None:
        self.put(key, None, timestamp)

    def clear(self) -> None:
        super().clear()
        self._index = self._key_listener = None

    # --- internals -------------------------------------------------------------------------------

    def _key_index(self) -> KeyIndex:
        if self._index is None:
            make_index = compiled(PureKeyIndex, "KeyIndex", self._budget.speedups)
            self._index = self._key_listener = make_index(
                self._layout, lambda: chain(self.entries, self._encoded)
            )
        return self._index

    def _rekey(self, old: bytes, stored_key: bytes) -> bool:
        """Reuse a changed entry for another stored key; return whether this was possible.

        This requires that the entry was neither written nor forwarded.
        """
        entries = self.entries
        entry = entries.get(old)
        if (
            entry is None
            or not entry.dirty_seq
            or not self.forwards_changes
            or entry.stored not in (None, UNREAD)
            or stored_key in entries
            or stored_key in self._encoded
        ):
            return False
        if entry.stored is UNREAD:
            entry.stored = self._below.get(old)
            if entry.stored is not None:
                return False
        del entries[old]
        entry.key_bytes = stored_key
        entries[stored_key] = entry
        if self._index is not None:
            self._index.remove(old)
            self._index.add(stored_key)
        return True


def _stored_key(found: tuple[bytes, Any, bytes]) -> bytes:
    return found[0]
