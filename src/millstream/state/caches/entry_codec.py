"""The values of cached entries, as objects and as the bytes that are stored for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.serdes import Serde
from millstream.state.caches.cache_entries import CachedEntry, ChangedEntries
from millstream.state.storage.value_formats import ValueFormat


class EntryCodec:
    """Makes objects of what is stored, and the other way round.

    Args:
        value_format: how values are stored.
        value_serde: for values.
        topic: handed to the serde, the changelog's name.
    """

    def __init__(self, value_format: ValueFormat, value_serde: Serde[Any], topic: str) -> None:
        self.immutable = value_serde.immutable
        self._format = value_format
        self._serde = value_serde
        self._topic = topic

    def split(self, raw: bytes) -> tuple[Any, int]:
        """The value of what is stored, and its timestamp."""
        data, timestamp = self._format.split(raw)
        return self._serde.deserialize(self._topic, data), timestamp

    def decode(self, stored: Sequence[bytes | None]) -> list[Any]:
        """The values of what is stored."""
        return self._serde.deserialize_many(self._topic, self._format.values_of(stored))

    def decode_entries(self, entries: Sequence[CachedEntry]) -> None:
        """Give entries the values of their bytes.

        Raises:
            SerializationError: the bytes of one do not fit the value serde; all stay as they are.
        """
        raws = [entry.raw for entry in entries]
        columns = zip(entries, self.decode(raws), self._format.timestamps(raws), strict=True)
        for entry, value, timestamp in columns:
            if entry.raw is not None:
                entry.value = value
                if self._format.timestamped:
                    entry.timestamp = timestamp
                entry.raw = None

    def encode(self, changed: ChangedEntries, *, some_are_raw: bool) -> None:
        """Find out what is to be stored for changed entries.

        Args:
            changed: the entries.
            some_are_raw: whether some may have bytes instead of a value.
        """
        datas = self._serde.serialize_many(self._topic, changed.values)
        stored = changed.stored = self._format.join_many(datas, changed.timestamps)
        if some_are_raw:
            for index, entry in enumerate(changed.entries):
                if entry.raw is not None:
                    stored[index] = entry.raw

    def raw(self, entry: CachedEntry) -> bytes | None:
        """What is, or is to be, stored for an entry."""
        if entry.raw is not None:
            return entry.raw
        if not entry.dirty_seq:
            return entry.stored
        return self._format.join(self._serde.serialize(self._topic, entry.value), entry.timestamp)
