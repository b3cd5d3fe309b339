"""Word count, as the integration tests run it, with exact counts to compare with."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from millstream import KafkaStreams, Materialized, StreamsBuilder, StreamsConfig, Topology
from millstream.serdes import LONG, STRING
from millstream.testing import EmbeddedKafka
from support.broker.topics import fill, latest, unique

RUNNING = timedelta(seconds=60)


class WordCount:
    """A word count application on its own topics."""

    def __init__(
        self,
        kafka: EmbeddedKafka,
        state_dir: Path,
        *,
        partitions: int = 4,
        kind: Any = "rocksdb",
        commit_interval_ms: int = 200,
        split: Callable[[str], list[str]] = str.split,
        **settings: Any,
    ) -> None:
        # Topics are filled and read without the security settings of the application.
        self.bootstrap = kafka.unsecured_servers
        self._servers = kafka.bootstrap_servers
        self.application_id = unique("word-count")
        self.lines = f"{self.application_id}-lines"
        self.counts = f"{self.application_id}-counts"
        self.store = "counts"
        self.expected: Counter[str] = Counter()
        self._random = random.Random(self.application_id)
        self._kind = kind
        self._split = split
        self._settings: dict[str, Any] = {
            "state_dir": str(state_dir),
            "commit_interval_ms": commit_interval_ms,
            "num_stream_threads": 2,
            "consumer": {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000},
            **settings,
        }
        kafka.create_topic(self.lines, partitions)
        kafka.create_topic(self.counts, partitions)

    @property
    def repartition_topic(self) -> str:
        return f"{self.application_id}-{self.store}-repartition"

    @property
    def changelog_topic(self) -> str:
        return f"{self.application_id}-{self.store}-changelog"

    def topology(self) -> Topology:
        builder = StreamsBuilder()
        (
            builder.stream(self.lines, key=STRING, value=STRING)
            .flat_map_values(self._split)
            .group_by(lambda _, word: word, key=STRING, value=STRING)
            .count(store=Materialized(self.store, kind=self._kind, key=STRING, value=LONG))
            .to_stream()
            .to(self.counts, key=STRING, value=LONG)
        )
        return builder.build()

    def config(self, **settings: Any) -> StreamsConfig:
        return StreamsConfig(
            application_id=self.application_id,
            bootstrap_servers=self._servers,
            **{**self._settings, **settings},
        )

    def streams(self, spark: Any = None, **settings: Any) -> KafkaStreams:
        return KafkaStreams(self.topology(), self.config(**settings), spark)

    def write_lines(self, count: int) -> None:
        """Write lines of a few words with very different frequencies, and count them exactly."""
        vocabulary = [f"word{i}" for i in range(200)]
        weights = [1 / (i + 1) for i in range(200)]
        lines = [self._random.choices(vocabulary, weights, k=8) for _ in range(count)]
        for line in lines:
            self.expected.update(line)
        fill(self.bootstrap, self.lines, ((None, " ".join(line).encode()) for line in lines))

    def found(self) -> dict[str, int]:
        """The last count of each word in the output topic."""
        return {
            (key or b"").decode(): LONG.deserialize("", value) or 0
            for key, value in latest(self.bootstrap, self.counts).items()
        }

    def is_exact(self) -> bool:
        return self.found() == dict(self.expected)
