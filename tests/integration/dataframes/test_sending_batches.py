"""A batch of a DataFrame function is written once, wherever its writer is killed."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest
from support.broker.topics import BrokerTopics, read_all, unique
from support.machine.scripts import support_script
from support.running.dataframe_batch import PARTITIONS, ROWS, write

from millstream.testing import EmbeddedKafka

#: Where the writer of a batch is killed: a call of the producer, and its number; and the number of
#: partitions committed by then (each partition is a transaction).
KILLS = (
    ("init_transactions", "after", 1, 0),
    ("send_many", "after", 2, 1),
    ("send_offsets", "after", 1, 0),
    ("commit_transaction", "before", 2, 1),
    ("commit_transaction", "after", 1, 1),
    ("commit_transaction", "after", 3, 3),
)


@pytest.fixture
def topic(kafka: EmbeddedKafka) -> str:
    name = unique("batches")
    BrokerTopics(kafka.bootstrap_servers).create({name: PARTITIONS})
    return name


def values(kafka: EmbeddedKafka, topic: str) -> Counter[bytes]:
    return Counter(value or b"" for _, value in read_all(kafka.bootstrap_servers, topic))


def batch(number: int) -> Counter[bytes]:
    return Counter(f"{number}-{row}".encode() for row in range(ROWS))


@pytest.mark.slow
def test_the_next_writer_completes_a_batch_of_a_killed_one(
    kafka: EmbeddedKafka, topic: str, tmp_path: Path
) -> None:
    """Each batch is started, killed at some point, and repeated."""
    expected: Counter[bytes] = Counter()
    for number, (method, when, times, done) in enumerate(KILLS):
        arguments = [kafka.bootstrap_servers, topic, str(number), "q", method, when, str(times)]
        with support_script("dataframe_batch.py", *arguments, home=tmp_path) as killed_writer:
            assert killed_writer.wait_ended(60) == -signal.SIGKILL, killed_writer.errors
        left = write(kafka.bootstrap_servers, topic, number, "q")
        expected += batch(number)
        assert values(kafka, topic) == expected, (method, when)
        assert (left == ROWS) == (done == 0)
        assert (left == 0) == (done == PARTITIONS)


def test_a_written_batch_is_not_repeated_but_another_query_starts_at_zero(
    kafka: EmbeddedKafka, topic: str
) -> None:
    """The batch numbers of a query are unrelated to those of another checkpoint."""
    assert write(kafka.bootstrap_servers, topic, 5, "one") == ROWS
    assert write(kafka.bootstrap_servers, topic, 5, "one") == 0
    assert write(kafka.bootstrap_servers, topic, 4, "one") == 0
    assert write(kafka.bootstrap_servers, topic, 6, "one") == ROWS
    assert write(kafka.bootstrap_servers, topic, 0, "another") == ROWS
    assert values(kafka, topic) == batch(5) + batch(6) + batch(0)
