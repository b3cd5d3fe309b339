"""The layers that log each change of a store."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.state.changelogs.store_changelog import ProcessorRecordContext, StoreChangelog
from millstream.state.storage.bytes_store import BytesStore
from millstream.state.storage.lru import LRUStore
from millstream.state.storage.timed_store import TimedStore


class _LoggedWrites:
    """Logs each write after applying it, in the order of the calls.

    The read methods are those of the layer below, so reads have no overhead.

    Args:
        changelog: the store's changelog, which must be enabled.
    """

    def __init__(self, inner: BytesStore | TimedStore, changelog: StoreChangelog) -> None:
        self._write = inner.put
        self._write_many = inner.put_many
        self._log = changelog.log_stored
        self._log_many = changelog.log_stored_many
        self.get = inner.get
        self.get_many = inner.get_many
        self.approximate_num_entries = inner.approximate_num_entries

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        self._write(key, value, timestamp)
        self._log(key, value, timestamp)

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        """Write and log many keys.

        Each write gets its own changelog record, even if a key is repeated.
        """
        self._write_many(keys, values, timestamps)
        self._log_many(keys, values, timestamps)


class LoggedStore(_LoggedWrites):
    """Logs the changes of a key-value store.

    The changelog record contains the value without its timestamp prefix, and the timestamp of the
    write: in a store with timestamps, the stored timestamp
    (`ChangeLoggingTimestampedKeyValueBytesStore`), otherwise that of the record being processed.
    """

    def __init__(self, inner: BytesStore, changelog: StoreChangelog) -> None:
        super().__init__(inner, changelog)
        self.scan = inner.scan


class LoggedLRUStore(LoggedStore):
    """Logs the changes of an LRU store, preceded by the deletions of evicted keys.

    Args:
        context: the record being processed; its timestamp is used for the deletions.
    """

    def __init__(
        self, inner: LRUStore, changelog: StoreChangelog, context: ProcessorRecordContext
    ) -> None:
        super().__init__(inner, changelog)
        self._put_evicting = inner.put_evicting
        self._changelog = changelog
        self._context = context

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        self._log_evicted(self._put_evicting(key, value))
        self._log(key, value, timestamp)

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        """Write and log many keys, one by one."""
        for key, value, timestamp in zip(keys, values, timestamps, strict=True):
            self.put(key, value, timestamp)

    def put_all(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        """Write many keys, then log them all. Follows Kafka Streams' `putAll`."""
        for key, value in zip(keys, values, strict=True):
            self._log_evicted(self._put_evicting(key, value))
        self._log_many(keys, values, timestamps)

    def _log_evicted(self, key: bytes | None) -> None:
        if key is not None:
            self._changelog.log(key, None, self._context.timestamp)


class LoggedWindows(_LoggedWrites):
    """Logs the changes of a window or session store.

    Follows Kafka Streams: writes that are too late for the store are logged as well, and changelog
    records have the stored key.
    """

    def __init__(self, inner: TimedStore, changelog: StoreChangelog) -> None:
        super().__init__(inner, changelog)
        self._inner = inner
        self.read_key = inner.read_key
        self.read_keys = inner.read_keys
        self.sort_key_of = inner.sort_key_of

    @property
    def observed_time(self) -> int:
        return self._inner.observed_time

    def remove(self, key: bytes, timestamp: int) -> None:
        self._inner.remove(key, timestamp)
        self._log(key, None, timestamp)
