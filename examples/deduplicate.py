"""Forwards each event of a Kafka topic once, with the Processor API.

    python examples/deduplicate.py --demo
    python examples/deduplicate.py --bootstrap-servers localhost:9092

Producers that retry write some events twice. In this program, the key identifies an event, and
duplicates within ten minutes of event time are dropped. With --demo, the program runs in the test
driver, without Kafka or Spark: it generates events with duplicates, and checks the output.
"""

from __future__ import annotations

import argparse
import random
from datetime import timedelta

from millstream import (
    KafkaStreams,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    Topology,
)
from millstream.serdes import BYTES, LONG, STRING
from millstream.testing import TopologyTestDriver

RETENTION = timedelta(minutes=10)
RETENTION_MS = RETENTION // timedelta(milliseconds=1)


class Deduplicate(Processor[str, bytes, str, bytes]):
    """Stores the time of the last event of each key, and deletes old keys."""

    def init(self, context: ProcessorContext[str, bytes]) -> None:
        super().init(context)
        self.seen = context.get_state_store("seen")
        # With stream time, a replay of the topic gives the same result.
        context.schedule(RETENTION, PunctuationType.STREAM_TIME, self.expire)

    def process(self, record: Record[str, bytes]) -> None:
        if record.key is None:
            return
        last = self.seen.get(record.key)
        self.seen.put(record.key, max(record.timestamp, last or 0))
        if last is None or abs(record.timestamp - last) > RETENTION_MS:
            self.context.forward(record)

    def expire(self, stream_time_ms: int) -> None:
        with self.seen.all() as entries:
            old = [key for key, last in entries if last < stream_time_ms - RETENTION_MS]
        for key in old:
            self.seen.delete(key)


def deduplicated(input_topic: str, output_topic: str) -> Topology:
    """Build a topology that forwards the first event of each key."""
    builder = StreamsBuilder()
    seen = Stores.key_value_builder(Stores.persistent_key_value("seen"), STRING, LONG)
    builder.add_state_store(seen)
    events = builder.stream(input_topic, key=STRING, value=BYTES)
    once = events.process(Deduplicate, stores=["seen"], name="deduplicate")
    once.to(output_topic, key=STRING, value=BYTES)
    return builder.build()


def demo(topology: Topology, input_topic: str, output_topic: str) -> int:
    """Process a thousand events with duplicates; return 0 if each is forwarded once."""
    numbers = random.Random(7)
    events = [f"event-{number}" for number in range(1_000)]
    with TopologyTestDriver(topology) as driver:
        inputs = driver.create_input_topic(
            input_topic,
            key=STRING,
            value=BYTES,
            start_ms=0,
            auto_advance=timedelta(seconds=20),
        )
        written = 0
        for number, event in enumerate(events):
            inputs.pipe_input(event, b"")
            if number % 3 == 0:
                # A duplicate of this event or a recent one, like a retry of the producer.
                inputs.pipe_input(events[max(0, number - numbers.randrange(9))], b"")
            written = number + 1 + number // 3 + 1
        out = driver.create_output_topic(output_topic, key=STRING, value=BYTES)
        found = [key for key, _ in out.read_key_values()]
        stored = driver.get_state_store("seen").approximate_num_entries()
    ok = found == events and stored < len(events)
    print(f"{written} events in, {len(found)} out, {stored} keys in the store")
    print("every event was forwarded once" if ok else "WRONG: missing or duplicate events")
    return 0 if ok else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Forwards each event of a Kafka topic once.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-servers", help="your broker; both topics must exist on it")
    where.add_argument("--demo", action="store_true", help="generate the input, without a broker")
    parser.add_argument("--application-id", default="deduplicate")
    parser.add_argument("--input-topic", default="events")
    parser.add_argument("--output-topic", default="unique-events")
    options = parser.parse_args()
    topology = deduplicated(options.input_topic, options.output_topic)
    if options.demo:
        return demo(topology, options.input_topic, options.output_topic)
    config = StreamsConfig(
        application_id=options.application_id, bootstrap_servers=options.bootstrap_servers
    )
    KafkaStreams(topology, config).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
