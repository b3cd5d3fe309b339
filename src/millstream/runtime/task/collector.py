"""The way from tasks to Kafka: outputs and changelogs through the thread's one producer."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from millstream.clock import Clock
from millstream.errors import BrokerUnavailableError, StreamsError, UnknownTopicError
from millstream.kafka.cluster.insisting import insist
from millstream.kafka.data.producer_errors import Changelog
from millstream.kafka.protocols import Admin, Producer
from millstream.record import Headers, TaskId

logger = logging.getLogger(__name__)

_METADATA_TIMEOUT_MS = 10_000
_SETTLE_TIMEOUT_MS = 3_000


class KafkaCollector:
    """Hands serialized records to the producer, in the order in which tasks give them.

    Args:
        producer: the thread's producer.
        admin: asked for partition counts.
        clock: says when they are asked for again, and dates changes that have no time of their own.
        max_age_ms: how long an answer counts (`metadata.max.age.ms` of the producer).
        timeout_ms: how long a first answer is waited for (`task.timeout.ms`).
    """

    def __init__(
        self,
        producer: Producer,
        admin: Admin,
        clock: Clock,
        max_age_ms: int,
        timeout_ms: int,
    ) -> None:
        self._producer = producer
        self._admin = admin
        self._clock = clock
        self._max_age_ms = max_age_ms
        self._timeout_ms = timeout_ms
        #: Of each topic its partition count, and when to ask again.
        self._counts: dict[str, tuple[int, int]] = {}
        self.send_many = producer.send_many
        self.send_watched = producer.send_watched

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has.

        Raises:
            UnknownTopicError: it does not exist.
            BrokerUnavailableError: nobody answered, now or earlier, for the whole timeout.
        """
        known = self._counts.get(topic)
        now_ms = self._clock.monotonic_ms()
        if known is not None and now_ms < known[1]:
            return known[0]
        found = self._first_count(topic) if known is None else self._new_count(topic, known[0])
        if topic not in found:
            raise UnknownTopicError(
                f"Topic '{topic}' does not exist, so no partition can be chosen for its "
                "records. Create the topic; only internal topics are created by themselves.",
                topic=topic,
            )
        self._counts[topic] = (found[topic], now_ms + self._max_age_ms)
        return found[topic]

    def settle(self) -> None:
        """Wait a moment for what was sent, before a failure drops what has not arrived."""
        try:
            self._producer.flush(_SETTLE_TIMEOUT_MS)
        except StreamsError as error:
            logger.warning("not everything that was sent before a failure arrives: %s", error)

    def _first_count(self, topic: str) -> Mapping[str, int]:
        return insist(
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
            # Partitions are only ever added: the old ones are there still.
            logger.info("the partitions of %s are not looked up anew: %s", topic, error)
            return {topic: known}

    def changelog_writer(self, task_id: TaskId, topics: Mapping[str, str]) -> TaskChangelogs:
        """Where a task's stores log their changes.

        Args:
            task_id: whose partition number is that of its changelogs.
            topics: the real name of the changelog of each store that is logged.
        """
        for store, topic in topics.items():
            self._producer.track(topic, Changelog(store, task_id.subtopology))
        return TaskChangelogs(self._producer, task_id.partition, topics, self._clock)


class TaskChangelogs:
    """The changelog partitions of one task."""

    def __init__(
        self, producer: Producer, partition: int, topics: Mapping[str, str], clock: Clock
    ) -> None:
        self._producer = producer
        self._partition = partition
        self._topics = topics
        self._clock = clock

    def log_many(
        self,
        store_name: str,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int] | None,
        headers: Sequence[Headers] | None = None,
    ) -> None:
        """Send the changes of a store, in order."""
        topic = self._topics.get(store_name)
        if topic is not None:
            if timestamps is None:
                timestamps = [self._clock.now_ms()] * len(keys)
            self._producer.send_many(topic, self._partition, keys, values, timestamps, headers)
