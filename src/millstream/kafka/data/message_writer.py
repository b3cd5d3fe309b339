"""Records to confluent-kafka's producer, one call each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Producer

from millstream.kafka.data.delivery import Deliveries, DeliveryCallback
from millstream.kafka.data.outgoing_records import OutgoingRecords
from millstream.kafka.settings.clients import create_client
from millstream.record import Headers, TopicPartition

#: What is written in place of the timestamp 0, which librdkafka would replace by the present time.
_FIRST_MILLISECOND: Final = 1


class MessageWriter:
    """Writes record by record; see `Writer`.

    How failures and acknowledged offsets are learned, per record of 80 bytes and about 450 ns for
    the record itself: confluent-kafka can report every record (220 ns), or failures only (free).
    Topics that are not tracked use the latter, on a client of their own, since it is a choice for
    the whole client. In a transaction, where one client has to do both, only the last record of
    each send is reported on (free): a commit fails by itself when any record of the transaction
    did.

    Args:
        deliveries: told of the fate of records.
        transactional: whether they are parts of transactions.
    """

    def __init__(self, deliveries: Deliveries, *, transactional: bool) -> None:
        self._deliveries = deliveries
        self._transactional = transactional
        self._callbacks: dict[TopicPartition, DeliveryCallback] = {}

    @property
    def tracks_apart(self) -> bool:
        """See `Writer.tracks_apart`."""
        return not self._transactional

    def create(self, settings: Mapping[str, Any], *, tracked: bool) -> Producer:
        """See `Writer.create`."""
        if not tracked and not self._transactional:
            failures = self._deliveries.failures_only
            only = {"delivery.report.only.error": True, "on_delivery": failures}
            settings = {**settings, **only}
        return create_client(Producer, settings)

    def outgoing(
        self,
        client: Producer,
        topic: str,
        partitions: int | Sequence[int | None] | None,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers | None] | None,
        *,
        tracked: bool,
    ) -> OutgoingRecords:
        """See `Writer.outgoing`."""
        each, last = None, None
        if tracked:
            # The producer has seen to it.
            assert isinstance(partitions, int)
            last = self._callback(TopicPartition(topic, partitions))
            if not self._transactional:
                each = last
        elif self._transactional:
            last = self._deliveries.failures_only
        if 0 in timestamps:
            timestamps = written_times(timestamps)
        return OutgoingRecords(
            client.produce, topic, partitions, keys, values, timestamps, headers, each, last
        )

    def learn(self) -> None:
        """Failures are reported to callbacks."""

    def learn_offsets(self, topics: Collection[str]) -> None:
        """Acknowledgements are reported to callbacks."""

    def forget(self) -> None:
        """Nothing is kept."""

    def release(self, client: Producer) -> None:
        """Nothing is kept."""

    def _callback(self, partition: TopicPartition) -> DeliveryCallback:
        callback = self._callbacks.get(partition)
        if callback is None:
            callback = self._callbacks[partition] = self._deliveries.acknowledgements(partition)
        return callback


def written_times(timestamps: Sequence[int]) -> list[int]:
    """Timestamps as they can be written."""
    return [timestamp or _FIRST_MILLISECOND for timestamp in timestamps]
