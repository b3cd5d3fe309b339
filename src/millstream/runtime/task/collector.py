"""Output of tasks to Kafka.

Sinks and changelogs write through the thread's producer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millstream.clock import Clock
from millstream.errors import BrokerUnavailableError, StreamsError, UnknownTopicError
from millstream.kafka.clients.producer_errors import Changelog
from millstream.kafka.cluster.retries import retry_until_available
from millstream.kafka.protocols import Admin, Producer
from millstream.record import Headers, TaskId

logger = logging.getLogger(__name__)

_METADATA_TIMEOUT_MS = 10_000
_DELIVERY_TIMEOUT_MS = 3_000


class KafkaRecordCollector:
    """Passes serialized records to the producer in the order that tasks send them.

    Args:
        max_age_ms: how long a partition count is valid (`metadata.max.age.ms` of the producer).
        timeout_ms: how long to wait for the first partition count of a topic (`task.timeout.ms`).
    """

    def __init__(
        self, producer: Producer, admin: Admin, clock: Clock, max_age_ms: int, timeout_ms: int
    ) -> None:
        self._producer = producer
        self._admin = admin
        self._clock = clock
        self._max_age_ms = max_age_ms
        self._timeout_ms = timeout_ms
        #: Partition count and expiry time of each topic.
        self._counts: dict[str, tuple[int, int]] = {}
        self.send_many = producer.send_many
        self.send_with_handler = producer.send_with_handler

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of a topic.

        Raises:
            UnknownTopicError: the topic does not exist.
            BrokerUnavailableError: no broker answered within the timeout.
        """
        known = self._counts.get(topic)
        now_ms = self._clock.monotonic_ms()
        if known is not None and now_ms < known[1]:
            return known[0]
        found = self._first_count(topic) if known is None else self._new_count(topic, known[0])
        if topic not in found:
            raise UnknownTopicError(
                f"Topic '{topic}' does not exist, so no partition can be chosen for its "
                "records. Create the topic; only internal topics are created automatically.",
                topic=topic,
            )
        self._counts[topic] = (found[topic], now_ms + self._max_age_ms)
        return found[topic]

    def await_deliveries(self) -> None:
        """Wait briefly for the delivery of sent records, before the thread fails.

        A failure discards the records that are not delivered yet.
        """
        try:
            self._producer.flush(_DELIVERY_TIMEOUT_MS)
        except StreamsError as error:
            logger.warning(
                "some records sent before a failure may not have been delivered: %s", error
            )

    def _first_count(self, topic: str) -> Mapping[str, int]:
        return retry_until_available(
            lambda: self._admin.partition_counts([topic], _METADATA_TIMEOUT_MS),
            f"{topic} cannot be written to",
            self._timeout_ms,
            self._clock,
            self._producer.on_wait,
        )

    def _new_count(self, topic: str, known: int) -> Mapping[str, int]:
        try:
            return self._admin.partition_counts([topic], _METADATA_TIMEOUT_MS)
        except BrokerUnavailableError as error:
            # Partitions are never removed, so the old count is safe.
            logger.info("could not refresh the partition count of %s: %s", topic, error)
            return {topic: known}

    def changelog_writer(self, task_id: TaskId, topics: Mapping[str, str]) -> TaskChangelogs:
        """Return the writer for a task's changelogs, given their full names by store."""
        for store, topic in topics.items():
            self._producer.track(topic, Changelog(store, task_id.subtopology))
        return TaskChangelogs(self._producer, task_id.partition, topics, self._clock)


@dataclass(frozen=True)
class TaskChangelogs:
    """Writes to the changelog partitions of one task."""

    producer: Producer
    partition: int
    topics: Mapping[str, str]
    clock: Clock

    def log_many(
        self,
        store_name: str,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int] | None,
        headers: Sequence[Headers] | None = None,
    ) -> None:
        topic = self.topics.get(store_name)
        if topic is not None:
            if timestamps is None:
                timestamps = [self.clock.now_ms()] * len(keys)
            self.producer.send_many(topic, self.partition, keys, values, timestamps, headers)
