"""The layer that writes each change of a window or session store to its changelog as well."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.state.changelogs.store_changelog import StoreChangelog
from millstream.state.storage.timed_store import TimedStore


class LoggedWindows:
    """Hands each write to the changelog, after the write itself, in the order of the calls.

    Follows Kafka Streams: what comes too late for the store is logged all the same, and the key of
    the changelog record is the stored key.

    Args:
        inner: the layer below.
        changelog: of the store, enabled.
    """

    def __init__(self, inner: TimedStore, changelog: StoreChangelog) -> None:
        self._inner = inner
        self._log = changelog.log_stored
        self._log_many = changelog.log_stored_many
        # Reads are the lower layer's own methods: this layer costs them nothing.
        self.get = inner.get
        self.get_many = inner.get_many
        self.read_key = inner.read_key
        self.read_keys = inner.read_keys
        self.place_of = inner.place_of
        self.approximate_num_entries = inner.approximate_num_entries

    @property
    def observed_time(self) -> int:
        """The latest time that was put, -1 at first."""
        return self._inner.observed_time

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Write one stored key and log it."""
        self._inner.put(key, value, timestamp)
        self._log(key, value, timestamp)

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        """Write many stored keys and log them: one changelog record each."""
        self._inner.put_many(keys, values, timestamps)
        self._log_many(keys, values, timestamps)

    def remove(self, key: bytes, timestamp: int) -> None:
        """Delete one stored key and log it."""
        self._inner.remove(key, timestamp)
        self._log(key, None, timestamp)
