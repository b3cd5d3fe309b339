"""The ready-made timestamp extractors, in a queue: what becomes of records without a valid time."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from millstream import (
    FailOnInvalidTimestamp,
    LogAndSkipOnInvalidTimestamp,
    Record,
    StreamsError,
    TaskId,
    TopicPartition,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
)
from millstream.processor.handlers import ErrorContext, SourceRecord
from millstream.runtime.task.queues.record_queue import RecordQueue
from millstream.serdes import BYTES


class Raw(NamedTuple):
    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    offsets: list[int]
    headers: None = None
    leader_epoch: None = None


class Errors:
    def __init__(self) -> None:
        self.drops = 0

    def undecodable(self, context: ErrorContext, record: SourceRecord, error: Exception) -> bool:
        raise AssertionError

    def dropped(self, count: int, why: str) -> None:
        self.drops += count


def times(extractor: Any, *given: int) -> tuple[list[int], int]:
    """The times of records that are processed, and how many are dropped."""
    errors = Errors()
    place = TopicPartition("in", 0)
    queue = RecordQueue(place, "source", TaskId(0, 0), BYTES, BYTES, extractor, errors)
    size = len(given)
    queue.add(Raw([None] * size, [b"v"] * size, list(given), list(range(size))))
    found: list[int] = []
    while count := queue.available():
        found += queue.take(count).timestamps
    return found, errors.drops


def test_valid_times_are_kept() -> None:
    for extractor in (
        FailOnInvalidTimestamp(),
        LogAndSkipOnInvalidTimestamp(),
        UsePartitionTimeOnInvalidTimestamp(),
    ):
        assert times(extractor, 5, 0, 2**63 - 1) == ([5, 0, 2**63 - 1], 0)


def test_skipped_ones_are_counted() -> None:
    assert times(LogAndSkipOnInvalidTimestamp(), -1, 5, -7, 3) == ([5, 3], 2)


def test_the_time_of_the_partition() -> None:
    """The highest so far, not the last."""
    assert times(UsePartitionTimeOnInvalidTimestamp(), 9, 5, -1, 3) == ([9, 5, 9, 3], 0)


@pytest.mark.parametrize(
    ("extractor", "given", "told"),
    [
        (FailOnInvalidTimestamp(), (5, -1), "has the timestamp -1, which is not a time"),
        (None, (5, -1), "has the timestamp -1, which is not a time"),
        (UsePartitionTimeOnInvalidTimestamp(), (-1, 5), "no record of its partition had a valid"),
    ],
)
def test_no_time_is_an_error(extractor: Any, given: tuple[int, int], told: str) -> None:
    with pytest.raises(StreamsError, match=told) as raised:
        times(extractor, *given)
    assert "timestamp_extractor" in raised.value.message
    assert (raised.value.topic, raised.value.offset) == ("in", given.index(-1))


def test_wall_clock() -> None:
    found, _ = times(WallclockTimestampExtractor(), 5, -1)
    assert min(found) > 1_700_000_000_000


def test_an_extractor_of_that_kind_is_called_alone() -> None:
    assert LogAndSkipOnInvalidTimestamp()(Record("k", "v", 5), -1) == 5
