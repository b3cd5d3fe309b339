"""What convinces that the end of a partition is reached, offset by offset: a broker can hardly be
brought to do these things at these moments."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from confluent_kafka import TopicPartition as ClientPartition

from millstream.kafka.data.partition_ends import PartitionEnds
from millstream.record import TopicPartition

HERE = TopicPartition("t", 0)


class Fetched:
    """As much of a client as ends need: where it is, and what it has heard of."""

    def __init__(self) -> None:
        self.at = -1001
        self.high = -1001

    def position(self, partitions: list[ClientPartition]) -> list[ClientPartition]:
        return [ClientPartition(one.topic, one.partition, self.at) for one in partitions]

    def get_watermark_offsets(self, *_: Any) -> tuple[int, int]:
        return (0, self.high)


def statistics(last_stable: int, high: int, topic: str = "t") -> str:
    partitions = {"0": {"ls_offset": last_stable, "hi_offset": high}}
    return orjson.dumps({"topics": {topic: {"partitions": partitions}}}).decode()


@pytest.fixture
def client() -> Fetched:
    return Fetched()


@pytest.fixture
def ends(client: Fetched) -> PartitionEnds:
    made = PartitionEnds(client, read_committed=True)  # type: ignore[arg-type]
    made.add([HERE])
    return made


def drained(ends: PartitionEnds) -> None:
    ends.nothing_left(ends.sight())


def test_nothing_is_reached_before_it_is_reported(client: Fetched, ends: PartitionEnds) -> None:
    """Nor after it is forgotten, or where the partition is not read."""
    assert ends.high_watermark(HERE) < 0
    client.high = client.at = 5
    assert not ends.reached(HERE)
    ends.report(HERE, 5)
    assert ends.reached(HERE)
    assert ends.last_reported(HERE) == 5
    ends.forget([HERE])
    assert not ends.reached(HERE)
    ends.report(HERE, 5)
    ends.remove([HERE])
    assert not ends.reached(HERE)
    ends.report(HERE, 5)
    assert (ends.last_reported(HERE), ends.high_watermark(HERE)) == (-1, -1)


def test_what_was_fetched_comes_before_the_end(client: Fetched, ends: PartitionEnds) -> None:
    """Until it was handed out, or another end is reported."""
    ends.report(HERE, 5)
    client.at, client.high = 5, 8
    assert not ends.reached(HERE)
    client.at = 7
    assert not ends.reached(HERE)
    client.at = 8
    assert ends.reached(HERE)
    client.high = 9
    assert not ends.reached(HERE)
    ends.report(HERE, 9)
    assert ends.reached(HERE)


def test_an_empty_queue_alone_does_not_convince(client: Fetched, ends: PartitionEnds) -> None:
    """A fetch may have had no room for the partition, or nothing but aborted records in it."""
    ends.report(HERE, 5)
    client.at, client.high = 5, 8
    assert not ends.reached(HERE)
    for told in (statistics(3, 8), statistics(8, 8), statistics(5, 8, topic="another")):
        ends.learn(told)
        drained(ends)
        assert not ends.reached(HERE)


def test_an_open_transaction_is_known_by_the_last_stable_offset(
    client: Fetched, ends: PartitionEnds
) -> None:
    """As long as the watermark does not move; then an empty queue tells the rest."""
    ends.report(HERE, 5)
    client.at, client.high = 5, 8
    assert not ends.in_doubt
    assert not ends.reached(HERE)
    assert ends.in_doubt
    ends.learn(statistics(5, 8))
    assert ends.reached(HERE)
    client.high = 9
    assert not ends.reached(HERE)
    drained(ends)
    assert ends.reached(HERE)
    sighted = ends.sight()
    client.high = 10
    ends.nothing_left(sighted)
    assert not ends.reached(HERE)


def test_a_transaction_that_is_over_is_no_excuse(client: Fetched, ends: PartitionEnds) -> None:
    """Its records come now, whatever was known before."""
    ends.report(HERE, 5)
    client.at, client.high = 5, 8
    ends.reached(HERE)
    ends.learn(statistics(5, 8))
    client.high = 9
    ends.learn(statistics(9, 9))
    drained(ends)
    assert not ends.reached(HERE)
    client.at = 8
    assert not ends.reached(HERE)
    ends.report(HERE, 9)
    assert ends.reached(HERE)


def test_without_transactions_nobody_doubts(client: Fetched) -> None:
    """Then the watermark is the end."""
    ends = PartitionEnds(client, read_committed=False)  # type: ignore[arg-type]
    ends.add([HERE])
    ends.report(HERE, 5)
    client.at, client.high = 5, 8
    assert not ends.reached(HERE)
    assert not ends.in_doubt
    ends.learn(statistics(5, 8))
    assert not ends.reached(HERE)
