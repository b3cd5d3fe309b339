"""Fuzz target: records written and read as columns, on a real broker.

Both implementations write the same records to a topic of their own, and both read both topics. All
four results, and the rejected records, must be equal. Other clients come and go meanwhile, with
records in flight.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any, Final

from confluent_kafka import Producer
from support.broker.data_clients import TIMEOUT_MS, Clients, place
from support.broker.topics import BrokerTopics
from support.waiting import wait_for

from extension.cases.values import MAX_LONG, Trace, value_of
from millstream.config.streams_config import StreamsConfig
from millstream.errors import RecordRefusedError
from millstream.kafka.settings.librdkafka_settings import librdkafka_settings
from millstream.kafka.speedups import chosen_speedups

#: The environment variable with the address of the broker.
BOOTSTRAP: Final = "MILLSTREAM_FUZZ_BOOTSTRAP"
_PARTITIONS: Final = 3
# Only the extension accepts memoryviews.
_DATA: Final = (b"", b"k", b"value", "text", ("zeros", 20_000))
_HEADERS: Final = (None, None, (), [("h", b"x")], [("i", None), ("", b"")], [("ü", "text")] * 3)
_INVALID: Final = (5, ("Faulty", None), ("bytearray", b"b"))

#: Topic partition number → records.
_Records = dict[int, list[tuple[Any, ...]]]


def generate(rng: random.Random) -> Trace:
    """Steps: sends of `(partition, key, value, timestamp, headers)`, flushes, other clients."""

    def record(partitions: str) -> tuple[Any, ...]:
        key: Any = rng.choice(_DATA) if partitions == "by key" else rng.choice((None, *_DATA))
        value: Any = rng.choice((None, *_DATA))
        time: Any = rng.choice((0, 1, 10**12, rng.randrange(10**12)))
        headers: Any = rng.choice(_HEADERS)
        fault = rng.random()
        if fault < 0.02:
            key = rng.choice(_INVALID)
        elif fault < 0.04:
            value = rng.choice(_INVALID)
        elif fault < 0.06:
            time = rng.choice((MAX_LONG + 1, None, "x"))
        elif fault < 0.08:
            headers = rng.choice(([("h", 5)], [("h", b"x"), 5]))
        return rng.randrange(_PARTITIONS), key, value, time, headers

    steps: Trace = []
    for _ in range(rng.randrange(1, 5)):
        partitions = rng.choice(("one", "each", "by key"))
        records = [record(partitions) for _ in range(rng.choice((1, 5, 100, 1_000)))]
        steps.append(("send", partitions, records))
        if rng.random() < 0.3:
            steps.append(("flush",))
        if rng.random() < 0.2:
            steps.append(("other client", rng.randrange(1, 300), rng.randrange(3)))
    return steps


class _Broker:
    """Clients of both implementations, which the cases of one process share."""

    _only: _Broker | None = None

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        # Several child processes may use the same broker.
        names = {speedups: f"fuzz-{os.getpid()}-{_name(speedups)}" for speedups in (False, True)}
        self.topics: dict[bool, str] = names
        BrokerTopics(bootstrap).create(dict.fromkeys(self.topics.values(), _PARTITIONS))
        clients = {speedups: Clients(bootstrap, speedups) for speedups in self.topics}
        self.producers = {speedups: clients[speedups].producer() for speedups in clients}
        self.consumers = {speedups: clients[speedups].consumer() for speedups in clients}
        for consumer in self.consumers.values():
            consumer.assign(
                {
                    place(topic, number): 0
                    for topic in self.topics.values()
                    for number in range(_PARTITIONS)
                }
            )

    @classmethod
    def shared(cls) -> _Broker:
        """Return the clients of this process.

        Raises:
            KeyError: there is no broker.
        """
        if cls._only is None:
            cls._only = cls(os.environ[BOOTSTRAP])
        return cls._only

    def send(self, speedups: bool, partitions: str, records: list[Any]) -> tuple[int, list[str]]:
        """Send records; return the number of accepted ones, and the errors."""
        producer, rejected, start = self.producers[speedups], [], 0
        numbers, *columns = (
            [value_of(each) for each in column] for column in zip(*records, strict=True)
        )
        where: Any = {"one": numbers[0], "each": numbers, "by key": None}[partitions]
        while start < len(records):
            left = [column[start:] for column in columns]
            to = where[start:] if isinstance(where, list) else where
            try:
                producer.send_many(self.topics[speedups], to, *left)
                break
            except RecordRefusedError as error:
                rejected.append(f"{start + error.index} {type(error.__cause__).__name__}")
                start += error.index + 1
        return len(records) - len(rejected), rejected

    def read(self, speedups: bool, counts: dict[bool, int]) -> dict[bool, _Records]:
        """Read the new records of both topics with one implementation."""
        found: dict[bool, _Records] = {
            writer: {number: [] for number in range(_PARTITIONS)} for writer in counts
        }
        writers = {topic: writer for writer, topic in self.topics.items()}

        def is_complete() -> bool:
            for partition, columns in self.consumers[speedups].poll_columns(700, 200).items():
                count = len(columns.values)
                headers = columns.headers or [()] * count
                found[writers[partition.topic]][partition.partition] += zip(
                    columns.keys,
                    columns.values,
                    columns.timestamps,
                    map(tuple, headers),
                    strict=True,
                )
            read = {writer: sum(map(len, found[writer].values())) for writer in counts}
            return all(read[writer] >= counts[writer] for writer in counts)

        wait_for(is_complete, 60, lambda: f"{counts} records arrive")
        return found

    def other_client(self, count: int, how: int) -> None:
        """Create another producer, and drop it while its records are in flight."""
        speedups = chosen_speedups(True)
        assert speedups is not None
        config = StreamsConfig(application_id="other", bootstrap_servers=self.bootstrap)
        owner, native = speedups.create(Producer, librdkafka_settings(config, "producer", "o"))
        columns = ([b"k"] * count, [b"v" * 100] * count, [1] * count)
        # The topic does not exist, so that its records do not arrive.
        native.produce_columns("missing", 0, *columns, None, 0)
        if how == 0:
            owner.poll(0.01)
        elif how == 1:
            native.close()
        del owner, native


def run(trace: Trace) -> list[str]:
    return list(_differences(_Broker.shared(), trace))


def _differences(broker: _Broker, trace: Trace) -> Iterator[str]:
    counts = {False: 0, True: 0}
    for name, *arguments in trace:
        if name == "send" and arguments[1]:
            sent = {speedups: broker.send(speedups, *arguments) for speedups in counts}
            if sent[False] != sent[True]:
                yield f"rejected: Python: {sent[False]}, C: {sent[True]}"
            for speedups in counts:
                counts[speedups] += sent[speedups][0]
        elif name == "flush":
            for producer in broker.producers.values():
                producer.flush(TIMEOUT_MS)
        elif name == "other client":
            broker.other_client(*arguments)
    for producer in broker.producers.values():
        producer.flush(TIMEOUT_MS)
    results = {reader: broker.read(reader, counts) for reader in counts}
    expected = results[False][False]
    for reader in counts:
        for writer in counts:
            if results[reader][writer] != expected:
                difference = _first(expected, results[reader][writer])
                yield f"read by {_name(reader)}, written by {_name(writer)}: {difference}"


def _name(speedups: bool) -> str:
    return "C" if speedups else "Python"


def _first(expected: _Records, found: _Records) -> str:
    """Describe the first difference."""
    for number, records in expected.items():
        for index, (one, other) in enumerate(zip(records, found[number], strict=False)):
            if one != other:
                return f"partition {number}, record {index}: {one}, {other}"
    lengths = [[len(each) for each in records.values()] for records in (expected, found)]
    return f"numbers of records: {lengths[0]}, {lengths[1]}"
