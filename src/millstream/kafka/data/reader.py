"""How a consumer gets at what librdkafka has fetched, whichever way is taken."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, Protocol

from confluent_kafka import KafkaError

from millstream.kafka.data.record_columns import RecordColumns
from millstream.record import TopicPartition


class Fetched(NamedTuple):
    """What one reading brought.

    Args:
        columns: the records of each partition, in the order of the first ones.
        taken: how many there were of records and events.
        is_all: whether nothing was left behind.
    """

    columns: dict[TopicPartition, RecordColumns]
    taken: int
    is_all: bool


class Events(NamedTuple):
    """Who is told what librdkafka says besides records.

    Args:
        ended: a partition ends at this offset, and what lies before was handed out.
        failed: an error, with topic, partition and offset as far as it has them.
        told: an error of the client itself, which it goes on after. Only by who reads besides the
            client, which tells its `error_cb` otherwise.
    """

    ended: Callable[[TopicPartition, int], None]
    failed: Callable[[KafkaError, str | None, int | None, int | None], None]
    told: Callable[[KafkaError], None]


class Reader(Protocol):
    """Takes records from one client, in order within each partition."""

    @property
    def longest_wait_ms(self) -> int:
        """How long one reading may wait for a first record; it may have to look around then."""

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions are about to be assigned."""

    def end(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions are not assigned any more."""

    def read(
        self, most: int, timeout_ms: int, sources: Collection[TopicPartition] | None
    ) -> Fetched:
        """Wait for a first record or event, and take what is there without waiting.

        Args:
            most: how many to take.
            timeout_ms: how long to wait; no longer than `longest_wait_ms`.
            sources: the partitions that records can only come from, where that is known.

        Raises:
            KafkaException: what librdkafka reports of itself.
            RuntimeError: the client is closed.
        """

    def close(self) -> None:
        """Let the client go, before that is closed."""
