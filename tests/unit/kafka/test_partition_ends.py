"""How `PartitionEnds` decides that the end of a partition is reached.

A broker can hardly be made to produce these sequences.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from confluent_kafka import TopicPartition as ClientPartition

from millstream.kafka.clients.partition_ends import PartitionEnds
from millstream.record import TopicPartition

HERE = TopicPartition("t", 0)


class FetchResult:
    """The part of a client that `PartitionEnds` uses: positions and watermarks."""

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
def client() -> FetchResult:
    return FetchResult()


@pytest.fixture
def ends(client: FetchResult) -> PartitionEnds:
    made = PartitionEnds(client, read_committed=True)  # type: ignore[arg-type]
    made.add([HERE])
    return made


def drain(ends: PartitionEnds) -> None:
    ends.mark_drained(ends.uncertain_watermarks())


def test_an_end_is_not_reached_before_it_is_reported(
    client: FetchResult, ends: PartitionEnds
) -> None:
    """Nor after a reset, or if the partition is not assigned."""
    assert ends.high_watermark(HERE) < 0
    client.high = client.at = 5
    assert not ends.reached(HERE)
    ends.report(HERE, 5)
    assert ends.reached(HERE)
    assert ends.last_reported(HERE) == 5
    ends.reset([HERE])
    assert not ends.reached(HERE)
    ends.report(HERE, 5)
    ends.remove([HERE])
    assert not ends.reached(HERE)
    ends.report(HERE, 5)
    assert (ends.last_reported(HERE), ends.high_watermark(HERE)) == (-1, -1)


def test_fetched_records_precede_the_end(client: FetchResult, ends: PartitionEnds) -> None:
    """The end is not reached until they are returned, or another end is reported."""
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


def test_an_empty_queue_is_not_sufficient(client: FetchResult, ends: PartitionEnds) -> None:
    """A fetch may have had no space for the partition, or returned only aborted records."""
    ends.report(HERE, 5)
    client.at, client.high = 5, 8
    assert not ends.reached(HERE)
    for statistics_text in (statistics(3, 8), statistics(8, 8), statistics(5, 8, topic="another")):
        ends.update_stable_offsets(statistics_text)
        drain(ends)
        assert not ends.reached(HERE)


def test_an_open_transaction_is_detected_by_the_last_stable_offset(
    client: FetchResult, ends: PartitionEnds
) -> None:
    """While the watermark does not move; then an empty queue is sufficient."""
    ends.report(HERE, 5)
    client.at, client.high = 5, 8
    assert not ends.has_uncertain
    assert not ends.reached(HERE)
    assert ends.has_uncertain
    ends.update_stable_offsets(statistics(5, 8))
    assert ends.reached(HERE)
    client.high = 9
    assert not ends.reached(HERE)
    drain(ends)
    assert ends.reached(HERE)
    sighted = ends.uncertain_watermarks()
    client.high = 10
    ends.mark_drained(sighted)
    assert not ends.reached(HERE)


def test_records_of_a_completed_transaction_precede_the_end(
    client: FetchResult, ends: PartitionEnds
) -> None:
    """They follow now, whatever the earlier statistics."""
    ends.report(HERE, 5)
    client.at, client.high = 5, 8
    ends.reached(HERE)
    ends.update_stable_offsets(statistics(5, 8))
    client.high = 9
    ends.update_stable_offsets(statistics(9, 9))
    drain(ends)
    assert not ends.reached(HERE)
    client.at = 8
    assert not ends.reached(HERE)
    ends.report(HERE, 9)
    assert ends.reached(HERE)


def test_the_watermark_is_the_end_without_transactions(client: FetchResult) -> None:
    ends = PartitionEnds(client, read_committed=False)  # type: ignore[arg-type]
    ends.add([HERE])
    ends.report(HERE, 5)
    client.at, client.high = 5, 8
    assert not ends.reached(HERE)
    assert not ends.has_uncertain
    ends.update_stable_offsets(statistics(5, 8))
    assert not ends.reached(HERE)
