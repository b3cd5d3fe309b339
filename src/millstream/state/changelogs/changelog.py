"""The layer that writes each change of a store to its changelog topic as well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from millstream.record import Headers, TopicPartition
from millstream.state.storage.bytes_store import BytesStore
from millstream.state.storage.value_formats import ValueFormat


class ChangelogWriter(Protocol):
    """Where the changes of a task's stores go: the producer of its thread."""

    def log_many(
        self,
        store_name: str,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int] | None,
        headers: Sequence[Headers] | None = None,
    ) -> None:
        """Send records to the task's partition of the store's changelog, in order.

        Args:
            store_name: the store; the runtime knows its topic.
            keys: the keys as they are stored.
            values: the values without the store's own prefix; None is a deletion.
            timestamps: of the records, in milliseconds; None for the time of sending.
            headers: of the records; None for no headers at all.
        """
        ...


class NoChangelog:
    """For stores that log nothing, whatever their builders say."""

    def log_many(
        self,
        store_name: str,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int] | None,
        headers: Sequence[Headers] | None = None,
    ) -> None:
        """Nothing to do."""


class RecordContext(Protocol):
    """What a store must know of the record being processed when processors write to it."""

    @property
    def timestamp(self) -> int:
        """Of the record, in milliseconds."""
        ...

    @property
    def place(self) -> TopicPartition | None:
        """Where it was read; None in a punctuator."""
        ...

    @property
    def offset(self) -> int:
        """Its offset, -1 in a punctuator."""
        ...

    @property
    def headers(self) -> Headers:
        """Its headers."""
        ...


class LoggedStore:
    """Hands each write to the changelog, after the write itself, in the order of the calls.

    The changelog record has the stored value without its timestamp prefix, and the timestamp given
    with the write: that of the record being processed, but the stored one where a value is put
    into a store that keeps timestamps (`ChangeLoggingTimestampedKeyValueBytesStore`).

    Args:
        name: the store's name.
        inner: the layer below.
        value_format: how values are stored below.
        writer: where the changes go.
    """

    def __init__(
        self, name: str, inner: BytesStore, value_format: ValueFormat, writer: ChangelogWriter
    ) -> None:
        self._name = name
        self._inner = inner
        self._format = value_format
        self._writer = writer
        # Reads are the lower layer's own methods: this layer costs them nothing.
        self.get = inner.get
        self.get_many = inner.get_many
        self.scan = inner.scan
        self.approximate_num_entries = inner.approximate_num_entries

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Write one key and log it."""
        self._inner.put(key, value, timestamp)
        values = self._format.values((value,))
        self._writer.log_many(self._name, (key,), values, (timestamp,))

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        """Write many keys and log them: one changelog record each, repeated keys included."""
        self._inner.put_many(keys, values, timestamps)
        self._writer.log_many(self._name, keys, self._format.values(values), timestamps)
