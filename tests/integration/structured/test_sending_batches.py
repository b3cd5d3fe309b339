"""A batch of a DataFrame function is written once, wherever the one who writes it is killed."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest
from support.broker.records import Places
from support.broker.topics import read_all, unique
from support.machine.scripts import Script
from support.running import dataframe_batch
from support.running.dataframe_batch import PARTITIONS, ROWS, write

from millstream.testing import EmbeddedKafka

#: Where the writer of a batch dies: a call of the producer, and which of them. Each partition is
#: a transaction; how many are committed by then.
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
    Places(kafka.bootstrap_servers).create({name: PARTITIONS})
    return name


def values(kafka: EmbeddedKafka, topic: str) -> Counter[bytes]:
    return Counter(value or b"" for _, value in read_all(kafka.bootstrap_servers, topic))


def batch(number: int) -> Counter[bytes]:
    return Counter(f"{number}-{row}".encode() for row in range(ROWS))


@pytest.mark.slow
def test_a_killed_writer_is_followed_by_one_that_writes_the_rest(
    kafka: EmbeddedKafka, topic: str, tmp_path: Path
) -> None:
    """Each batch is begun, killed somewhere, and done again."""
    expected: Counter[bytes] = Counter()
    script = Path(dataframe_batch.__file__)
    for number, (method, when, times, done) in enumerate(KILLS):
        arguments = [kafka.bootstrap_servers, topic, str(number), "q", method, when, str(times)]
        with Script(script, *arguments, home=tmp_path, imports=script.parents[2]) as doomed:
            assert doomed.wait_ended(60) == -signal.SIGKILL, doomed.errors
        left = write(kafka.bootstrap_servers, topic, number, "q")
        expected += batch(number)
        assert values(kafka, topic) == expected, (method, when)
        assert (left == ROWS) == (done == 0)
        assert (left == 0) == (done == PARTITIONS)


def test_a_batch_that_was_written_is_not_written_again_but_another_query_begins_anew(
    kafka: EmbeddedKafka, topic: str
) -> None:
    """The numbers of a query say nothing about another checkpoint's."""
    assert write(kafka.bootstrap_servers, topic, 5, "one") == ROWS
    assert write(kafka.bootstrap_servers, topic, 5, "one") == 0
    assert write(kafka.bootstrap_servers, topic, 4, "one") == 0
    assert write(kafka.bootstrap_servers, topic, 6, "one") == ROWS
    assert write(kafka.bootstrap_servers, topic, 0, "another") == ROWS
    assert values(kafka, topic) == batch(5) + batch(6) + batch(0)
