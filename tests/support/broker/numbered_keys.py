"""Records whose values count up within their keys, and where each of them is in its topic."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from support.broker.topics import read_all
from support.meanwhile import meanwhile
from support.running.topologies.work_log import Looked

_TIMEOUT_S = 30
_PAUSE_S = 0.05
_LOOK_S = 0.2


class NumberedKeys:
    """Writes to one topic.

    Args:
        bootstrap: the broker.
        topic: exists.
        keys: how many keys there are.

    Attributes:
        written: by key, how many.
    """

    def __init__(self, bootstrap: str, topic: str, keys: int) -> None:
        self.written: dict[str, int] = dict.fromkeys((f"key-{n}" for n in range(keys)), 0)
        self._bootstrap = bootstrap
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 2,
            }
        )
        #: By key: the partition, and the offset of each number.
        self._offsets: dict[str, list[int]] = defaultdict(list)
        self._partition: dict[str, int] = {}
        self._failed: list[Any] = []

    def write(self, count: int) -> None:
        """Write so many more, key by key in turn, and wait until they are there."""
        names = list(self.written)
        begin = sum(self.written.values())
        for turn in range(begin, begin + count):
            key = names[turn % len(names)]
            number, self.written[key] = self.written[key], self.written[key] + 1
            self._producer.produce(self._topic, b"%d" % number, key, on_delivery=self._delivered)
            self._producer.poll(0)
        assert self._producer.flush(_TIMEOUT_S) == 0
        assert not self._failed, self._failed[:3]

    @contextmanager
    def arriving(self, at_once: int, least: int = 0) -> Iterator[None]:
        """Records come all the while, a few every 50 ms, and so many in all at least."""
        with meanwhile(lambda: self.write(at_once), _PAUSE_S):
            yield
        self.write(max(0, least - sum(self.written.values())))

    def look(self, consumer: Consumer) -> Looked | None:
        """What a consumer's group has committed now; None if its coordinator cannot be asked."""
        partitions = sorted(set(self._partition.values()))
        places = [TopicPartition(self._topic, number) for number in partitions]
        try:
            found = {each.partition: each.offset for each in consumer.committed(places, _TIMEOUT_S)}
        except KafkaException:
            # The first group of a cluster waits for the topic of offsets.
            return None
        committed = {
            key: sum(offset < found[self._partition[key]] for offset in list(offsets))
            for key, offsets in list(self._offsets.items())
        }
        return Looked(time.monotonic_ns(), committed)

    @contextmanager
    def looking(self, group: str) -> Iterator[list[Looked]]:
        """Look again and again; all that was seen."""
        looks: list[Looked] = []
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})

        def look() -> None:
            if (seen := self.look(consumer)) is not None:
                looks.append(seen)

        with closing(consumer), meanwhile(look, _LOOK_S):
            yield looks

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(error)
            return
        key = message.key().decode()
        self._partition[key] = message.partition()
        self._offsets[key].append(message.offset())


def numbers_by_key(bootstrap: str, topic: str) -> dict[str, list[int]]:
    """The values of a topic that are such numbers, by key, in the order of the topic: those that a
    reader of committed records gets."""
    found: dict[str, list[int]] = defaultdict(list)
    for key, value in read_all(bootstrap, topic):
        assert key is not None
        assert value is not None
        found[key.decode()].append(int(value))
    return found
