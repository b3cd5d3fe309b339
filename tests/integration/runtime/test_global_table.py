"""Global stores of a running application: each thread has a copy, and keeps it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from rocksdict import Options
from support.broker.restored import Restored
from support.broker.topics import fill, latest, read_all, unique
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


class FillRates(Processor[str, str, None, None]):
    """Keeps what it reads in another form, and what it does not keep goes nowhere."""

    def process(self, record: Record[str, str]) -> None:
        self.context.get_state_store("rates").put(record.key, f"{record.value} %")
        self.context.forward(record)  # type: ignore[arg-type]


class AddRate(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        rate = self.context.get_state_store("rates").get("vat")
        self.context.forward(record.with_value(f"{record.value}, {rate}"))


class Shop:
    """Users of a country, joined with the countries and with a rate."""

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
        builder.add_global_store(rates, self.rates, FillRates, key=STRING, value=STRING)
        (
            builder.stream(self.users, key=STRING, value=STRING)
            .left_join(countries, lambda code, name: f"{name}", key_selector=lambda _, code: code)
            .process(AddRate)
            .to(self.joined, key=STRING, value=STRING)
        )
        return KafkaStreams(builder.build(), self._config, self._spark)

    @contextmanager
    def running(self) -> Iterator[Restored]:
        """Run the application, until it is closed in time."""
        streams, restored = self.streams(), Restored()
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

    def finds(self, wanted: str) -> bool:
        """Whether the last users written were all joined with that."""
        wait_for(lambda: len(read_all(self.bootstrap, self.joined)) >= self._written, 30, "joined")
        return set(latest(self.bootstrap, self.joined).values()) == {wanted.encode()}

    def joins(self, code: str, wanted: str) -> bool:
        """Whether users are joined with that now."""
        self.write_users(code)
        return self.finds(wanted)

    def truncate(self, topic: str) -> None:
        """Delete all records that there are."""
        reader = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "ends"})
        try:
            places = [
                TopicPartition(topic, n) for n in reader.list_topics(topic).topics[topic].partitions
            ]
            for place in places:
                place.offset = reader.get_watermark_offsets(place, timeout=30)[1]
        finally:
            reader.close()
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.delete_records(places).values():
            future.result(30)


def test_each_thread_has_a_copy_and_keeps_it(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: every thread sees the whole table before it processes anything, and updates while it
    runs; a restart reads what is new; a topic that has lost records is read from what is left.

    Method: users of all partitions are joined; the restore listener counts the records read.
    """
    shop = Shop(kafka, tmp_path, spark)
    shop.write(shop.countries, {f"c{number}": f"old{number}" for number in range(COUNTRIES)})
    shop.write(shop.rates, {"vat": "19"})
    shop.write_users("c299")
    with shop.running() as restored:
        assert shop.finds("old299, 19 %")
        shop.write(shop.countries, {"c17": "new17", "c18": "new18"})
        wait_for(lambda: shop.joins("c17", "new17, 19 %"), 20, "an update of the table is seen")
        shop.write(shop.rates, {"vat": "16"})
        wait_for(lambda: shop.joins("c18", "new18, 16 %"), 20, "an update of the store is seen")
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


class Notes(Processor[str, str, None, None]):
    """Keeps what it reads, and notes it in a file; each copy begins with a line of its own."""

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


def test_global_stores_alone(kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path) -> None:
    """Goal: an application without any other topic is RUNNING when they have caught up, keeps them
    up to date, closes in order, and reads only what is new when it is started again. There is one
    copy and no group, whatever the number of threads: nobody would share anything out."""
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
    noting = type("NotesThere", (Notes,), {"path": notes})
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
        wait_for(lambda: "vat 16" in written(), 20, "an update is seen")
        assert first.close(timedelta(seconds=30))
    notes.unlink()
    with streams() as second:
        second.wait_for_state("RUNNING", timedelta(seconds=60))
        assert written() == ["a copy"]
        assert second.close(timedelta(seconds=30))
    # The user's options have travelled to the worker, and into its database.
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
