"""The layer that writes each change of a key-value store to its changelog as well."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.state.changelogs.store_changelog import StoreChangelog
from millstream.state.storage.bytes_store import BytesStore


class LoggedStore:
    """Hands each write to the changelog, after the write itself, in the order of the calls.

    The changelog record has the stored value without its timestamp prefix, and the timestamp given
    with the write: that of the record being processed, but the stored one where a value is put
    into a store that keeps timestamps (`ChangeLoggingTimestampedKeyValueBytesStore`).

    Args:
        inner: the layer below.
        changelog: of the store, enabled.
    """

    def __init__(self, inner: BytesStore, changelog: StoreChangelog) -> None:
        self._write = inner.put
        self._write_many = inner.put_many
        self._log = changelog.log_stored
        self._log_many = changelog.log_stored_many
        # Reads are the lower layer's own methods: this layer costs them nothing.
        self.get = inner.get
        self.get_many = inner.get_many
        self.scan = inner.scan
        self.approximate_num_entries = inner.approximate_num_entries

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Write one key and log it."""
        self._write(key, value, timestamp)
        self._log(key, value, timestamp)

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        """Write many keys and log them: one changelog record each, repeated keys included."""
        self._write_many(keys, values, timestamps)
        self._log_many(keys, values, timestamps)
