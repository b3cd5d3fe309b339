"""The record cache of a window or session store: one that can tell which windows of a key it holds.

Kafka Streams' `CachingWindowStore` and `CachingSessionStore`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

from millstream.compiled import compiled
from millstream.record import Headers, TopicPartition
from millstream.serdes import Serde
from millstream.state.caches.cache_entries import (
    ENTRY_OVERHEAD_BYTES,
    UNREAD,
    CacheBudget,
    CachedEntry,
)
from millstream.state.caches.eviction import EvictionOrder
from millstream.state.caches.record_cache import RecordCache
from millstream.state.changelogs.record_at_hand import RecordAtHand
from millstream.state.keyvalue.table import TimedValue
from millstream.state.storage.bytes_store import ByteItems
from millstream.state.storage.iterators import merged
from millstream.state.storage.timed_store import StoredPairs, TimedStore, from_place
from millstream.state.storage.value_formats import ValueFormat
from millstream.state.windows.key_index import KeyIndex, PureKeyIndex
from millstream.state.windows.window_keys import SESSIONS, KeyLayout


class WindowCache(RecordCache):
    """A record cache whose keys are those of windows or sessions.

    Operators that know the windows they want use `entries` and `load`, as in any `RecordCache`.
    `WindowTable` and `SessionTable` use the rest.

    Follows Kafka Streams: what is cached stays visible when it is too old for the store below, and
    reading alone caches nothing.

    Args:
        name: the store's name.
        inner: the layer below.
        value_format: how values are stored below.
        layout: of the stored keys.
        topic: handed to serdes, the changelog's name.
        key_serde: stored keys to windowed keys, for flushed changes.
        value_serde: for values.
        budget: the bytes that the caches of the thread share.
        context: the record being processed, for writes through `put`.
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
        context: RecordAtHand,
    ) -> None:
        super().__init__(
            name,
            inner,  # type: ignore[arg-type]  # all but `scan`, which windows do not have
            value_format,
            topic=topic,
            key_serde=key_serde,
            value_serde=value_serde,
            budget=budget,
            context=context,
        )
        # What has expired below is gone for a flush, even if it is still cached.
        self.remembers_more = True
        self._below = inner
        self._read_below = inner.read_key
        self._layout = layout
        self.place_of = inner.place_of
        # Made when somebody asks for the first time.
        self._index: KeyIndex | None = None

    @property
    def observed_time(self) -> int:
        """The latest time that was written to the layer below."""
        return self._below.observed_time

    # --- for the loop of sessions in C ---------------------------------------------------------

    def parts(self) -> tuple[KeyIndex, EvictionOrder, dict[bytes, CachedEntry]]:
        """What knows the windows of a key, in which order entries are given up, and those whose
        values are in bytes."""
        return self._key_index(), self._eviction, self._resting

    @property
    def new_entry_bytes(self) -> int:
        """What a new entry counts beside its key."""
        return self._value_bytes_estimate + ENTRY_OVERHEAD_BYTES

    def came(self, entries: int, size_bytes: int) -> None:
        """So many new entries are there already, with so many bytes."""
        self._loads += entries
        self.size_bytes += size_bytes

    # --- objects ---------------------------------------------------------------------------------

    def read(self, stored_key: bytes) -> TimedValue | None:
        """The value of a stored key. It may be the cache's own object, so it must be immutable."""
        entry = self.entries.get(stored_key) or self._resting.get(stored_key)
        if entry is None:
            raw = self._below.get(stored_key)
            return None if raw is None else self._codec.split(raw)
        self.seq += 1
        entry.used_seq = self.seq
        return self.value_of(entry)

    def value_of(self, entry: CachedEntry) -> TimedValue | None:
        """The value of an entry, decoded if need be; None where it was deleted."""
        if entry.raw is not None:
            return self._codec.split(entry.raw)
        return None if entry.value is None else (entry.value, entry.timestamp)

    def windows_of(
        self, key: bytes, first: int, last: int
    ) -> list[tuple[bytes, CachedEntry | None, bytes]]:
        """What a key has within some time, ascending; without what was deleted.

        Args:
            key: the serialized key, without a window.
            first: the earliest time: of window starts, or of session ends.
            last: the latest time, included.

        Returns:
            For each its stored key, and its entry if it is cached, else its value below.
        """
        below = self._read_below(key, first, last)
        cached = self._key_index().of_key(key, first, last)
        if not cached:
            return [(stored, None, value) for stored, value in below] if below else []
        entries, resting = self.entries, self._resting
        found: list[tuple[bytes, CachedEntry | None, bytes]] = []
        if below:
            known = set(cached)
            found = [(stored, None, value) for stored, value in below if stored not in known]
        for stored in cached:
            entry = entries.get(stored) or resting[stored]
            if entry.value is not None or entry.raw is not None:
                found.append((stored, entry, b""))
        if self._layout is SESSIONS and len(found) > 1:
            found.sort(key=lambda each: self.place_of(each[0]))
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
        """Replace a value: what is stored below is read only when a flush needs it.

        Args:
            stored_key: of the window.
            value: the value; None deletes.
            timestamp: of the value.
            place: where the record was read that is the cause.
            offset: its offset.
            headers: its headers.
            is_absent: whether it is known that the store has no such window.
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
        """Delete what one window has, and write another one of the same key that is new.

        A session that grows gets a new stored key with every record. If nobody below or downstream
        knows of the old one, its entry serves for the new one: else it would leave a trail of
        deleted entries behind, which a flush would only pass over.
        """
        is_absent = old != stored_key
        if is_absent and not self._move(old, stored_key):
            self.write(old, None, timestamp, place, offset, headers)
        self.write(stored_key, value, timestamp, place, offset, headers, is_absent=is_absent)

    # --- bytes -----------------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        """The stored form of the latest value of a stored key."""
        entry = self.entries.get(key) or self._resting.get(key)
        if entry is None:
            return self._below.get(key)
        self.seq += 1
        entry.used_seq = self.seq
        return self._codec.raw(entry)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The stored form of the latest value of each stored key."""
        return [self.get(key) for key in keys]

    def read_key(self, key: bytes, first: int, last: int) -> StoredPairs:
        """What a key has within some time, ascending."""
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
        """What all keys between two have within some time. Looks at all that is cached."""
        key_of, time_of = self._layout.key_of, self._layout.time_of
        place_of = partial(self.place_of, every_key=lowest is None and highest is None)
        above = [
            (stored, self._codec.raw(entry))
            for entries in (self.entries, self._resting)
            for stored, entry in entries.items()
            if first <= time_of(stored) <= last
            and (lowest is None or key_of(stored) >= lowest)
            and (highest is None or key_of(stored) <= highest)
        ]
        if begin is not None:
            above = from_place(above, begin, place_of, reverse)
        below = self._below.read_keys(lowest, highest, first, last, reverse=reverse, begin=begin)
        above.sort(key=lambda pair: place_of(pair[0]), reverse=reverse)
        return merged(above, below, reverse=reverse, place_of=place_of)

    def remove(self, key: bytes, timestamp: int) -> None:
        """Delete one stored key."""
        self.put(key, None, timestamp)

    def clear(self) -> None:
        """Drop everything, changes included."""
        super().clear()
        self._index = self._watcher = None

    # --- parts -----------------------------------------------------------------------------------

    def _key_index(self) -> KeyIndex:
        if self._index is None:
            make_index = compiled(PureKeyIndex, "KeyIndex", self._budget.speedups)
            self._index = self._watcher = make_index(
                self._layout, lambda: chain(self.entries, self._resting)
            )
        return self._index

    def _move(self, old: bytes, stored_key: bytes) -> bool:
        """Let a changed entry be that of another stored key, if nobody can tell; whether it is."""
        entries = self.entries
        entry = entries.get(old)
        if (
            entry is None
            or not entry.dirty_seq
            or not self.forwards_changes
            or entry.stored not in (None, UNREAD)
            or stored_key in entries
            or stored_key in self._resting
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
            self._index.unnote(old)
            self._index.note(stored_key)
        return True


def _stored_key(found: tuple[bytes, Any, bytes]) -> bytes:
    return found[0]
