"""The way from tasks to Kafka: outputs and changelogs through the thread's one producer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.clock import Clock
from millstream.errors import UnknownTopicError
from millstream.kafka.admin import ClusterAdmin
from millstream.kafka.producer import RecordProducer
from millstream.kafka.producer_errors import Changelog
from millstream.record import Headers, TaskId

_METADATA_TIMEOUT_MS = 10_000


class KafkaCollector:
    """Hands serialized records to the producer, in the order in which tasks give them.

    Args:
        producer: the thread's producer.
        admin: asked for partition counts, once a topic.
        clock: dates changes that have no time of their own.
    """

    def __init__(self, producer: RecordProducer, admin: ClusterAdmin, clock: Clock) -> None:
        self._producer = producer
        self._admin = admin
        self._clock = clock
        self._counts: dict[str, int] = {}
        self.send_many = producer.send_many

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has.

        Raises:
            UnknownTopicError: it does not exist.
        """
        count = self._counts.get(topic)
        if count is None:
            found = self._admin.partition_counts([topic], _METADATA_TIMEOUT_MS)
            if topic not in found:
                raise UnknownTopicError(
                    f"Topic '{topic}' does not exist, so no partition can be chosen for its "
                    "records. Create the topic; only internal topics are created by themselves.",
                    topic=topic,
                )
            count = self._counts[topic] = found[topic]
        return count

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
        self, producer: RecordProducer, partition: int, topics: Mapping[str, str], clock: Clock
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
