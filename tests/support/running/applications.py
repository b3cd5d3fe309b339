"""An application of any topology on a broker: its topics, runs and remaining work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from millstream import KafkaStreams, StreamsConfig, Topology
from millstream.record import TopicPartition
from millstream.testing import EmbeddedKafka
from support.broker.restore_counts import RestoreCounts
from support.broker.topics import BrokerTopics, unique
from support.waiting import wait_for

_RUNNING = timedelta(seconds=90)
_CLOSED = timedelta(seconds=60)
_DONE_S = 90


class Application:
    """An application and its topics, whose names begin with the application's.

    Args:
        topology: makes the topology from the application's name.
        inputs: the partition counts of the input topics, by names without the application's.
        outputs: the same of the output topics.
    """

    def __init__(
        self,
        kafka: EmbeddedKafka,
        topology: Callable[[str], Topology],
        inputs: Mapping[str, int],
        outputs: Mapping[str, int],
    ) -> None:
        self.name = unique("dsl")
        # Topics are filled and read without the security settings of the application.
        self.places = BrokerTopics(kafka.unsecured_servers)
        self._bootstrap = kafka.bootstrap_servers
        self._topology = topology
        self.inputs = {self.topic(name) for name in inputs}
        self.outputs = {self.topic(name) for name in outputs}
        counts = {**inputs, **outputs}
        self.places.create({self.topic(name): count for name, count in counts.items()})

    def topic(self, name: str) -> str:
        """The full name of a topic."""
        return f"{self.name}-{name}"

    def create_input(self, name: str, partitions: int) -> None:
        """Create another input topic."""
        self.places.create({self.topic(name): partitions})
        self.inputs.add(self.topic(name))

    def streams(self, spark: SparkSession, state_dir: Path, **settings: Any) -> KafkaStreams:
        """The application, not started."""
        config = StreamsConfig(
            application_id=self.name,
            bootstrap_servers=self._bootstrap,
            **{
                "state_dir": str(state_dir),
                "commit_interval_ms": 200,
                "num_stream_threads": 2,
                **settings,
            },
        )
        return KafkaStreams(self._topology(self.name), config, spark)

    @contextmanager
    def running(
        self, spark: SparkSession, state_dir: Path, **settings: Any
    ) -> Iterator[tuple[KafkaStreams, RestoreCounts]]:
        """The running application and its restore counts; closed at the end, within a time
        limit."""
        streams = self.streams(spark, state_dir, **settings)
        restored = RestoreCounts()
        streams.set_global_state_restore_listener(restored)
        streams.set_standby_update_listener(restored)
        streams.start()
        try:
            streams.wait_for_state("RUNNING", _RUNNING)
            yield streams, restored
        finally:
            assert streams.close(_CLOSED)

    def internal_topics(self) -> dict[str, int]:
        """The partition counts of its internal topics, by names without the application's."""
        counts = self.places.partition_counts(self.topic(""))
        return {
            topic.removeprefix(self.topic("")): count
            for topic, count in counts.items()
            if topic not in self.inputs | self.outputs
        }

    def changelog_sizes(self) -> dict[TopicPartition, int]:
        """The number of records of each changelog partition."""
        names = [name for name in self.internal_topics() if name.endswith("-changelog")]
        return {
            place: high - low
            for place, (low, high) in self.places.ends(map(self.topic, names)).items()
        }

    @property
    def lag(self) -> int:
        """The number of input records that it has not committed."""
        return self.places.lag(self.name, self.inputs)

    def wait_until_done(self) -> None:
        """Wait until everything is committed, including records in internal topics."""
        names = [name for name in self.internal_topics() if not name.endswith("-changelog")]
        read = {*self.inputs, *map(self.topic, names)}

        def is_done() -> bool:
            before = self.places.ends(read)
            return self.places.lag(self.name, read) == 0 and self.places.ends(read) == before

        wait_for(is_done, _DONE_S, "all input is committed")


def values(streams: KafkaStreams, name: str) -> list[float | str]:
    """The values of its metrics with this name."""
    return [each.value for each in streams.metrics().named(name)]


def processed(streams: KafkaStreams) -> int:
    """The number of records that its threads have processed."""
    return int(streams.metrics().total("process-total", "stream-thread-metrics"))
