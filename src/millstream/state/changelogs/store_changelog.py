"""The changelog of a store as the store sees it: the one way by which changes are logged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from millstream.record import Headers
from millstream.state.engine_failures import EngineFailures
from millstream.state.storage.value_formats import PLAIN, ValueFormat


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


class WatchedWriter:
    """Writes to changelogs, and knows whether it did since the last commit.

    Args:
        writer: the way to the changelogs.
        failures: keep errors of the writer, which user code may hide.
    """

    def __init__(self, writer: ChangelogWriter, failures: EngineFailures) -> None:
        self._writer = writer
        self._failures = failures
        #: Whether anything was logged that is not committed.
        self.has_written = False

    def log_many(
        self,
        store_name: str,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int] | None,
        headers: Sequence[Headers] | None = None,
    ) -> None:
        """Send records; see `ChangelogWriter`."""
        self.has_written = True
        try:
            self._writer.log_many(store_name, keys, values, timestamps, headers)
        except Exception as error:
            # The store has the write already.
            self._failures.note(error)
            raise


class StoreChangelog:
    """The changelog of one store. Whatever a store of any kind logs goes through here, in order.

    A change is written to the store first, then logged. A call costs about as much as a record, so
    who has many changes at once logs them at once.

    Args:
        store_name: the store's name.
        writer: where the changes go; None where they are not logged.
        value_format: how values are stored; they are logged without timestamps before them.

    Attributes:
        enabled: whether changes are logged at all. Logging does nothing otherwise.
        log_stored: logs one change: the key and the value as they are stored, and the timestamp.
        log_stored_many: logs many changes, one record each: keys, values as stored, timestamps.
    """

    def __init__(
        self, store_name: str, writer: ChangelogWriter | None, value_format: ValueFormat = PLAIN
    ) -> None:
        self.enabled = writer is not None
        self._store_name = store_name
        self._writer = writer
        # Hot: what there is to do is decided once, for 0.1 us less of a record's 1 us.
        self.log_stored = _logs_one(store_name, writer, value_format)
        self.log_stored_many = _logs_many(store_name, writer, value_format)

    def log(
        self, key: bytes, value: bytes | None, timestamp: int | None, headers: Headers = ()
    ) -> None:
        """Log one change.

        Args:
            key: the key as it is stored.
            value: the value without a timestamp before it; None is a deletion.
            timestamp: of the changelog record, in milliseconds; None for the time of sending.
            headers: of the changelog record.
        """
        if self._writer is not None:
            self._writer.log_many(
                self._store_name,
                (key,),
                (value,),
                None if timestamp is None else (timestamp,),
                (headers,) if headers else None,
            )

    def log_many(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int] | None,
        headers: Sequence[Headers] | None = None,
    ) -> None:
        """Log many changes, one record each, repeated keys included; see `log`.

        Args:
            keys: the keys as they are stored.
            values: the values without timestamps before them.
            timestamps: of the records; None for the time of sending.
            headers: of the records; None for no headers at all.
        """
        if self._writer is not None:
            self._writer.log_many(self._store_name, keys, values, timestamps, headers)


def _logs_one(
    store_name: str, writer: ChangelogWriter | None, value_format: ValueFormat
) -> Callable[[bytes, bytes | None, int], None]:
    if writer is None:
        return lambda key, stored, timestamp: None
    send, value_of = writer.log_many, value_format.value_of

    def log_plain(key: bytes, stored: bytes | None, timestamp: int) -> None:
        send(store_name, (key,), (stored,), (timestamp,))

    def log_timestamped(key: bytes, stored: bytes | None, timestamp: int) -> None:
        send(store_name, (key,), (value_of(stored),), (timestamp,))

    return log_timestamped if value_format.timestamped else log_plain


def _logs_many(
    store_name: str, writer: ChangelogWriter | None, value_format: ValueFormat
) -> Callable[[Sequence[bytes], Sequence[bytes | None], Sequence[int]], None]:
    if writer is None:
        return lambda keys, stored, timestamps: None
    send, values_of = writer.log_many, value_format.values_of

    def log_many(
        keys: Sequence[bytes], stored: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        send(store_name, keys, values_of(stored), timestamps)

    return log_many
