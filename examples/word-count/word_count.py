"""Counts the words of a Kafka topic.

    python examples/word-count/word_count.py --demo
    python examples/word-count/word_count.py --bootstrap-servers localhost:9092

With --demo, the program starts a broker, sends Newton's "Opticks" several times, shows the growing
counts, and checks every count at the end (see word_count_demo.py). This takes a minute; use --lines
5000 for a quick check of the installation.
"""

from __future__ import annotations

import argparse
import re

from millstream import KafkaStreams, StreamsBuilder, StreamsConfig, Topology
from millstream.serdes import LONG, STRING

WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def words(line: str) -> list[str]:
    """Return the words of a line in lowercase."""
    return WORD.findall(line.lower())


def word_count(input_topic: str = "lines", output_topic: str = "word-counts") -> Topology:
    """Build a topology that writes the current count of each word."""
    builder = StreamsBuilder()
    (
        builder.stream(input_topic, key=STRING, value=STRING)
        .flat_map_values(words)
        .group_by(lambda _, word: word, key=STRING, value=STRING)
        .count(store="counts")
        .to_stream()
        .to(output_topic, key=STRING, value=LONG)
    )
    return builder.build()


def main() -> int:
    parser = argparse.ArgumentParser(description="Counts the words of a Kafka topic.")
    broker = parser.add_mutually_exclusive_group(required=True)
    broker.add_argument("--bootstrap-servers", help="your broker; both topics must exist on it")
    broker.add_argument("--demo", action="store_true", help="start a broker, and count a text")
    parser.add_argument("--application-id", default="word-count")
    parser.add_argument("--input-topic", default="lines")
    parser.add_argument("--output-topic", default="word-counts")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lines", type=int, default=300_000, help="number of lines for --demo")
    options = parser.parse_args()
    topology = word_count(options.input_topic, options.output_topic)

    if options.demo:
        from word_count_demo import Demo

        return Demo(topology, words, options).run()

    config = StreamsConfig(
        application_id=options.application_id,
        bootstrap_servers=options.bootstrap_servers,
        num_stream_threads=options.threads,
        commit_interval_ms=1000,
    )
    KafkaStreams(topology, config).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
