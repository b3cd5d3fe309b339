"""The jobs as plain loops over confluent-kafka, without an engine.

There are no tasks, stores or restorations: counts are in a dict, and are lost with the process. At
every commit interval, outputs are flushed before offsets are committed, so processing is
at-least-once until the process stops. The results are an upper bound for comparison; the loops are
not an alternative to an engine.
"""

from __future__ import annotations

import signal
import struct
import time
from collections.abc import Callable
from types import FrameType

import marks
import orjson
from arguments import Arguments, parse
from computations import PASS_ABOVE, WINDOW_MS, cents
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

BATCH_RECORDS = 10_000
POLL_S = 0.05
FLUSH_DEADLINE_S = 60.0

Work = Callable[[list[Message]], None]


class Loop:
    """A loop that processes batches and commits every interval, until stopped."""

    def __init__(self, arguments: Arguments) -> None:
        settings = arguments.settings
        self.arguments = arguments
        self.commit_interval_s = int(settings["commit.interval.ms"]) / 1000
        self.stopping = False
        self.failures: list[KafkaError] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": settings["bootstrap.servers"],
                "group.id": settings["application.id"],
                "auto.offset.reset": settings["consumer.auto.offset.reset"],
                "enable.auto.commit": False,
                "enable.auto.offset.store": True,
                "queued.min.messages": 1_000_000,
                "fetch.message.max.bytes": 4_000_000,
            }
        )
        self.producer = Producer(
            {
                "bootstrap.servers": settings["bootstrap.servers"],
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "compression.type": settings["producer.compression.type"],
                "linger.ms": int(settings["producer.linger.ms"]),
                "batch.size": int(settings["producer.batch.size"]),
                "queue.buffering.max.messages": 500_000,
                "delivery.report.only.error": True,
                "on_delivery": self._on_delivery,
            }
        )

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.failures.append(error)

    def stop(self, _signal: int, _frame: FrameType | None) -> None:
        self.stopping = True

    def run(self, work: Work, before_commit: Callable[[], None]) -> None:
        signal.signal(signal.SIGTERM, self.stop)
        self.consumer.subscribe([self.arguments.input_topic])
        marks.put(self.arguments.marks, "running")
        seen = 0
        commit_at = time.monotonic() + self.commit_interval_s
        while not self.stopping:
            batch = self.consumer.consume(BATCH_RECORDS, POLL_S)
            for record in batch:
                if record.error():
                    raise KafkaException(record.error())
            if batch:
                if seen == 0:
                    marks.put(self.arguments.marks, "first")
                work(batch)
                seen += len(batch)
                if seen == self.arguments.records:
                    marks.put(self.arguments.marks, "last")
            if time.monotonic() >= commit_at:
                self.commit(before_commit)
                commit_at = time.monotonic() + self.commit_interval_s
        self.commit(before_commit)
        self.consumer.close()

    def commit(self, before_commit: Callable[[], None]) -> None:
        before_commit()
        unsent = self.producer.flush(FLUSH_DEADLINE_S)
        if self.failures or unsent:
            raise SystemExit(f"{unsent} records were not sent; failures: {self.failures[:3]}")
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as error:
            # Nothing was consumed since the last commit.
            if error.args[0].code() != KafkaError._NO_OFFSET:
                raise

    def send(self, key: bytes, value: bytes) -> None:
        while True:
            try:
                self.producer.produce(self.arguments.output_topic, value, key)
                return
            except BufferError:
                self.producer.poll(0.1)


def stateless(loop: Loop) -> None:
    """Keep the events above the threshold, and add a field."""
    loads, dumps, send = orjson.loads, orjson.dumps, loop.send

    def work(batch: list[Message]) -> None:
        for record in batch:
            event = loads(record.value() or b"")
            if event["amount"] > PASS_ABOVE:
                event["cents"] = cents(event["amount"])
                send(record.key() or b"", dumps(event))

    loop.run(work, lambda: None)


def count(loop: Loop) -> None:
    """Count the records of each key; send changed counts at every commit."""
    counts: dict[bytes, int] = {}
    changed: set[bytes] = set()

    def work(batch: list[Message]) -> None:
        keys = [record.key() or b"" for record in batch]
        for key in keys:
            counts[key] = counts.get(key, 0) + 1
        changed.update(keys)

    def send_changed() -> None:
        for key in changed:
            loop.send(key, struct.pack(">q", counts[key]))
        changed.clear()

    loop.run(work, send_changed)


def window(loop: Loop) -> None:
    """Sum the cents of each key in each minute; send changed sums at every commit."""
    sums: dict[bytes, int] = {}
    changed: set[bytes] = set()
    loads = orjson.loads

    def work(batch: list[Message]) -> None:
        for record in batch:
            timestamp = record.timestamp()[1]
            start = timestamp - timestamp % WINDOW_MS
            key = (record.key() or b"") + struct.pack(">q", start)
            sums[key] = sums.get(key, 0) + cents(loads(record.value() or b"")["amount"])
            changed.add(key)

    def send_changed() -> None:
        for key in changed:
            loop.send(key, struct.pack(">q", sums[key]))
        changed.clear()

    loop.run(work, send_changed)


def main() -> None:
    arguments = parse(__doc__.partition("\n")[0] if __doc__ else None)
    jobs = {"stateless": stateless, "count": count, "window": window}
    jobs[arguments.job](Loop(arguments))


if __name__ == "__main__":
    main()
