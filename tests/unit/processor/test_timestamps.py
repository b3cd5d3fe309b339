"""Built-in timestamp extractors in a queue: records without a valid timestamp."""

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


def process(extractor: Any, *timestamps: int) -> tuple[list[int], int]:
    """Return the timestamps of processed records, and the number of dropped records."""
    errors = Errors()
    place = TopicPartition("in", 0)
    queue = RecordQueue(place, "source", TaskId(0, 0), BYTES, BYTES, extractor, errors)
    size = len(timestamps)
    queue.add(Raw([None] * size, [b"v"] * size, list(timestamps), list(range(size))))
    found: list[int] = []
    while count := queue.available():
        found += queue.take(count).timestamps
    return found, errors.drops


def test_valid_timestamps_are_kept() -> None:
    for extractor in (
        FailOnInvalidTimestamp(),
        LogAndSkipOnInvalidTimestamp(),
        UsePartitionTimeOnInvalidTimestamp(),
    ):
        assert process(extractor, 5, 0, 2**63 - 1) == ([5, 0, 2**63 - 1], 0)


def test_skipped_records_are_counted() -> None:
    assert process(LogAndSkipOnInvalidTimestamp(), -1, 5, -7, 3) == ([5, 3], 2)


def test_partition_time_replaces_invalid_timestamps() -> None:
    """The highest timestamp so far, not the last one."""
    assert process(UsePartitionTimeOnInvalidTimestamp(), 9, 5, -1, 3) == ([9, 5, 9, 3], 0)


@pytest.mark.parametrize(
    ("extractor", "timestamps", "message"),
    [
        (FailOnInvalidTimestamp(), (5, -1), "has the invalid timestamp -1"),
        (None, (5, -1), "has the invalid timestamp -1"),
        (
            UsePartitionTimeOnInvalidTimestamp(),
            (-1, 5),
            "no earlier record of its partition had a valid",
        ),
    ],
)
def test_invalid_timestamp_is_an_error(
    extractor: Any, timestamps: tuple[int, int], message: str
) -> None:
    with pytest.raises(StreamsError, match=message) as raised:
        process(extractor, *timestamps)
    assert "timestamp_extractor" in raised.value.message
    assert (raised.value.topic, raised.value.offset) == ("in", timestamps.index(-1))


def test_wall_clock_extractor() -> None:
    found, _ = process(WallclockTimestampExtractor(), 5, -1)
    assert min(found) > 1_700_000_000_000


def test_extractor_can_be_called_without_a_queue() -> None:
    assert LogAndSkipOnInvalidTimestamp()(Record("k", "v", 5), -1) == 5
