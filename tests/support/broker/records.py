"""Records with their places and times: written to, and read from, many topics at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
)
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from millstream.record import TopicPartition
from support.waiting import gather, wait_for

_TIMEOUT_S = 60
_OTHER_EPOCHS = {KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH}


class Sent(NamedTuple):
    """A record to be written."""

    topic: str
    partition: int
    key: str | None
    value: str | None
    timestamp: int


class Found(NamedTuple):
    """A record of a topic."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int


#: The offset, the place, and the record.
_Read = tuple[int, TopicPartition, Found]


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
        new = [NewTopic(name, partitions) for name, partitions in topics.items()]
        for future in self._admin.create_topics(new, request_timeout=_TIMEOUT_S).values():
            future.result()

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions, that many in all."""
        for future in self._admin.create_partitions(
            [NewPartitions(topic, partitions)], request_timeout=_TIMEOUT_S
        ).values():
            future.result()

    def delete(self, *topics: str) -> None:
        """Delete topics, and wait until they are gone."""
        for future in self._admin.delete_topics(
            list(topics), request_timeout=_TIMEOUT_S, operation_timeout=_TIMEOUT_S
        ).values():
            future.result()
        names = set(topics)
        wait_for(
            lambda: not names & self._admin.list_topics(timeout=_TIMEOUT_S).topics.keys(),
            _TIMEOUT_S,
            f"{topics} are gone",
        )

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete the records before an offset of each partition, as retention does."""
        asked = [ClientPartition(*place, offset) for place, offset in before.items()]
        for future in self._admin.delete_records(asked).values():
            future.result()

    def write(self, records: Iterable[Sent]) -> None:
        """Write records in their order, acknowledged."""
        failed: list[object] = []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        # Idempotent: else a batch that has to be tried again, as those for a topic that was just
        # created may have to, is written after the ones that were sent later.
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "linger.ms": 20, "enable.idempotence": True}
        )
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
        asked = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
        return {
            resource.name: {name: entry.value for name, entry in future.result().items()}
            for resource, future in self._admin.describe_configs(asked).items()
        }

    def ends(self, topics: Iterable[str]) -> dict[TopicPartition, tuple[int, int]]:
        """Where each partition begins and ends."""
        wanted = set(topics)
        counts = {name: topic for name, topic in self._topics().items() if name in wanted}
        places = [
            ClientPartition(name, number)
            for name, topic in counts.items()
            for number in topic.partitions
        ]
        low = self._offsets(places, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        high = self._offsets(places, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return {place: (low[place], high[place]) for place in high}

    def group(self, name: str) -> str:
        """The state of a group and its members, as the broker tells them."""
        (asked,) = self._admin.describe_consumer_groups([name], request_timeout=_TIMEOUT_S).values()
        found = asked.result()
        members = [
            f"{member.member_id} of {member.host}: "
            f"{len(member.assignment.topic_partitions)} partitions"
            for member in found.members
        ]
        return "\n".join([f"group {name}: {found.state.name}", *members])

    def unstable(self, prefix: str) -> dict[str, tuple[int, int]]:
        """The partitions of topics whose names begin like that in which transactions are open: the
        last stable offset, and the end."""
        places = [
            ClientPartition(name, number)
            for name, count in self.partition_counts(prefix).items()
            for number in range(count)
        ]
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        stable = self._offsets(places, latest, IsolationLevel.READ_COMMITTED)
        ends = self._offsets(places, latest)
        return {
            str(place): (stable[place], end) for place, end in ends.items() if stable[place] < end
        }

    def lag(self, group: str, topics: Iterable[str]) -> int:
        """How many records of these topics the group has not committed."""
        committed = self.committed(group, topics)
        # After that: what caused it to be committed was written to other topics before.
        ends = self.ends(topics)
        lag = 0
        for place, offset in committed.items():
            low, high = ends[place]
            lag += high - max(offset, low)
        return lag

    def committed(self, group: str, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """What the group has committed of each partition of these topics; below 0 if nothing."""
        places = [ClientPartition(*place) for place in self.ends(topics)]
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        try:
            found = consumer.committed(places, _TIMEOUT_S)
        finally:
            consumer.close()
        return {TopicPartition(each.topic, each.partition): each.offset for each in found}

    def read(self, topics: Sequence[str]) -> dict[str, list[Found]]:
        """All records of each topic, partition by partition, up to the ends that they have now."""
        found = self.read_with_offsets(topics)
        return {topic: [record for _, record in found[topic]] for topic in topics}

    def read_with_offsets(self, topics: Sequence[str]) -> dict[str, list[tuple[int, Found]]]:
        """The same, each record with its offset."""
        ends = {place: end for place, (low, end) in self.ends(topics).items() if end > low}
        found: dict[TopicPartition, list[tuple[int, Found]]] = {place: [] for place in ends}
        reader = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "enable.partition.eof": False,
                "auto.offset.reset": "earliest",
            }
        )
        left = dict(ends)

        def read_more() -> list[_Read]:
            read = [_read(message) for message in reader.consume(1_000, 0.1)]
            for offset, place, _ in read:
                if offset >= ends[place] - 1:
                    left.pop(place, None)
            return read

        try:
            reader.assign([ClientPartition(*place, 0) for place in ends])
            for offset, place, record in gather(read_more, lambda _: not left, _TIMEOUT_S):
                if offset < ends[place]:
                    found[place].append((offset, record))
        finally:
            reader.close()
        return {
            topic: [
                record for place in sorted(found) if place.topic == topic for record in found[place]
            ]
            for topic in topics
        }

    def _topics(self) -> Mapping[str, Any]:
        try:
            return self._admin.list_topics(timeout=_TIMEOUT_S).topics
        except KafkaException as error:
            if error.args[0].code() != KafkaError._TRANSPORT:
                raise
        # The broker was restarted since this client has spoken to it.
        return self._admin.list_topics(timeout=_TIMEOUT_S).topics

    def _offsets(
        self,
        places: list[ClientPartition],
        spec: Any,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, int]:
        try:
            return self._offsets_now(places, spec, isolation)
        except KafkaException as error:
            if error.args[0].code() not in _OTHER_EPOCHS:
                raise
        # A client remembers who led a partition before the broker was restarted.
        self._admin = AdminClient({"bootstrap.servers": self._bootstrap})
        return self._offsets_now(places, spec, isolation)

    def _offsets_now(
        self, places: list[ClientPartition], spec: Any, isolation: IsolationLevel
    ) -> dict[TopicPartition, int]:
        asked = self._admin.list_offsets(dict.fromkeys(places, spec), isolation_level=isolation)
        return {
            TopicPartition(p.topic, p.partition): future.result().offset
            for p, future in asked.items()
        }


def _read(message: Any) -> _Read:
    assert message.error() is None
    place = TopicPartition(message.topic(), message.partition())
    _, timestamp = message.timestamp()
    return (
        message.offset(),
        place,
        Found(place.partition, message.key(), message.value(), timestamp),
    )
