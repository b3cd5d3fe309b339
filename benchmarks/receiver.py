"""Receives results, and counts them by their latency in milliseconds.

    receiver.py SERVERS TOPIC STATISTICS

After SIGTERM, the receiver ends when no record has arrived for a second. It then writes its
statistics: the number of records by latency in milliseconds, for each second of due times.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

#: The maximum number of available records to take at once.
DRAIN = 500


def receive(servers: str, topic: str, stop: threading.Event) -> dict[int, Counter[int]]:
    """Return the number of records by latency in ms, for each second of due times."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "receiver",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "queued.min.messages": 1_000_000,
        }
    )
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    latencies: defaultdict[int, Counter[int]] = defaultdict(Counter)
    while True:
        # Wait for a single record, so that records do not wait for others.
        first = consumer.poll(1.0)
        if first is None:
            if stop.is_set():
                break
            continue
        batch = [first, *consumer.consume(DRAIN, 0)]
        now_ms = time.time_ns() // 1_000_000
        for record in batch:
            if record.error():
                raise KafkaException(record.error())
            due_ms = record.timestamp()[1]
            latencies[due_ms // 1000][now_ms - due_ms] += 1
    consumer.close()
    return latencies


def main() -> None:
    servers, topic, statistics = sys.argv[1:]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    latencies = receive(servers, topic, stop)
    Path(statistics).write_text(json.dumps(latencies))


if __name__ == "__main__":
    main()
