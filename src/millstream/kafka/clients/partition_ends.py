"""Tracking of partition ends, and of whether the consumer has reached them.

Three offsets matter. The high watermark is the end of the replicated log. The last stable offset is
the start of the first open transaction, which is the end for read_committed consumers. The position
is the offset after the last returned record. It may be followed by transaction markers and aborted
records, which are never returned.

librdkafka reports an end when a fetch finds no records beyond it. The high watermark is available
at any time, the last stable offset only in librdkafka's statistics.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import orjson
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from millstream.record import TopicPartition

#: Means "no offset"; lower than any real offset.
NO_OFFSET: Final = -1


class PartitionEnds:
    """The ends of partitions, as reported by the client (`enable.partition.eof`)."""

    def __init__(self, client: Consumer, *, read_committed: bool) -> None:
        self._position = client.position
        self._watermarks = client.get_watermark_offsets
        self._read_committed = read_committed
        #: The partitions as objects of the client. Creating one costs as much as a request.
        self._client_partitions: dict[TopicPartition, ClientPartition] = {}
        #: The latest reported end of each partition.
        self._ends: dict[TopicPartition, int] = {}
        #: Partitions that may end in an open transaction. The value is the high watermark up to
        #: which there are certainly no more readable records.
        self._uncertain: dict[TopicPartition, int] = {}
        #: The last stable offsets of these partitions, if known.
        self._stable: dict[TopicPartition, int] = {}

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._client_partitions[partition] = ClientPartition(*partition)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            for by_partition in (
                self._client_partitions,
                self._ends,
                self._uncertain,
                self._stable,
            ):
                by_partition.pop(partition, None)

    def reset(self, partitions: Iterable[TopicPartition]) -> None:
        """Discard the ends of partitions; the client will report them again."""
        for partition in partitions:
            self._ends.pop(partition, None)

    def report(self, partition: TopicPartition, end: int) -> None:
        """Record that the client has read a partition to its end.

        The client has returned all records before `end` and found none beyond it.
        """
        if partition in self._client_partitions:
            self._ends[partition] = end

    def last_reported(self, partition: TopicPartition) -> int:
        """Return the latest reported end, or `NO_OFFSET` if there is none yet."""
        return self._ends.get(partition, NO_OFFSET)

    def high_watermark(self, partition: TopicPartition) -> int:
        """Return the high watermark at the last fetch; negative before the first fetch."""
        client_partition = self._client_partitions.get(partition)
        # Positional arguments take 180 ns, keyword arguments 350 ns.
        watermarks = (
            None if client_partition is None else self._watermarks(client_partition, 0, True)
        )
        return NO_OFFSET if watermarks is None else watermarks[1]

    def reached(self, partition: TopicPartition) -> bool:
        """Whether all records that were readable at the last fetch have been returned.

        Takes 500 ns if nothing has arrived since the end was reached, and 1,000 ns with an open
        transaction.
        """
        end = self._ends.get(partition)
        if end is None:
            return False
        high = self.high_watermark(partition)
        # The watermark rises before the records below it can be polled, so a higher watermark means
        # that there are more records, even if they are still in the client's queue.
        if high <= end:
            return True
        position = self._position([self._client_partitions[partition]])[0].offset
        if position >= high:
            return True
        # More records or a transaction marker follow, after which another end is reported.
        if position > end or not self._read_committed:
            return False
        # A transaction may be open, perhaps for hours, and nothing is reported until it ends.
        return self._uncertain.setdefault(partition, NO_OFFSET) == high

    @property
    def has_uncertain(self) -> bool:
        """Whether any partition may end in an open transaction.

        If not, skip `mark_drained`.
        """
        return bool(self._uncertain)

    def update_stable_offsets(self, statistics: str) -> None:
        """Read the last stable offsets from the client's statistics.

        If the end of a partition is still the last stable offset, a transaction is open there. The
        last stable offset only changes when a marker moves the high watermark, so this holds until
        the high watermark changes.
        """
        if not self._uncertain:
            return
        topics = orjson.loads(statistics)["topics"]
        for partition in self._uncertain:
            state = (
                topics.get(partition.topic, {}).get("partitions", {}).get(str(partition.partition))
            )
            if state is None:
                # The partition was deleted; the client reports that separately.
                continue
            self._stable[partition] = state["ls_offset"]
            if state["ls_offset"] == self._ends.get(partition):
                self._uncertain[partition] = state["hi_offset"]

    def uncertain_watermarks(self) -> dict[TopicPartition, int]:
        """Return the high watermarks of partitions that may have an open transaction."""
        return {partition: self.high_watermark(partition) for partition in self._uncertain}

    def mark_drained(self, watermarks: dict[TopicPartition, int]) -> None:
        """Record that the client has returned all its records below `watermarks`.

        Statistics are less frequent than fetches: while other producers write after an open
        transaction, the watermark has always moved since the latest statistics. However, records
        are returned in fetch order: if the transaction had ended, the records after it would have
        been returned by now. Only records after many aborted records can be missed, for the short
        time until the next statistics.
        """
        for partition, high in watermarks.items():
            if self._stable.get(partition) == self._ends.get(partition, NO_OFFSET):
                self._uncertain[partition] = high
