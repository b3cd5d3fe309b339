"""Sends events at a steady rate, regardless of delays of earlier events.

    pacer.py SERVERS TOPIC RATE SECONDS KEYS STATISTICS

A record's timestamp is its due time. The lateness of the pacer is included in the latency of
records, so that delays are not hidden. At the end, the pacer writes its statistics.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

from computations import PASS_ABOVE
from confluent_kafka import Producer
from harness.load import SEED, event_json, user_key

#: The number of different records, which repeat; a prime, so that all keys and kinds combine.
DISTINCT_RECORDS = 99_991
#: Shorter sleeps are inaccurate.
MIN_SLEEP_S = 0.0005
FLUSH_DEADLINE_S = 60.0


def pace(servers: str, topic: str, rate: int, seconds: float, keys: int) -> dict[str, object]:
    """Send all records; return the statistics to write."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "partitioner": "murmur2_random",
            "linger.ms": 0.5,
            "queue.buffering.max.messages": 2_000_000,
            "log_level": 3,
        }
    )
    # Connecting to the broker is not part of the schedule.
    producer.list_topics(topic, timeout=30)
    records, passes = _distinct_records(keys)
    total = int(rate * seconds)
    sent, latest_s = 0, 0.0
    began_ns = time.time_ns() + 100_000_000
    while sent < total:
        now_ns = time.time_ns()
        due = min(total, (now_ns - began_ns) * rate // 1_000_000_000 + 1)
        if due <= sent:
            time.sleep(max(MIN_SLEEP_S, (began_ns - now_ns) / 1e9 + sent / rate))
            continue
        latest_s = max(latest_s, (now_ns - began_ns) / 1e9 - sent / rate)
        for number in range(sent, due):
            key, value = records[number % DISTINCT_RECORDS]
            due_ms = (began_ns + number * 1_000_000_000 // rate) // 1_000_000
            producer.produce(topic, value, key, timestamp=due_ms)
        sent = due
        producer.poll(0)
    if producer.flush(FLUSH_DEADLINE_S):
        raise SystemExit("records were not sent")
    return {"began_ns": began_ns, "sent": total, "late_ms": latest_s * 1000, "passes": passes}


def _distinct_records(keys: int) -> tuple[list[tuple[bytes, bytes]], list[int]]:
    draw = random.Random(SEED).random
    records: list[tuple[bytes, bytes]] = []
    passes = []
    for number in range(DISTINCT_RECORDS):
        user, amount = int(draw() * keys), int(draw() * 10_000) / 100
        records.append((user_key(user), event_json(number, user, amount)))
        passes.append(int(amount > PASS_ABOVE))
    return records, passes


def main() -> None:
    servers, topic, rate, seconds, keys, statistics = sys.argv[1:]
    result = pace(servers, topic, int(rate), float(seconds), int(keys))
    Path(statistics).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
