"""Versioned stores for processors."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from millstream.record import VersionedRecord
from millstream.serdes import Serde
from millstream.state.changelogs.store_changelog import ProcessorRecordContext
from millstream.state.keyvalue.typed_store import TypedStore
from millstream.state.versioned.versioned_table import VersionedTable
from millstream.state.versioned.versions import NOT_PUT, VALID_TO_UNDEFINED

K = TypeVar("K")
V = TypeVar("V")


class VersionedKeyValueStore(TypedStore[K, VersionedTable], Generic[K, V]):
    """A store of versions of values.

    Each version is valid from its timestamp until that of the next one. This is Kafka Streams'
    `VersionedKeyValueStore` (KIP-889). Versions may be put in any order, unless they are older than
    the newest version in the store by more than the history retention. Reads can go equally far
    back. The latest version of a key is always kept. The store is never cached.

    The examples of the methods start with an empty store `prices` of strings and integers.

    Example:
        >>> prices = Stores.versioned_builder(
        ...     Stores.persistent_versioned("prices", timedelta(hours=1)), STRING, LONG
        ... )
        >>> with MockProcessorContext() as context:
        ...     store = context.add_state_store(prices)
        ...     until = store.put("tea", 3, 1_000), store.put("tea", 4, 9_000)
        ...     store.get("tea").value, store.get("tea", as_of=5_000).value
        (4, 3)
    """

    #: Returned by `put` for the latest version of a key.
    VALID_TO_UNDEFINED = VALID_TO_UNDEFINED
    #: Returned by `put` for a version that was too late.
    NOT_PUT = NOT_PUT

    def __init__(
        self,
        table: VersionedTable,
        *,
        topic: str,
        key_serde: Serde[Any],
        persistent: bool,
        context: ProcessorRecordContext,
    ) -> None:
        super().__init__(table.name, table, topic=topic, key_serde=key_serde, persistent=persistent)
        self._context = context

    def put(self, key: K, value: V | None, timestamp: int) -> int:
        """Put a version, or replace the one with the same timestamp.

        Args:
            value: None means that the key has no value from that time on.
            timestamp: the start of the version's validity, in milliseconds since the epoch.

        Returns:
            The end of the version's validity: the timestamp of the next newer version of the key,
            or `VALID_TO_UNDEFINED` (-1) if the version is the latest. `NOT_PUT` (-2**63) if the
            version was too late and was counted as dropped.

        Raises:
            InvalidStateStoreError: the store is closed. All methods raise this.
            NullKeyError: the key is None. All methods raise this.

        Example:
            >>> prices.put("tea", 4, 9_000), prices.put("tea", 3, 1_000)
            (-1, 9000)
        """
        valid_to = self._open().put(self._key(key), value, timestamp)
        self.position.update(self._context)
        return valid_to

    def delete(self, key: K, timestamp: int) -> VersionedRecord | None:
        """Put a version without a value.

        Args:
            timestamp: the time from which the key has no value, in milliseconds since the epoch.

        Returns:
            The version that was valid at that time; None if there was none or the deletion was too
            late.

        Example:
            >>> until = prices.put("tea", 3, 1_000)
            >>> prices.delete("tea", 5_000)
            VersionedRecord(value=3, timestamp=1000, valid_to=None)
            >>> prices.get("tea"), prices.get("tea", as_of=4_999).value
            (None, 3)
        """
        table, key_bytes = self._open(), self._key(key)
        old = table.get_as_of(key_bytes, timestamp)
        self.position.update(self._context)
        if table.put(key_bytes, None, timestamp) == NOT_PUT or old is None:
            return None
        return VersionedRecord(old.value, old.timestamp)

    def get(self, key: K, as_of: int | None = None) -> VersionedRecord | None:
        """Return the latest version of a key, or the one valid at a given time.

        Follows Kafka Streams: the result does not include the end of the validity.

        Args:
            as_of: the time, in milliseconds since the epoch; None for the latest version.

        Returns:
            None if there is no such version, if it was deleted, or if `as_of` is before the
            retained history and the latest version was not valid yet.

        Example:
            >>> until = prices.put("tea", 3, 1_000), prices.put("tea", 4, 9_000)
            >>> prices.get("tea")
            VersionedRecord(value=4, timestamp=9000, valid_to=None)
            >>> prices.get("tea", as_of=5_000)
            VersionedRecord(value=3, timestamp=1000, valid_to=None)
        """
        table, key_bytes = self._open(), self._key(key)
        if as_of is None:
            latest = table.get(key_bytes)
            return None if latest is None else VersionedRecord(*latest)
        found = table.get_as_of(key_bytes, as_of)
        return None if found is None else VersionedRecord(found.value, found.timestamp)
