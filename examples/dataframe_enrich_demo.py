"""What `dataframe_enrich.py --demo` adds: a broker, products, visits, a check of every count."""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
from confluent_kafka import Consumer, Producer, TopicPartition

from millstream import EXACTLY_ONCE_V2, KafkaStreams, StreamsConfig, Topology
from millstream.testing import EmbeddedKafka

VISITS = 2_000
DEADLINE_S = 90.0
CATEGORIES = ("books", "music", "games")


def run(enrichment: Callable[[str], Topology]) -> int:
    """0 if every count is right."""
    dice = random.Random(7)
    products = {f"product-{number}": dice.choice(CATEGORIES) for number in range(90)}
    expected: Counter[str] = Counter()
    print("Starting an Apache Kafka broker and Spark …", flush=True)
    with tempfile.TemporaryDirectory(prefix="visits-") as folder, EmbeddedKafka() as kafka:
        table = Path(folder, "products.parquet")
        columns = {"product": list(products), "category": list(products.values())}
        pyarrow.parquet.write_table(pa.table(columns), table)
        for topic in ("visits", "visits-by-category"):
            kafka.create_topic(topic, 2)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        for _ in range(VISITS):
            # Some products are not in the table, and some visits are too short to count.
            product, seconds = f"product-{dice.randrange(100)}", dice.randrange(30)
            if seconds > 1:
                expected[products.get(product, "unknown")] += 1
            visit = json.dumps({"product": product, "seconds": seconds})
            producer.produce("visits", visit, f"visitor-{dice.randrange(40)}")
        producer.flush()
        config = StreamsConfig(
            application_id="dataframe-enrich",
            bootstrap_servers=kafka.bootstrap_servers,
            state_dir=folder,
            processing_guarantee=EXACTLY_ONCE_V2,
        )
        streams = KafkaStreams(enrichment(str(table)), config)
        streams.start()
        try:
            found = last_counts(kafka.bootstrap_servers, dict(expected))
        finally:
            streams.close(timedelta(seconds=30))
    for category, count in sorted(found.items()):
        print(f"{category:>8}: {count:5} visits")
    if found != dict(expected):
        print(f"WRONG: expected {dict(expected)}")
        return 1
    print(f"{VISITS} visits went through Spark SQL, and every count is right")
    return 0


def last_counts(bootstrap_servers: str, expected: dict[str, int]) -> dict[str, int]:
    """The last count of each category, once they are as expected or it takes too long."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "c", "log_level": 3})
    consumer.assign([TopicPartition("visits-by-category", number, 0) for number in range(2)])
    found: dict[str, int] = {}
    deadline = time.monotonic() + DEADLINE_S
    while found != expected and time.monotonic() < deadline:
        for record in consumer.consume(1_000, 0.1):
            found[(record.key() or b"").decode()] = int.from_bytes(record.value() or b"")
    consumer.close()
    return found
