"""Versioned stores as processors see them: objects in, versions out."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from millstream.record import VersionedRecord
from millstream.serdes import Serde
from millstream.state.changelogs.record_at_hand import RecordAtHand
from millstream.state.keyvalue.typed_store import TypedStore
from millstream.state.versioned.table import VersionedTable
from millstream.state.versioned.versions import NOT_PUT, VALID_TO_UNDEFINED

K = TypeVar("K")
V = TypeVar("V")


class VersionedKeyValueStore(TypedStore[K, VersionedTable], Generic[K, V]):
    """Several values per key, each valid from its timestamp until that of the next one.

    Kafka Streams' `VersionedKeyValueStore` (KIP-889). Versions may be put in any order, but not
    later than the history retention behind the newest one of the store; as far back they can be
    read. The latest version of a key is always kept. There is no cache above the store.

    Args:
        table: the versions.
        topic: handed to serdes, the changelog's name.
        key_serde: for keys.
        persistent: whether the state survives the process.
        context: the record being processed.

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

    #: What `put` gives for the latest version of a key.
    VALID_TO_UNDEFINED = VALID_TO_UNDEFINED
    #: What `put` gives for a version that came too late.
    NOT_PUT = NOT_PUT

    def __init__(
        self,
        table: VersionedTable,
        *,
        topic: str,
        key_serde: Serde[Any],
        persistent: bool,
        context: RecordAtHand,
    ) -> None:
        super().__init__(table.name, table, topic=topic, key_serde=key_serde, persistent=persistent)
        self._context = context

    def put(self, key: K, value: V | None, timestamp: int) -> int:
        """Put a version, or replace the one with the same timestamp.

        Args:
            key: the key, not None.
            value: the value; None says that there is none from then on.
            timestamp: from when it is valid, in milliseconds since the epoch.

        Returns:
            Until when it is valid: the timestamp of the next newer version of the key, or
            `VALID_TO_UNDEFINED` (-1) if it is the latest one. `NOT_PUT` (-2**63) if it came too
            late, and was counted as dropped.

        Raises:
            InvalidStateStoreError: the store is closed. All methods raise this.
            NullKeyError: the key is None. All methods raise this.

        Example:
            >>> prices = Stores.versioned_builder(
            ...     Stores.persistent_versioned("prices", timedelta(hours=1)), STRING, LONG
            ... )
            >>> with MockProcessorContext() as context:
            ...     store = context.add_state_store(prices)
            ...     store.put("tea", 4, 9_000), store.put("tea", 3, 1_000)
            (-1, 9000)
        """
        valid_to = self._open().put(self._key(key), value, timestamp)
        self.position.note(self._context)
        return valid_to

    def delete(self, key: K, timestamp: int) -> VersionedRecord | None:
        """Put a version that says that there is no value.

        Args:
            key: the key, not None.
            timestamp: from when there is no value, in milliseconds since the epoch.

        Returns:
            The version that was valid at that time; None if there was none, or if the deletion came
            too late.

        Example:
            >>> prices = Stores.versioned_builder(
            ...     Stores.persistent_versioned("prices", timedelta(hours=1)), STRING, LONG
            ... )
            >>> with MockProcessorContext() as context:
            ...     store = context.add_state_store(prices)
            ...     until = store.put("tea", 3, 1_000)
            ...     store.delete("tea", 5_000)
            ...     store.get("tea"), store.get("tea", as_of=4_999).value
            VersionedRecord(value=3, timestamp=1000, valid_to=None)
            (None, 3)
        """
        table, key_bytes = self._open(), self._key(key)
        old = table.get_as_of(key_bytes, timestamp)
        self.position.note(self._context)
        if table.put(key_bytes, None, timestamp) == NOT_PUT or old is None:
            return None
        return VersionedRecord(old.value, old.timestamp)

    def get(self, key: K, as_of: int | None = None) -> VersionedRecord | None:
        """The latest version of a key, or the one that was valid at a time.

        Follows Kafka Streams: what is given does not tell until when it is valid.

        Args:
            key: the key, not None.
            as_of: the time, in milliseconds since the epoch; by default the latest version.

        Returns:
            None if there is none, if it was deleted, or if `as_of` lies before the history that is
            kept and the latest version had not begun by then.

        Example:
            >>> prices = Stores.versioned_builder(
            ...     Stores.persistent_versioned("prices", timedelta(hours=1)), STRING, LONG
            ... )
            >>> with MockProcessorContext() as context:
            ...     store = context.add_state_store(prices)
            ...     until = store.put("tea", 3, 1_000), store.put("tea", 4, 9_000)
            ...     store.get("tea")
            ...     store.get("tea", as_of=5_000)
            VersionedRecord(value=4, timestamp=9000, valid_to=None)
            VersionedRecord(value=3, timestamp=1000, valid_to=None)
        """
        table, key_bytes = self._open(), self._key(key)
        if as_of is None:
            latest = table.get(key_bytes)
            return None if latest is None else VersionedRecord(*latest)
        found = table.get_as_of(key_bytes, as_of)
        return None if found is None else VersionedRecord(found.value, found.timestamp)
