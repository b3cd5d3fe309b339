"""Fills and reads topics of a real broker, independently of the engine's own clients."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
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

from millstream.kafka.partitioner import partition_for
from millstream.record import TopicPartition
from support.waiting import gather, wait_for

_numbers = itertools.count()
_TIMEOUT_S = 60
#: Longer than any broker outage of a test, including outages of a whole cluster.
_FLUSH_S = 240
_OTHER_EPOCHS = {KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH}
#: Errors that a broker returns before it has received its first request for a group.
_NOT_READY = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}


class InputRecord(NamedTuple):
    """A record to write."""

    topic: str
    partition: int
    key: str | None
    value: str | None
    timestamp: int


def keyed(topic: str, partitions: int, key: str, value: str | None, timestamp: int) -> InputRecord:
    """A record in the partition of its key."""
    return InputRecord(topic, partition_for(key.encode(), partitions), key, value, timestamp)


class TopicRecord(NamedTuple):
    """A record of a topic."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int


def unique(name: str) -> str:
    """A name that no other test of this session uses."""
    return f"{name}-{next(_numbers)}"


class Writer:
    """Writes records with acknowledgment, each exactly once.

    Args:
        on_delivered: called with each acknowledged message.
    """

    def __init__(
        self, bootstrap: str, on_delivered: Callable[[Any], object] = lambda message: None
    ) -> None:
        self._on_delivered = on_delivered
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 20,
                "partitioner": "murmur2_random",
                # A record whose acknowledgment is lost must not be duplicated, and a retried batch
                # (which is common for a new topic) must not be written after later ones.
                "enable.idempotence": True,
                # Many tests are about unavailable brokers.
                "log_level": 2,
            }
        )

    def write(self, topic: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> int:
        """Write keys and values and return their number."""
        return self.write_records((topic, -1, key, value, 0) for key, value in records)

    def write_records(self, records: Iterable[tuple[str, int, Any, Any, int]]) -> int:
        """Write `InputRecord`s in order and return their number.

        The key determines the partition of those with partition -1.
        """
        failed: list[object] = []

        def delivered(error: object, message: object) -> None:
            if error is not None:
                failed.append(error)
            else:
                self._on_delivered(message)

        count = 0
        for topic, partition, key, value, timestamp in records:
            while True:
                try:
                    self._producer.produce(
                        topic, value, key, partition, timestamp=timestamp, on_delivery=delivered
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
            count += 1
            self._producer.poll(0)
        assert self._producer.flush(_FLUSH_S) == 0
        assert not failed
        return count


class BrokerTopics:
    """The topics of a broker; each request covers many topics."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, topics: Mapping[str, int]) -> None:
        """Create topics with these numbers of partitions."""
        new = [NewTopic(name, partitions) for name, partitions in topics.items()]
        for future in self._admin.create_topics(new, request_timeout=_TIMEOUT_S).values():
            future.result()

    def grow(self, topic: str, partitions: int) -> None:
        """Increase the number of partitions of a topic."""
        for future in self._admin.create_partitions(
            [NewPartitions(topic, partitions)], request_timeout=_TIMEOUT_S
        ).values():
            future.result()

    def delete(self, *topics: str) -> None:
        """Delete topics and wait until they are gone."""
        for future in self._admin.delete_topics(
            list(topics), request_timeout=_TIMEOUT_S, operation_timeout=_TIMEOUT_S
        ).values():
            future.result()
        names = set(topics)
        wait_for(
            lambda: not names & self._admin.list_topics(timeout=_TIMEOUT_S).topics.keys(),
            _TIMEOUT_S,
            f"{topics} are deleted",
        )

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete the records before an offset of each partition, as retention does."""
        requests = [ClientPartition(*place, offset) for place, offset in before.items()]
        for future in self._admin.delete_records(requests).values():
            future.result()

    def write(self, records: Iterable[InputRecord]) -> None:
        """Write records in order, and wait for the acknowledgments."""
        Writer(self._bootstrap).write_records(records)

    def partition_counts(self, prefix: str) -> dict[str, int]:
        """Topics with this prefix and their partition counts."""
        topics = self._admin.list_topics(timeout=_TIMEOUT_S).topics
        return {
            name: len(topic.partitions) for name, topic in topics.items() if name.startswith(prefix)
        }

    def configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """The config of each topic."""
        resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
        return {
            resource.name: {name: entry.value for name, entry in future.result().items()}
            for resource, future in self._admin.describe_configs(resources).items()
        }

    def ends(self, topics: Iterable[str]) -> dict[TopicPartition, tuple[int, int]]:
        """The start and end offset of each partition."""
        selected = set(topics)
        counts = {name: topic for name, topic in self._topics().items() if name in selected}
        places = [
            ClientPartition(name, number)
            for name, topic in counts.items()
            for number in topic.partitions
        ]
        low = self._offsets(places, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        high = self._offsets(places, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return {place: (low[place], high[place]) for place in high}

    def group(self, name: str) -> Any:
        """The broker's description of a group and its members."""

        def described() -> Any:
            (answer,) = self._admin.describe_consumer_groups(
                [name], request_timeout=_TIMEOUT_S
            ).values()
            try:
                return answer.result()
            except KafkaException as error:
                if error.args[0].code() not in _NOT_READY:
                    raise

        return wait_for(described, 30, f"the group {name} is described")

    def unstable(self, prefix: str) -> dict[str, tuple[int, int]]:
        """Partitions with open transactions in topics with this prefix: the last stable offset,
        and the end."""
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
        """The number of records of these topics that the group has not committed."""
        committed = self.committed(group, topics)
        # Ends are read after the committed offsets: the input of committed output was written
        # earlier.
        ends = self.ends(topics)
        lag = 0
        for place, offset in committed.items():
            low, high = ends[place]
            lag += high - max(offset, low)
        return lag

    def committed(self, group: str, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """The committed offset of each partition of these topics; negative if there is none."""
        places = [ClientPartition(*place) for place in self.ends(topics)]
        with closing(Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})) as client:
            found = client.committed(places, _TIMEOUT_S)
        return {TopicPartition(each.topic, each.partition): each.offset for each in found}

    def read(self, topics: Sequence[str]) -> dict[str, list[TopicRecord]]:
        """All records of each topic, partition by partition, up to the current ends."""
        found = self.read_with_offsets(topics)
        return {topic: [record for _, record in found[topic]] for topic in topics}

    def read_with_offsets(self, topics: Sequence[str]) -> dict[str, list[tuple[int, TopicRecord]]]:
        """The same with the offset of each record."""
        found: dict[str, list[tuple[int, TopicRecord]]] = {topic: [] for topic in topics}
        for message in self.read_messages(topics):
            place, (_, timestamp) = message.partition(), message.timestamp()
            record = TopicRecord(place, message.key(), message.value(), timestamp)
            found[message.topic()].append((message.offset(), record))
        return found

    def read_messages(self, topics: Iterable[str]) -> list[Any]:
        """The same as received messages."""
        ends = {place: end for place, (low, end) in self.ends(topics).items() if end > low}
        left = set(ends)
        reader = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )

        def read_more() -> list[Any]:
            if (first := reader.poll(1)) is None:
                return []
            found = []
            message: Any
            for message in (first, *reader.consume(1_000, 0)):
                place = TopicPartition(message.topic(), message.partition())
                if (error := message.error()) is not None:
                    # The end may consist of transaction markers or an open transaction.
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    left.discard(place)
                elif message.offset() < ends[place]:
                    found.append(message)
                if message.offset() >= ends[place] - 1:
                    left.discard(place)
            return found

        with closing(reader):
            reader.assign([ClientPartition(*place, OFFSET_BEGINNING) for place in ends])
            messages = gather(read_more, lambda _: not left, _TIMEOUT_S)
        return sorted(messages, key=lambda each: (each.topic(), each.partition(), each.offset()))

    def _topics(self) -> Mapping[str, Any]:
        try:
            return self._admin.list_topics(timeout=_TIMEOUT_S).topics
        except KafkaException as error:
            if error.args[0].code() != KafkaError._TRANSPORT:
                raise
        # The broker was restarted after the last request of this client.
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
        # A client caches the leaders of partitions from before a broker's restart.
        self._admin = AdminClient({"bootstrap.servers": self._bootstrap})
        return self._offsets_now(places, spec, isolation)

    def _offsets_now(
        self, places: list[ClientPartition], spec: Any, isolation: IsolationLevel
    ) -> dict[TopicPartition, int]:
        request = self._admin.list_offsets(dict.fromkeys(places, spec), isolation_level=isolation)
        return {
            TopicPartition(p.topic, p.partition): future.result().offset
            for p, future in request.items()
        }


def fill(bootstrap: str, topic: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> int:
    """Write records, acknowledged, and return their number."""
    return Writer(bootstrap).write(topic, records)


def read_all(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Every committed record of a topic up to its current end, partition by partition."""
    return [(each.key(), each.value()) for each in BrokerTopics(bootstrap).read_messages([topic])]


def latest(bootstrap: str, topic: str) -> dict[bytes | None, bytes | None]:
    """The last value of each key."""
    return dict(read_all(bootstrap, topic))


def committed_lag(bootstrap: str, group: str, topic: str) -> int:
    """The number of records of a topic that the group has not committed."""
    return BrokerTopics(bootstrap).lag(group, [topic])


def topic_names(bootstrap: str) -> set[str]:
    """The topics of the cluster."""
    return set(BrokerTopics(bootstrap).partition_counts(""))


def group_members(bootstrap: str, group: str) -> int:
    """The number of members of a group."""
    return len(BrokerTopics(bootstrap).group(group).members)
