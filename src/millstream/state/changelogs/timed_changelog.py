"""The layer that writes each change of a window or session store to its changelog topic as well."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.record import Headers
from millstream.state.changelogs.changelog import ChangelogWriter
from millstream.state.storage.value_formats import ValueFormat
from millstream.state.windows.timed_store import TimedStore


class LoggedWindows:
    """Hands each write to the changelog, after the write itself, in the order of the calls.

    Follows Kafka Streams: what comes too late for the store is logged all the same, and the key of
    the changelog record is the stored key.

    Args:
        name: the store's name.
        inner: the layer below.
        value_format: how values are stored below; the changelog has them without timestamps.
        writer: where the changes go.
    """

    def __init__(
        self, name: str, inner: TimedStore, value_format: ValueFormat, writer: ChangelogWriter
    ) -> None:
        self._name = name
        self._inner = inner
        self._format = value_format
        self._writer = writer
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
        self.log(key, value, timestamp)

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        """Write many stored keys and log them: one changelog record each."""
        self._inner.put_many(keys, values, timestamps)
        self._writer.log_many(self._name, keys, self._format.values(values), timestamps)

    def remove(self, key: bytes, timestamp: int) -> None:
        """Delete one stored key and log it."""
        self._inner.remove(key, timestamp)
        self.log(key, None, timestamp)

    def log(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Log what is, or is not, written to the layer below by other ways."""
        self.log_many((key,), self._format.values((value,)), (timestamp,), None)

    def log_many(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None,
    ) -> None:
        """Log what was written to the layer below by other ways, values without timestamps."""
        self._writer.log_many(self._name, keys, values, timestamps, headers)
