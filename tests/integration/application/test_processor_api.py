"""A processor with a store, both kinds of punctuation and requested commits, on Spark."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from support.broker.topics import committed_lag, fill, latest, read_all, unique
from support.waiting import wait_for

from millstream import (
    KafkaStreams,
    Processor,
    PunctuationType,
    Record,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    Topology,
)
from millstream.serdes import LONG, STRING
from millstream.testing import EmbeddedKafka

KEYS, EACH = 50, 40


class Count(Processor[str, str, str, str]):
    """Counts by key in a store; forwards the counts by wall clock, marks by stream time."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.counts = context.get_state_store("counts")
        self.forwarded: dict[str, int] = {}
        every = timedelta(milliseconds=100)
        context.schedule(every, PunctuationType.WALL_CLOCK_TIME, self.forward_counts)
        context.schedule(every, PunctuationType.STREAM_TIME, self.mark)

    def process(self, record: Record[str, str]) -> None:
        if record.value == "commit":
            self.context.commit()
            return
        self.counts.put(record.key, (self.counts.get(record.key) or 0) + 1)

    def forward_counts(self, time_ms: int) -> None:
        for key, count in self.counts.all():
            if self.forwarded.get(key) != count:
                self.forwarded[key] = count
                self.context.forward(Record(key, str(count), time_ms))

    def mark(self, time_ms: int) -> None:
        stream_time = self.context.current_stream_time_ms()
        place = self.context.record_metadata()
        self.context.forward(Record("mark", f"{stream_time} {place}", time_ms))


def counting(words: str, counts: str) -> Topology:
    """The timestamps of records are in their values."""
    builder = StreamsBuilder()
    store = Stores.key_value_builder(Stores.persistent_key_value("counts"), STRING, LONG)
    builder.add_state_store(store)
    stream = builder.stream(words, key=STRING, value=STRING, timestamp_extractor=time_of)
    stream.process(Count, stores=["counts"]).to(counts, key=STRING, value=STRING)
    return builder.build()


def time_of(record: Any, partition_time: int) -> int:
    return int(record.value) if record.value.isdigit() else partition_time


def test_punctuations_stores_and_commits(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Only the processor requests commits; a restart continues from there."""
    name = unique("processor")
    words, counts = f"{name}-words", f"{name}-counts"
    for topic in (words, counts):
        kafka.create_topic(topic, 1)
    bootstrap = kafka.bootstrap_servers
    config = StreamsConfig(
        application_id=name,
        bootstrap_servers=bootstrap,
        state_dir=str(tmp_path),
        commit_interval_ms=600_000,
    )
    keys = [f"k{number}".encode() for number in range(KEYS)]
    for round_ in range(2):
        start_ms = 1_000 + round_ * EACH * 10
        fill(
            bootstrap,
            words,
            [(key, str(start_ms + 10 * n).encode()) for n in range(EACH) for key in keys],
        )
        streams = KafkaStreams(counting(words, counts), config, spark)
        streams.start()
        try:
            expected = {key: str(EACH * (round_ + 1)).encode() for key in keys}
            wait_for(
                lambda expected=expected: (
                    {  # type: ignore[misc]
                        k: v for k, v in latest(bootstrap, counts).items() if k != b"mark"
                    }
                    == expected
                ),
                60,
                "every count was forwarded by wall clock",
            )
            assert committed_lag(bootstrap, name, words) == KEYS * EACH
            fill(bootstrap, words, [(b"k0", b"commit")])
            wait_for(lambda: committed_lag(bootstrap, name, words) == 0, 30, "the requested commit")
        finally:
            assert streams.close(timedelta(seconds=30))
    marks = [
        value.decode() for key, value in read_all(bootstrap, counts) if key == b"mark" and value
    ]
    # With the first record, then every 100 ms; a restarted task punctuates once at the committed
    # stream time.
    times = [*range(1_000, 1_400, 100), 1_390, *range(1_400, 1_800, 100)]
    nowhere = "RecordMetadata(topic=None, partition=-1, offset=-1)"
    assert marks == [f"{time} {nowhere}" for time in times]
