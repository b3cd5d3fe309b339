"""The store of a foreign-key join: which left rows refer to which right rows.

A timestamped key-value store whose keys begin with the key of the right row, so that all who refer
to it lie side by side. Unlike other stores its changes are logged with the headers of the records
that caused them, as Kafka Streams 4.3 does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.record import Headers
from millstream.state.changelogs.changelog import ChangelogWriter
from millstream.state.keyvalue.builders import KeyValueStoreBuilder
from millstream.state.storage.bytes_store import BytesStore, end_of_prefix
from millstream.state.storage.value_formats import TIMESTAMPED

if TYPE_CHECKING:
    from millstream.state.keyvalue.opening import OpenStore, StoreEnvironment


@dataclass(frozen=True)
class SubscriptionStoreBuilder(KeyValueStoreBuilder):
    """A store of subscriptions to be; never cached."""

    timestamped: bool = True

    def open(self, environment: StoreEnvironment) -> OpenStore:
        """Open the store in a task. Everything must be resolved.

        Raises:
            TaskCorruptedError: what is on disk cannot be read.
        """
        opened = super().open(environment)
        writer = environment.writer if self.logging else None
        opened.table = SubscriptionTable(self.name, opened.base, writer)
        return opened


class SubscriptionTable:
    """The store as the operators of a foreign-key join see it.

    Args:
        name: the store's name.
        layers: the store's bytes.
        writer: where changes are logged; None without a changelog.
    """

    def __init__(self, name: str, layers: BytesStore, writer: ChangelogWriter | None) -> None:
        self.name = name
        self._layers = layers
        self._writer = writer

    def put(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers) -> None:
        """Keep a subscription, or forget it if there is none.

        Args:
            key: begins with that of the right row.
            value: the serialized subscription.
            timestamp: of the record that brought it, in milliseconds.
            headers: of that record.
        """
        self._layers.put(key, TIMESTAMPED.join(value, timestamp), timestamp)
        if self._writer is not None:
            logged = (headers,) if headers else None
            self._writer.log_many(self.name, (key,), (value,), (timestamp,), logged)

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """The keys that begin with a prefix and their serialized subscriptions, in key order."""
        items = self._layers.scan(prefix, end_of_prefix(prefix))
        return [(key, TIMESTAMPED.split(stored)[0]) for key, stored in items]
