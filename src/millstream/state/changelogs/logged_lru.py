"""The layer that writes each change of a store that forgets to its changelog as well."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.state.changelogs.record_at_hand import RecordAtHand
from millstream.state.changelogs.store_changelog import StoreChangelog
from millstream.state.storage.lru import LRUStore


class LoggedLRUStore:
    """Hands each write to the changelog, and before it a deletion of the key that had to go.

    Args:
        inner: the layer below.
        changelog: of the store, enabled.
        context: the record being processed, which dates the deletions.
    """

    def __init__(self, inner: LRUStore, changelog: StoreChangelog, context: RecordAtHand) -> None:
        self._inner = inner
        self._changelog = changelog
        self._context = context
        self.get = inner.get
        self.get_many = inner.get_many
        self.scan = inner.scan
        self.approximate_num_entries = inner.approximate_num_entries

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Write one key and log it."""
        self._log_evicted(self._inner.put_evicting(key, value))
        self._changelog.log_stored(key, value, timestamp)

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        """Write many keys and log them, one after the other."""
        for key, value, timestamp in zip(keys, values, timestamps, strict=True):
            self.put(key, value, timestamp)

    def put_all(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        """Write many keys, then log them all. Follows Kafka Streams' `putAll`."""
        for key, value in zip(keys, values, strict=True):
            self._log_evicted(self._inner.put_evicting(key, value))
        self._changelog.log_stored_many(keys, values, timestamps)

    def _log_evicted(self, key: bytes | None) -> None:
        if key is not None:
            self._changelog.log(key, None, self._context.timestamp)
