"""Records with their places and times: written to, and read from, many topics at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec  # type: ignore[attr-defined]

_TIMEOUT_S = 60


class Sent(NamedTuple):
    """A record to be written."""

    topic: str
    partition: int
    key: str
    value: str | None
    timestamp: int


class Found(NamedTuple):
    """A record of a topic."""

    partition: int
    key: bytes
    value: bytes | None
    timestamp: int


class Places:
    """The topics of a broker, asked for many at a time.

    Args:
        bootstrap: the broker.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, topics: Mapping[str, int]) -> None:
        """Create topics with that many partitions each."""
        new = [NewTopic(name, partitions, 1) for name, partitions in topics.items()]
        for future in self._admin.create_topics(new, request_timeout=_TIMEOUT_S).values():
            future.result()

    def write(self, records: Iterable[Sent]) -> None:
        """Write records in their order, acknowledged."""
        failed: list[object] = []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 20})
        for topic, partition, key, value, timestamp in records:
            producer.produce(
                topic, value, key, partition, timestamp=timestamp, on_delivery=delivered
            )
            producer.poll(0)
        assert producer.flush(_TIMEOUT_S) == 0
        assert not failed

    def partition_counts(self, prefix: str) -> dict[str, int]:
        """The topics whose names begin like that, with their partition counts."""
        topics = self._admin.list_topics(timeout=_TIMEOUT_S).topics
        return {
            name: len(topic.partitions) for name, topic in topics.items() if name.startswith(prefix)
        }

    def configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """The config of each topic."""
        asked = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]  # type: ignore[attr-defined]
        return {
            resource.name: {name: entry.value for name, entry in future.result().items()}
            for resource, future in self._admin.describe_configs(asked).items()
        }

    def ends(self, topics: Iterable[str]) -> dict[tuple[str, int], tuple[int, int]]:
        """Where each partition begins and ends."""
        counts = {
            name: topic
            for name, topic in self._admin.list_topics(timeout=_TIMEOUT_S).topics.items()
            if name in set(topics)
        }
        places = [
            TopicPartition(name, number)
            for name, topic in counts.items()
            for number in topic.partitions
        ]
        low = self._offsets(places, OffsetSpec.earliest())
        high = self._offsets(places, OffsetSpec.latest())
        return {place: (low[place], high[place]) for place in high}

    def lag(self, group: str, topics: Iterable[str]) -> int:
        """How many records of these topics the group has not committed."""
        ends = self.ends(topics)
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        try:
            committed = consumer.committed([TopicPartition(*place) for place in ends], _TIMEOUT_S)
        finally:
            consumer.close()
        lag = 0
        for place in committed:
            low, high = ends[place.topic, place.partition]
            lag += high - max(place.offset, low)
        return lag

    def read(self, topics: Sequence[str]) -> dict[str, list[Found]]:
        """All records of each topic, partition by partition, up to the ends that they have now."""
        ends = {place: end for place, (low, end) in self.ends(topics).items() if end > low}
        found: dict[tuple[str, int], list[Found]] = {place: [] for place in ends}
        reader = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "enable.partition.eof": False,
                "auto.offset.reset": "earliest",
            }
        )
        try:
            reader.assign([TopicPartition(*place, 0) for place in ends])
            left = dict(ends)
            while left:
                messages = reader.consume(1_000, _TIMEOUT_S)
                assert messages, f"not read to their ends: {left}"
                for message in messages:
                    place = (message.topic(), message.partition())
                    if message.offset() < ends[place]:
                        found[place].append(_found(message))
                    if message.offset() >= ends[place] - 1:
                        left.pop(place, None)
        finally:
            reader.close()
        return {
            topic: [
                record for place in sorted(found) if place[0] == topic for record in found[place]
            ]
            for topic in topics
        }

    def _offsets(self, places: list[TopicPartition], spec: Any) -> dict[tuple[str, int], int]:
        asked = self._admin.list_offsets(dict.fromkeys(places, spec))
        return {(p.topic, p.partition): future.result().offset for p, future in asked.items()}


def _found(message: Any) -> Found:
    assert message.error() is None
    return Found(
        message.partition(), message.key(), message.value(), message.timestamp()[1]
    )
