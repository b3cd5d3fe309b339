"""Global stores of a running application: each thread keeps a copy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from rocksdict import Options
from support.broker.restore_counts import RestoreCounts
from support.broker.topics import BrokerTopics, fill, latest, read_all, unique
from support.waiting import wait_for

from millstream import (
    KafkaStreams,
    MissingSourceTopicError,
    Processor,
    ProcessorContext,
    Record,
    Stores,
    StreamsBuilder,
    StreamsConfig,
)
from millstream.serdes import STRING
from millstream.testing import EmbeddedKafka

THREADS, PARTITIONS, USERS, COUNTRIES = 2, 4, 16, 300


class ConvertRates(Processor[str, str, None, None]):
    """Stores records in a converted form; its forwarded records are dropped."""

    def process(self, record: Record[str, str]) -> None:
        self.context.get_state_store("rates").put(record.key, f"{record.value} %")
        self.context.forward(record)  # type: ignore[arg-type]


class AddRate(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        rate = self.context.get_state_store("rates").get("vat")
        self.context.forward(record.with_value(f"{record.value}, {rate}"))


class Shop:
    """Users with a country, joined with the countries and with a rate."""

    def __init__(
        self, kafka: EmbeddedKafka, state_dir: Path, spark: SparkSession, *, rated: bool = True
    ) -> None:
        name = unique("shop")
        self._written = 0
        self.bootstrap = kafka.bootstrap_servers
        self.users, self.joined = f"{name}-users", f"{name}-joined"
        self.countries, self.rates = f"{name}-countries", f"{name}-rates"
        self._spark = spark
        self._config = StreamsConfig(
            application_id=name,
            bootstrap_servers=self.bootstrap,
            state_dir=str(state_dir),
            num_stream_threads=THREADS,
            commit_interval_ms=200,
        )
        for topic, partitions in (
            (self.users, PARTITIONS),
            (self.joined, 1),
            (self.countries, 3),
            *([(self.rates, 1)] if rated else []),
        ):
            kafka.create_topic(topic, partitions)

    def streams(self) -> KafkaStreams:
        builder = StreamsBuilder()
        countries = builder.global_table(
            self.countries, key=STRING, value=STRING, store="countries"
        )
        rates = Stores.key_value_builder(Stores.in_memory_key_value("rates"), STRING, STRING)
        builder.add_global_store(rates, self.rates, ConvertRates, key=STRING, value=STRING)
        (
            builder.stream(self.users, key=STRING, value=STRING)
            .left_join(countries, lambda code, name: f"{name}", key_selector=lambda _, code: code)
            .process(AddRate)
            .to(self.joined, key=STRING, value=STRING)
        )
        return KafkaStreams(builder.build(), self._config, self._spark)

    @contextmanager
    def running(self) -> Iterator[RestoreCounts]:
        """Run the application until the end of the block; it must close in time."""
        streams, restored = self.streams(), RestoreCounts()
        streams.set_global_state_restore_listener(restored)
        streams.start()
        try:
            streams.wait_for_state("RUNNING", timedelta(seconds=60))
            yield restored
        finally:
            assert streams.close(timedelta(seconds=30))

    def write(self, topic: str, values: dict[str, str]) -> None:
        fill(self.bootstrap, topic, [(k.encode(), v.encode()) for k, v in values.items()])

    def write_users(self, code: str) -> None:
        """Write users to all partitions, and so for all threads."""
        self.write(self.users, {f"user{number}": code for number in range(USERS)})
        self._written += USERS

    def has_joined(self, expected: str) -> bool:
        """Whether all of the last written users were joined with this value."""
        wait_for(lambda: len(read_all(self.bootstrap, self.joined)) >= self._written, 30, "joined")
        return set(latest(self.bootstrap, self.joined).values()) == {expected.encode()}

    def joins(self, code: str, expected: str) -> bool:
        """Whether users are joined with this value now."""
        self.write_users(code)
        return self.has_joined(expected)

    def truncate(self, topic: str) -> None:
        """Delete all existing records."""
        topics = BrokerTopics(self.bootstrap)
        topics.delete_records({place: end for place, (_, end) in topics.ends([topic]).items()})


@pytest.mark.extended
def test_each_thread_keeps_a_copy(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: every thread sees the whole table before it processes anything, and updates while it
    runs; a restart reads only new records; if the topic has lost records, the rest is read.

    Method: users of all partitions are joined; the restore listener counts the records.
    """
    shop = Shop(kafka, tmp_path, spark)
    shop.write(shop.countries, {f"c{number}": f"old{number}" for number in range(COUNTRIES)})
    shop.write(shop.rates, {"vat": "19"})
    shop.write_users("c299")
    with shop.running() as restored:
        assert shop.has_joined("old299, 19 %")
        shop.write(shop.countries, {"c17": "new17", "c18": "new18"})
        wait_for(lambda: shop.joins("c17", "new17, 19 %"), 20, "an update of the table is used")
        shop.write(shop.rates, {"vat": "16"})
        wait_for(lambda: shop.joins("c18", "new18, 16 %"), 20, "an update of the store is used")
    assert restored.by_store == {"countries": THREADS * COUNTRIES, "rates": THREADS}
    assert restored.finished == restored.by_store
    assert {time.start for time in restored.of("countries")} == {0}

    shop.write(shop.countries, {f"c{number}": "later" for number in range(10)})
    with shop.running() as restored:
        assert restored.by_store == {"countries": THREADS * 10, "rates": THREADS * 2}
        assert min(time.start for time in restored.of("countries")) > 0
        assert shop.joins("c9", "later, 16 %")
        assert shop.joins("c299", "old299, 16 %")

    shop.write(shop.countries, {f"c{number}": "lost" for number in range(30)})
    shop.truncate(shop.countries)
    shop.write(shop.countries, {"c9": "left"})
    with shop.running() as restored:
        assert restored.suspended > 0
        assert shop.joins("c9", "left, 16 %")
        assert shop.joins("c299", "None, 16 %")


class RecordingStore(Processor[str, str, None, None]):
    """Stores its input, and logs it in a file; each copy begins with a line of its own."""

    path: ClassVar[Path]

    def init(self, context: ProcessorContext[None, None]) -> None:
        super().init(context)
        self._note("a copy")

    def process(self, record: Record[str, str]) -> None:
        self.context.get_state_store("rates").put(record.key, record.value)
        self._note(f"{record.key} {record.value}")

    def _note(self, line: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{line}\n")


def small_buffers(store: str, options: Options, config: StreamsConfig) -> None:
    options.set_write_buffer_size(1_234_567)


def test_an_application_with_only_global_stores(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: an application without any other topic is RUNNING when its global stores have caught
    up, keeps them up to date, closes in an orderly way, and reads only new records after a restart.

    There is one copy and no group for any number of threads, because there are no partitions to
    share.
    """
    name = unique("alone")
    topic, notes = f"{name}-rates", tmp_path / "notes"
    kafka.create_topic(topic, 2)
    config = StreamsConfig(
        application_id=name,
        bootstrap_servers=kafka.bootstrap_servers,
        state_dir=str(tmp_path),
        num_stream_threads=3,
        rocksdb_config_setter=small_buffers,
    )
    builder = StreamsBuilder()
    rates = Stores.key_value_builder(Stores.persistent_key_value("rates"), STRING, STRING)
    noting = type("NotesThere", (RecordingStore,), {"path": notes})
    builder.add_global_store(rates, topic, noting, key=STRING, value=STRING)

    def written() -> list[str]:
        return sorted(notes.read_text().splitlines())

    def streams() -> KafkaStreams:
        return KafkaStreams(builder.build(), config, spark)

    fill(kafka.bootstrap_servers, topic, [(b"vat", b"19"), (b"duty", b"3")])
    with streams() as first:
        first.wait_for_state("RUNNING", timedelta(seconds=60))
        assert written() == ["a copy", "duty 3", "vat 19"]
        fill(kafka.bootstrap_servers, topic, [(b"vat", b"16")])
        wait_for(lambda: "vat 16" in written(), 20, "an update is used")
        assert first.close(timedelta(seconds=30))
    notes.unlink()
    with streams() as second:
        second.wait_for_state("RUNNING", timedelta(seconds=60))
        assert written() == ["a copy"]
        assert second.close(timedelta(seconds=30))
    # The user's options were shipped to the worker, and applied to its database.
    options = {path.parent.name: path.read_text() for path in tmp_path.rglob("OPTIONS-*")}
    assert options.keys() == {"rates"}
    assert "write_buffer_size=1234567" in options["rates"]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    groups = admin.list_consumer_groups().result(30).valid
    assert name not in {group.group_id for group in groups}


def test_a_global_topic_must_exist(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    shop = Shop(kafka, tmp_path, spark, rated=False)
    streams = shop.streams()
    with pytest.raises(MissingSourceTopicError, match=f"reads '{shop.rates}', which"):
        streams.start()
    assert streams.close()
