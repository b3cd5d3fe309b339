"""The store of a foreign-key join: which left rows refer to which right rows.

A timestamped key-value store whose keys begin with the key of the right row, so that all who refer
to it lie side by side. Unlike other stores its changes are logged with the headers of the records
that caused them, as Kafka Streams 4.3 does.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.record import Headers
from millstream.state.changelogs.store_changelog import StoreChangelog
from millstream.state.storage.bytes_store import BytesStore, end_of_prefix
from millstream.state.storage.value_formats import TIMESTAMPED


class SubscriptionTable:
    """The store as the operators of a foreign-key join see it.

    Args:
        name: the store's name.
        layers: the store's bytes.
        changelog: where changes are logged.
    """

    def __init__(self, name: str, layers: BytesStore, changelog: StoreChangelog) -> None:
        self.name = name
        self._layers = layers
        self._changelog = changelog

    def put_many(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None,
    ) -> None:
        """Keep subscriptions, or forget those whose value is None, in order.

        Args:
            keys: each begins with that of the right row.
            values: the serialized subscriptions.
            timestamps: of the records that brought them, in milliseconds.
            headers: of those records; None if none has any.
        """
        self._layers.put_many(keys, TIMESTAMPED.join_many(values, timestamps), timestamps)
        self._changelog.log_many(keys, values, timestamps, headers)

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """The keys that begin with a prefix and their serialized subscriptions, in key order."""
        items = self._layers.scan(prefix, end_of_prefix(prefix))
        return [(key, TIMESTAMPED.split(stored)[0]) for key, stored in items]
