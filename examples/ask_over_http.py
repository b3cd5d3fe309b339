"""Counts words, and serves the counts over HTTP.

    python examples/ask_over_http.py --demo
    python examples/ask_over_http.py --bootstrap-servers localhost:9092 --port 8080

The program prints the address and the token for requests; docs/operations/http.md describes the
requests. With --demo, it starts a broker (this requires Java 17), writes some lines, and queries
the counts over HTTP.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from confluent_kafka import Producer

from millstream import KafkaStreams, ServerAddress, StreamsBuilder, StreamsConfig, Topology
from millstream.serdes import STRING
from millstream.testing import EmbeddedKafka

TOPIC, PARTITIONS = "lines", 2
LINES = ["the mill turns", "the river turns the mill", "water/under the bridge"] * 100
DEADLINE_S = 60.0


def counting(topic: str) -> Topology:
    """Build a topology that counts the words in lines of text."""
    builder = StreamsBuilder()
    lines = builder.stream(topic, key=STRING, value=STRING)
    words = lines.flat_map_values(str.split).group_by(
        lambda key, word: word, key=STRING, value=STRING
    )
    words.count(store="counts")
    return builder.build()


def get(address: ServerAddress, path: str) -> Any:
    """Return the document at a path, or None if it does not exist yet."""
    request = urllib.request.Request(address.url + path)
    request.add_header("Authorization", f"Bearer {address.token}")
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        if error.code in (404, 503):
            return None
        raise


def pages(address: ServerAddress, path: str) -> dict[str, int]:
    """Read the keys and values of a range, page by page."""
    found: dict[str, int] = {}
    cursor = ""
    while True:
        page = get(address, f"{path}?limit=3{cursor}")
        if page is None:
            return found
        found |= {entry["key"]: entry["value"] for entry in page["entries"]}
        if page["cursor"] is None:
            return found
        cursor = f"&cursor={page['cursor']}"


def demo() -> int:
    """Count words, and query the counts; return 0 if they are correct."""
    expected = Counter(word for line in LINES for word in line.split())
    with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory() as folder:
        kafka.create_topic(TOPIC, partitions=PARTITIONS)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        for number, line in enumerate(LINES):
            producer.produce(TOPIC, line.encode(), partition=number % PARTITIONS)
        producer.flush()
        config = StreamsConfig(
            application_id="ask-over-http",
            bootstrap_servers=kafka.bootstrap_servers,
            state_dir=folder,
            server_port=0,
        )
        with KafkaStreams(counting(TOPIC), config) as streams:
            address = streams.server_address
            assert address is not None
            print(f"querying {len(expected)} words at {address.url}")
            deadline = time.monotonic() + DEADLINE_S
            found: dict[str, int] = {}
            while found != expected and time.monotonic() < deadline:
                time.sleep(0.2)
                found = pages(address, "/stores/counts/range")
            one = get(address, f"/stores/counts/keys/{quote('water/under', safe='')}")
            print(f"GET /stores/counts/keys/water%2Funder: {json.dumps(one)}")
            streams.close(timedelta(seconds=30))
    ok = found == expected and one["value"] == expected["water/under"]
    print("every result is correct" if ok else f"WRONG: {found}, {one}")
    return 0 if ok else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Serves word counts over HTTP.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-servers", help="your broker; the topic must exist on it")
    where.add_argument("--demo", action="store_true", help="start a broker, and check the results")
    parser.add_argument("--topic", default=TOPIC)
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    if options.demo:
        return demo()
    config = StreamsConfig(
        application_id="ask-over-http", bootstrap_servers=options.bootstrap_servers
    )
    streams = KafkaStreams(counting(options.topic), config)
    print(f"the console is at {streams.serve(port=options.port).console}")
    streams.run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
