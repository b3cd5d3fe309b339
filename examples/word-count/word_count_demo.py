"""The demo of `word_count.py`: a broker, a text, a live table and a check.

One thread sends the lines while the application is running; the main thread reads the output topic
and shows the counts. At the end, every count is compared with `collections.Counter`.
"""

from __future__ import annotations

import argparse
import struct
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta
from itertools import cycle, islice
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from word_count_view import Progress, Task, View, view

from millstream import KafkaStreams, StreamsConfig, Topology
from millstream.testing import EmbeddedKafka

TEXT = Path(__file__).parents[1] / "data" / "opticks.txt"
PARTITIONS = 4
#: The approximate rate of sending, slow enough to watch the counts grow.
LINES_PER_S = 15_000
SENDING_STEP_S = 0.05
RUNNING_DEADLINE_S = 90.0
COUNTING_DEADLINE_S = 180.0
CLOSE_TIMEOUT = timedelta(seconds=60)
TOP = 15
WRONG_SHOWN = 10


class DemoFailedError(Exception):
    """The demo could not be completed."""


class Demo:
    """Runs the topology on local Spark and an embedded broker.

    Args:
        topology: the topology that counts words.
        words: splits a line into words, for the check.
        options: the command-line options.
    """

    def __init__(
        self,
        topology: Topology,
        words: Callable[[str], list[str]],
        options: argparse.Namespace,
    ) -> None:
        self.topology = topology
        self.options = options
        text = [line for line in TEXT.read_text(encoding="utf-8").splitlines() if line]
        # Repeat the text until there are enough lines.
        self.lines = list(islice(cycle(text), options.lines))
        self.expected = Counter(word for line in self.lines for word in words(line))
        self.expected_total = sum(self.expected.values())

    def run(self) -> int:
        """Run the demo; return 0 if every count is correct, 1 otherwise."""
        print("Starting an Apache Kafka broker …", flush=True)
        with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory(prefix="word-count-") as folder:
            servers = kafka.bootstrap_servers
            kafka.create_topic(self.options.input_topic, PARTITIONS)
            kafka.create_topic(self.options.output_topic, PARTITIONS)
            config = StreamsConfig(
                application_id=self.options.application_id,
                bootstrap_servers=servers,
                num_stream_threads=self.options.threads,
                commit_interval_ms=1000,
                state_dir=folder,
            )
            print("Starting Spark and the stream threads …", flush=True)
            streams = KafkaStreams(self.topology, config)
            feeder = Feeder(servers, self.options.input_topic, self.lines)
            began = time.monotonic()
            with closing(Results(servers, self.options.output_topic)) as results:
                try:
                    streams.start()
                    self._wait_until_running(streams)
                    feeder.start()
                    self._follow(streams, results, feeder)
                except DemoFailedError as error:
                    print(f"\n{error}")
                    return 1
                finally:
                    feeder.stop()
                    streams.close(CLOSE_TIMEOUT)
                results.read_to_end()
            return self._check(results.counts, time.monotonic() - began)

    def _wait_until_running(self, streams: KafkaStreams) -> None:
        deadline = time.monotonic() + RUNNING_DEADLINE_S
        while streams.state.name != "RUNNING":
            _raise_if_failed(streams)
            if time.monotonic() > deadline:
                raise DemoFailedError(f"The threads were not running after {RUNNING_DEADLINE_S} s.")
            time.sleep(0.1)

    def _follow(self, streams: KafkaStreams, results: Results, feeder: Feeder) -> None:
        """Show the counts until all words are counted."""
        began = time.monotonic()
        with view() as shown:
            while results.total < self.expected_total:
                results.read()
                _raise_if_failed(streams)
                feeder.raise_failure()
                self._show(shown, streams, results, feeder, time.monotonic() - began)
                if time.monotonic() - began > COUNTING_DEADLINE_S:
                    break  # the check prints the missing words
            self._show(shown, streams, results, feeder, time.monotonic() - began, last=True)

    def _show(
        self,
        shown: View,
        streams: KafkaStreams,
        results: Results,
        feeder: Feeder,
        elapsed_s: float,
        last: bool = False,
    ) -> None:
        if not (last or shown.is_due()):
            return
        progress = Progress(
            elapsed_s=elapsed_s,
            state=streams.state.name,
            lines_sent=feeder.sent,
            lines=len(self.lines),
            counted=results.total,
            expected=self.expected_total,
            distinct=len(results.counts),
            top=results.top(TOP),
            tasks=_tasks(streams),
        )
        shown.show(progress)

    def _check(self, counts: dict[str, int], took_s: float) -> int:
        """Compare every count, and print and return the result."""
        every = counts.keys() | self.expected.keys()
        wrong = sorted(word for word in every if counts.get(word) != self.expected.get(word))
        if not wrong:
            print(
                f"\n{len(counts):,} words, {self.expected_total:,} occurrences: "
                f"every count is correct ({took_s:.0f} s)."
            )
            return 0
        print(f"\n{len(wrong):,} of {len(every):,} words have a wrong count, for example:")
        for word in wrong[:WRONG_SHOWN]:
            print(f"  {word}: {counts.get(word)}, but it occurs {self.expected.get(word, 0)} times")
        return 1


def _raise_if_failed(streams: KafkaStreams) -> None:
    if streams.state.name in ("PENDING_ERROR", "ERROR", "NOT_RUNNING"):
        raise DemoFailedError(f"The application is {streams.state.name}; see the log above.")


def _tasks(streams: KafkaStreams) -> list[Task]:
    """Return the tasks with their threads."""
    return [
        Task(str(task.task_id), thread.thread_name)
        for thread in streams.metadata_for_local_threads()
        for task in thread.active_tasks
    ]


class Feeder:
    """Sends the lines on a background thread, `LINES_PER_S` per second."""

    def __init__(self, bootstrap_servers: str, topic: str, lines: Sequence[str]) -> None:
        self.sent = 0
        self._topic = topic
        self._lines = lines
        self._failure: KafkaError | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 20,
                "compression.type": "lz4",
                "log_level": 3,
            }
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, even if not all lines have been sent."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(30)
        # Otherwise the producer would log a lost connection when the broker stops.
        del self._producer

    def raise_failure(self) -> None:
        """Raise DemoFailedError if a line could not be delivered."""
        if self._failure is not None:
            raise DemoFailedError(f"A line could not be sent: {self._failure.str()}")

    def _run(self) -> None:
        size = round(LINES_PER_S * SENDING_STEP_S)
        for start in range(0, len(self._lines), size):
            for line in self._lines[start : start + size]:
                self._producer.produce(self._topic, line.encode(), on_delivery=self._delivered)
            self.sent = min(start + size, len(self._lines))
            # Also waits for the deliveries, so that the producer queues at most one step.
            self._producer.flush(10)
            if self._stopping.wait(SENDING_STEP_S):
                return

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failure = error


class Results:
    """The latest count of each word, read from the output topic."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.counts: dict[str, int] = {}
        #: The sum of all counts.
        self.total = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "word-count-demo-results",
                "enable.auto.commit": False,
                "log_level": 3,
            }
        )
        self._partitions = [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
        self._consumer.assign(self._partitions)

    def read(self) -> None:
        """Read the available records, or wait briefly."""
        for record in self._consumer.consume(5_000, 0.1):
            error = record.error()
            if error is not None:
                raise KafkaException(error)
            key, value = record.key() or b"", record.value() or b""
            word, count = key.decode(), struct.unpack(">q", value)[0]
            self.total += count - self.counts.get(word, 0)
            self.counts[word] = count

    def read_to_end(self) -> None:
        """Read up to the current end of every partition, to include the last updates."""
        ends = {
            partition.partition: self._consumer.get_watermark_offsets(partition, timeout=10)[1]
            for partition in self._partitions
        }
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            positions = self._consumer.position(self._partitions)
            # The position is negative before the first record of a partition.
            if all(max(0, position.offset) >= ends[position.partition] for position in positions):
                return
            self.read()

    def top(self, number: int) -> list[tuple[str, int]]:
        """Return the most frequent words so far, in descending order."""
        return Counter(self.counts).most_common(number)

    def close(self) -> None:
        self._consumer.close()
